package oauthbearer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest/authority"
	"github.com/firstseen/firstseen/consumer/oauthbearer"
)

// shown is the message that a client sends first.
func shown(t *testing.T, cfg oauthbearer.Config) (message string, err error) {
	t.Helper()
	m, err := oauthbearer.New(cfg)
	require.NoError(t, err)
	require.Equal(t, "OAUTHBEARER", m.Name())
	_, first, err := m.Start(t.Context())
	return string(first), err
}

func TestTokenIsShownWithItsExtensions(t *testing.T) {
	message, err := shown(t, oauthbearer.Config{Source: oauthbearer.Static("abc.def"),
		Extensions: map[string]string{"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}})
	require.NoError(t, err)
	require.Equal(t, "n,,\x01auth=Bearer abc.def\x01identityPoolId=pool-2\x01logicalCluster=lkc-1\x01\x01", message)
}

func TestFaultsAreFoundAtOnce(t *testing.T) {
	_, err := oauthbearer.New(oauthbearer.Config{Extensions: map[string]string{"auth": "x", "a1": "x", "ok": "x\x01"}})
	for _, want := range []string{"a source", `"auth"`, `"a1"`, "extension ok"} {
		require.ErrorContains(t, err, want)
	}
	_, err = oauthbearer.ClientCredentials{TokenURL: "https://u:p4ss@issuer",
		Parameters: map[string]string{"scope": "x"}}.Source()
	for _, want := range []string{"client ID", "client secret", "credentials in it", "parameter scope"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "p4ss")
	require.ErrorContains(t, oauthbearer.ClientCredentials{TokenURL: "issuer/token"}.Check(), "none of http or https")
}

func TestTokenThatEndsTheMessageIsNotSent(t *testing.T) {
	for _, token := range []string{"", "a\x01admin=true", "two words", "ü"} {
		_, err := shown(t, oauthbearer.Config{Source: oauthbearer.Static(token)})
		require.ErrorContains(t, err, "there is no token to log in with: what was given")
	}
}

func TestBrokersRefusalIsAnsweredAndThenTheEnd(t *testing.T) {
	m, err := oauthbearer.New(oauthbearer.Config{Source: oauthbearer.Static("secret")})
	require.NoError(t, err)
	began, _, err := m.Start(t.Context())
	require.NoError(t, err)
	done, response, err := began.Next(t.Context(), []byte(`{"status":"insufficient_scope","scope":"kafka"}`))
	require.NoError(t, err)
	require.False(t, done)
	require.Equal(t, "\x01", string(response))
	_, _, err = began.Next(t.Context(), nil)
	require.EqualError(t, err, "insufficient_scope, scope kafka is needed; it is no JWT")
}

func TestTokenIsInNoPrint(t *testing.T) {
	token := oauthbearer.Token{Value: "hunter2"}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		fmt.Fprintf(&out, verb, token)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "token", token)
	require.NotContains(t, out.String(), "hunter2")
}

func TestFileIsReadForEachConnection(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	cfg := oauthbearer.Config{Source: oauthbearer.File(name)}
	_, err := shown(t, cfg)
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, token := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(name, []byte(token+"\n"), 0o600))
		message, err := shown(t, cfg)
		require.NoError(t, err)
		require.Equal(t, "n,,\x01auth=Bearer "+token+"\x01\x01", message)
	}
	require.NoError(t, os.WriteFile(name, []byte("\n"), 0o600))
	_, err = shown(t, cfg)
	require.ErrorContains(t, err, name+" is empty")
}

// minted is a source whose tokens are numbered, and end after a minute; failing stands for an outage of it.
type minted struct {
	n       int
	failing bool
}

func (m *minted) token(context.Context) (oauthbearer.Token, error) {
	m.n++
	if m.failing {
		return oauthbearer.Token{}, errors.New("away")
	}
	return oauthbearer.Token{Value: fmt.Sprint(m.n), Expires: time.Now().Add(time.Minute)}, nil
}

