// Package authority is an authorization server for tests: it gives tokens to a client (OAuth 2.0 client credentials),
// and has the key that a broker holds them against (JWKS).
package authority

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What the tokens say, and who may have one.
const (
	Issuer   = "https://issuer.test"
	Audience = "kafka"
	ClientID = "billing"
	Secret   = "correct horse" //nolint:gosec // of a server that only tests know
)

// Authority is the server. Its methods are safe for concurrent use.
type Authority struct {
	t    testing.TB
	key  *rsa.PrivateKey
	life atomic.Int64
	// Asked counts the requests for a token.
	Asked atomic.Int64

	keys, tokens *httptest.Server
}

// New starts a server whose tokens are good for so long.
func New(t testing.TB, life time.Duration) *Authority {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{t: t, key: key}
	a.life.Store(int64(life))
	a.keys = httptest.NewServer(http.HandlerFunc(a.jwks))
	a.tokens = httptest.NewServer(http.HandlerFunc(a.token))
	t.Cleanup(func() { a.keys.Close(); a.tokens.Close() })
	return a
}

// KeysURL is where a broker finds the key.
func (a *Authority) KeysURL() string { return a.keys.URL + "/keys" }

// TokenURL is the token endpoint.
func (a *Authority) TokenURL() string {
	return "http://" + a.tokens.Listener.Addr().String() + "/token"
}

// Stop has nobody listen at the token endpoint until Start is called.
func (a *Authority) Stop() { a.tokens.Close() }

// Start has the token endpoint answer again, at the same address.
func (a *Authority) Start() {
	a.t.Helper()
	listener, err := net.Listen("tcp", a.tokens.Listener.Addr().String())
	if err != nil {
		a.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(a.token), ReadHeaderTimeout: time.Minute}
	a.tokens = &httptest.Server{Listener: listener, Config: server}
	a.tokens.Start()
}

func (a *Authority) jwks(w http.ResponseWriter, _ *http.Request) {
	encode := base64.RawURLEncoding.EncodeToString
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{"kty": "RSA", "kid": "1", "use": "sig",
		"alg": "RS256", "n": encode(a.key.N.Bytes()), "e": encode(big.NewInt(int64(a.key.E)).Bytes())}}})
}

// token answers as RFC 6749, 4.4.3 and 5.2 have it.
func (a *Authority) token(w http.ResponseWriter, r *http.Request) {
	a.Asked.Add(1)
	w.Header().Set("Content-Type", "application/json")
	id, secret, _ := r.BasicAuth()
	if id != ClientID || strings.ReplaceAll(secret, "+", " ") != Secret {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error": "invalid_client", "error_description": "who are you?"}`))
		return
	}
	life := time.Duration(a.life.Load())
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": a.Token(time.Now().Add(life), Audience),
		"token_type": "Bearer", "expires_in": int(life.Seconds())})
}

// Token signs a token that ends at a time, for an audience.
func (a *Authority) Token(ends time.Time, audience string) string {
	a.t.Helper()
	text := part(map[string]any{"alg": "RS256", "kid": "1", "typ": "JWT"}) + "." +
		part(map[string]any{"iss": Issuer, "aud": audience, "sub": ClientID, "scope": "kafka",
			"iat": ends.Add(-time.Hour).Unix(), "exp": ends.Unix(), "jti": fmt.Sprint(a.Asked.Load())})
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, sum[:])
	if err != nil {
		a.t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func part(v any) string {
	text, _ := json.Marshal(v) //nolint:errchkjson // texts and numbers
	return base64.RawURLEncoding.EncodeToString(text)
}