func TestTokenIsRenewedBeforeItEndsAndKeptToItsEndInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &minted{}
		source := oauthbearer.Kept(m.token)
		gives := func(want string) {
			t.Helper()
			token, err := source(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, token.Value)
			require.True(t, time.Now().Before(token.Expires))
		}
		gives("1")
		time.Sleep(47 * time.Second)
		gives("1")
		time.Sleep(2 * time.Second)
		gives("2")

		m.failing = true
		time.Sleep(50 * time.Second)
		gives("2")
		gives("2")
		require.Equal(t, 3, m.n, "a renewal that fails is not made again at once")
		time.Sleep(10 * time.Second)
		for range 5 {
			_, err := source(t.Context())
			require.EqualError(t, err, "away")
		}
		require.Equal(t, 4, m.n, "a request that fails is made once a second at most")
		m.failing = false
		time.Sleep(time.Second)
		gives("5")
	})
}

func TestTokenWithoutAKnownEndIsAskedForEachTime(t *testing.T) {
	n := 0
	source := oauthbearer.Kept(func(context.Context) (oauthbearer.Token, error) {
		n++
		return oauthbearer.Token{Value: "opaque"}, nil
	})
	for range 3 {
		_, err := source(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 3, n)
}

// A server that does not answer must not hold up who has a good token, nor who has a shorter time than it.
func TestSilentServerHoldsUpNobodyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := false
		source := oauthbearer.Kept(func(ctx context.Context) (oauthbearer.Token, error) {
			if silent {
				<-ctx.Done()
				return oauthbearer.Token{}, ctx.Err()
			}
			return oauthbearer.Token{Value: "good", Expires: time.Now().Add(time.Minute)}, nil
		})
		_, err := source(t.Context())
		require.NoError(t, err)
		silent = true
		time.Sleep(50 * time.Second)
		began := time.Now()
		token, err := source(t.Context())
		require.NoError(t, err)
		require.Equal(t, "good", token.Value)
		require.LessOrEqual(t, time.Since(began), 3*time.Second)

		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { _, _ = source(ctx) }()
		synctest.Wait()
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		_, err = source(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	})
}

func TestClientCredentialsBringAToken(t *testing.T) {
	by := authority.New(t, time.Hour)
	asked := oauthbearer.ClientCredentials{TokenURL: by.TokenURL(), ClientID: authority.ClientID,
		ClientSecret: authority.Secret}
	source, err := asked.Source()
	require.NoError(t, err)
	for range 3 {
		token, err := source(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Hour), token.Expires, time.Minute)
	}
	require.EqualValues(t, 1, by.Asked.Load())
}

func TestWhatATokenEndpointIsAskedForAndSays(t *testing.T) {
	var form string
	answer := func(w http.ResponseWriter, _ *http.Request) {}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		form = r.PostForm.Encode()
		answer(w, r)
	}))
	defer server.Close()
	asked := oauthbearer.ClientCredentials{TokenURL: server.URL, ClientID: "billing", ClientSecret: "hunter2",
		Scopes: []string{"read", "write"}, Parameters: map[string]string{"audience": "kafka"}}
	for want, say := range map[string]func(http.ResponseWriter, *http.Request){
		`refuses client "billing": invalid_scope "no"`: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_scope","error_description":"no"}`))
		},
		"gives no token and answers 503": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, r.PostForm.Encode()+"<html>hunter2</html>", http.StatusServiceUnavailable)
		},
		"gives no token: ": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>hunter2")) },
		"answers 307": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
	} {
		answer = say
		source, err := asked.Source()
		require.NoError(t, err)
		_, err = source(t.Context())
		require.ErrorContains(t, err, "the token endpoint "+server.URL+" ")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
		require.Contains(t, form, "audience=kafka")
		require.Contains(t, form, "grant_type=client_credentials&scope=read+write")
	}
}
