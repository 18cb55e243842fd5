package handlers_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // of the published test vector
	secretB = "whsec_YW5vdGhlci1zZWNyZXQtb2YtdGhpcnR5LXR3by1ieXQ="
)

// received is one call as the server saw it.
type received struct {
	header http.Header
	body   []byte
	path   string
}

// answering is a server that notes each call, and answers as answer does.
func answering(t *testing.T, answer http.HandlerFunc) (url string, calls <-chan received) {
	t.Helper()
	seen := make(chan received, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- received{r.Header, body, r.RequestURI}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, seen
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func webhook(t *testing.T, cfg handlers.WebhookConfig) *handlers.Webhook {
	t.Helper()
	cfg.AllowPrivate = true
	w, err := handlers.NewWebhook(cfg)
	require.NoError(t, err)
	t.Cleanup(w.CloseIdleConnections)
	return w
}

func message() dedup.Message {
	return dedup.Message{ID: uuid.MustParse("0198f000-0000-7000-8000-000000000001"), Topic: "orders", Partition: 3,
		Offset: 42,
		Value:  []byte(`{"test": 2432232314}`)}
}

func TestWebhookSendsTheValueAndSaysWhichMessageItIs(t *testing.T) {
	url, calls := answering(t, status(http.StatusAccepted))
	w := webhook(t, handlers.WebhookConfig{URL: url + "/in?a=b",
		Headers: map[string]string{"authorization": "Bearer abc"}})
	m := message()
	m.Tenant, m.RawID = "a/ü", "order 7\n"
	m.Headers = []dedup.Header{{Key: "content-type", Value: []byte("x\r\ny")},
		{Key: "Content-Type", Value: []byte("application/avro")}}
	require.NoError(t, w.Deliver(t.Context(), m))
	got := <-calls
	require.Equal(t, "/in?a=b", got.path)
	require.Equal(t, string(m.Value), string(got.body))
	for name, want := range map[string]string{
		"Content-Type": "application/avro", "Idempotency-Key": m.ID.String(), "Webhook-Id": m.ID.String(),
		"Webhook-Signature": "",
		"X-Firstseen-Topic": "orders", "X-Firstseen-Partition": "3", "X-Firstseen-Offset": "42",
		"X-Firstseen-Tenant": "a%2F%C3%BC",
		"X-Firstseen-Raw-Id": "order%207%0A", "X-Firstseen-Null": "", "Authorization": "Bearer abc",
		"User-Agent": "firstseen",
	} {
		require.Equal(t, want, got.header.Get(name), name)
	}
}

func TestWebhookContentTypeAndNullValues(t *testing.T) {
	url, calls := answering(t, status(http.StatusOK))
	w := webhook(t, handlers.WebhookConfig{URL: url})
	for _, c := range []struct {
		value             []byte
		contentType, null string
	}{
		{[]byte(`[1]`), "application/json", ""}, {[]byte("null"), "application/json", ""},
		{[]byte{0, 1}, "application/octet-stream", ""},
		{[]byte{}, "application/octet-stream", ""}, {nil, "application/octet-stream", "true"},
	} {
		m := message()
		m.Value = c.value
		require.NoError(t, w.Deliver(t.Context(), m))
		got := <-calls
		require.Equal(t, c.contentType, got.header.Get("Content-Type"))
		require.Equal(t, c.null, got.header.Get("X-Firstseen-Null"))
		require.True(t, bytes.Equal(c.value, got.body))
		require.Empty(t, got.header.Get("X-Firstseen-Tenant"))
	}
}

// verify is a receiver's side of Standard Webhooks, written from its text.
func verify(t *testing.T, secret string, h http.Header, body []byte) bool {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	require.NoError(t, err)
	seconds, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), time.Unix(seconds, 0), time.Minute)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	for _, part := range strings.Split(h.Get("webhook-signature"), " ") {
		version, signature, _ := strings.Cut(part, ",")
		if got, err := base64.StdEncoding.DecodeString(signature); err == nil && version == "v1" &&
			hmac.Equal(got, mac.Sum(nil)) {
			return true
		}
	}
	return false
}

func TestWebhookSignsForEachSecret(t *testing.T) {
	url, calls := answering(t, status(http.StatusOK))
	w := webhook(t, handlers.WebhookConfig{URL: url, Secrets: []string{secretA, secretB}})
	require.NoError(t, w.Deliver(t.Context(), message()))
	got := <-calls
	require.True(t, verify(t, secretA, got.header, got.body))
	require.True(t, verify(t, secretB, got.header, got.body))
	require.False(t, verify(t, secretA, got.header, append(got.body, ' ')))
}

func TestWebhookAnswers(t *testing.T) {
	date := time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		code       int
		retryAfter string
		want       string // done, retry, unavailable or permanent
		wait       time.Duration
	}{
		{200, "", "done", 0}, {204, "9", "done", 0}, {299, "", "done", 0},
		{301, "", "permanent", 0}, {302, "", "permanent", 0}, {304, "", "permanent", 0}, {307, "5", "permanent", 0},
		{400, "", "permanent", 0}, {401, "", "permanent", 0}, {404, "9", "permanent", 0}, {410, "", "permanent", 0},
		{422, "", "permanent", 0},
		{408, "", "retry", 0}, {409, "7", "retry", 7 * time.Second}, {425, "", "retry", 0},
		{429, "", "unavailable", 0}, {429, "30", "unavailable", 30 * time.Second},
		{500, "", "retry", 0}, {502, "soon", "retry", 0}, {503, date, "unavailable", 90 * time.Second},
		{503, "-1", "retry", 0}, {504, "9", "retry", 9 * time.Second},
		{599, "99999999999", "retry", time.Hour}, {500, "Thu, 01 Jan 1970 00:00:00 GMT", "retry", 0},
	} {
		t.Run(fmt.Sprint(c.code, " ", c.retryAfter), func(t *testing.T) {
			url, calls := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.Header().Set("Retry-After", c.retryAfter)
				w.WriteHeader(c.code)
			})
			err := webhook(t, handlers.WebhookConfig{URL: url}).Deliver(t.Context(), message())
			require.Len(t, calls, 1, "a redirect is not followed")
			got, wait := handlers.Verdict(err)
			require.Equal(t, c.want, got, err)
			require.InDelta(t, c.wait.Seconds(), wait.Seconds(), 2)
			if err == nil {
				return
			}
			var answer *handlers.StatusError
			require.ErrorAs(t, err, &answer)
			require.Equal(t, c.code, answer.Code)
			require.Equal(t, c.code/100 == 3, strings.Contains(err.Error(), "redirects are not followed"))
		})
	}
}

func TestWebhookErrorsShowTheStartOfTheAnswerAndNoSecret(t *testing.T) {
	url, _ := answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "no\x00\n\xff %s %s %s %s", r.Header.Get("Authorization"),
			strings.TrimPrefix(secretA, "whsec_"), r.URL.RequestURI(), secretB)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	})
	w := webhook(t, handlers.WebhookConfig{URL: url + "/services/T0KEN", Secrets: []string{secretA, secretB},
		Headers: map[string]string{"Authorization": "Bearer hunter2"}})
	err := w.Deliver(t.Context(), message())
	text := err.Error()
	require.Contains(t, text, "answered 500 Internal Server Error: no  \uFFFD ***")
	require.Less(t, len(text), 400)
	for _, secret := range []string{"hunter2", "T0KEN", secretA[6:], secretB[6:]} {
		require.NotContains(t, text, secret)
	}
	lost := webhook(t, handlers.WebhookConfig{URL: "http://127.0.0.1:1/T0KEN?key=T0KEN"}).
		Deliver(t.Context(), message())
	require.ErrorContains(t, lost, "post to 127.0.0.1:1: ")
	require.NotContains(t, lost.Error(), "T0KEN")
}

func TestWebhookTimesOutAndReadsNoEndlessAnswer(t *testing.T) {
	hang := make(chan struct{})
	url, _ := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			w.WriteHeader(http.StatusOK)
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
					return
				}
			}
		}
		<-hang
	})
	defer close(hang)
	err := webhook(t, handlers.WebhookConfig{URL: url, Timeout: 50 * time.Millisecond}).Deliver(t.Context(), message())
	require.ErrorContains(t, err, "no answer within 50ms")
	kind, _ := handlers.Verdict(err)
	require.Equal(t, "retry", kind)
	began := time.Now()
	require.NoError(t, webhook(t, handlers.WebhookConfig{URL: url + "/endless",
		Timeout: 2 * time.Minute}).Deliver(t.Context(), message()))
	require.Less(t, time.Since(began), time.Minute, "it does not read on until its timeout")
}

func TestWebhookPostsBigValuesWhole(t *testing.T) {
	url, calls := answering(t, status(http.StatusOK))
	m := message()
	m.Value = bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // 8 MiB
	require.NoError(t, webhook(t, handlers.WebhookConfig{URL: url}).Deliver(t.Context(), m))
	require.True(t, bytes.Equal(m.Value, (<-calls).body))
}

func TestWebhookRefusesPrivateAddressesWhateverNameLedThere(t *testing.T) {
	url, calls := answering(t, status(http.StatusOK))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	// a name: seen at the dial only
	w, err := handlers.NewWebhook(handlers.WebhookConfig{URL: "http://localhost:" + port})
	require.NoError(t, err)
	require.ErrorContains(t, w.Deliver(t.Context(), message()), "is refused")
	require.Empty(t, calls)
	require.NoError(t,
		webhook(t, handlers.WebhookConfig{URL: "http://localhost:" + port}).Deliver(t.Context(), message()))
	_, err = handlers.NewWebhook(handlers.WebhookConfig{URL: url})
	require.EqualError(t, err, "url: is an address that is refused; allow_private permits private ones")
}

func TestWebhookTakesAProxyOnlyWhereItIsTold(t *testing.T) {
	proxy, calls := answering(t, status(http.StatusOK))
	t.Setenv("HTTP_PROXY", proxy)
	url, direct := answering(t, status(http.StatusOK))
	require.NoError(t, webhook(t, handlers.WebhookConfig{URL: url}).Deliver(t.Context(), message()))
	require.Len(t, direct, 1)
	require.NoError(t, webhook(t, handlers.WebhookConfig{URL: "http://hooks.invalid/in",
		Proxy: proxy}).Deliver(t.Context(), message()))
	require.Equal(t, "http://hooks.invalid/in", (<-calls).path)
}

func TestWebhookSpeaksNoTLSBelow12(t *testing.T) {
	server := httptest.NewUnstartedServer(status(http.StatusOK))
	server.TLS = handlers.OldTLS()
	server.Config.ErrorLog = handlers.NoLog()
	server.StartTLS()
	defer server.Close()
	err := webhook(t, handlers.WebhookConfig{URL: server.URL, TLS: handlers.OldTLS()}).Deliver(t.Context(), message())
	require.ErrorContains(t, err, "no supported versions")
}

func TestWebhookConfigFaultsAreReportedAtOnce(t *testing.T) {
	_, err := handlers.NewWebhook(handlers.WebhookConfig{
		URL:     "ftp://u:hunter2@10.0.0.1:99999/#x",
		Secrets: []string{secretA, "hunter2", "whsec_aHVudGVyMg=="}, Timeout: -1,
		Connections: -1, Proxy: "hunter2",
		Headers: map[string]string{"Webhook-Id": "1", "content-type": "a", "a b": "c", "X": "hunter2\n",
			"X-Firstseen-Topic": ""},
	})
	require.EqualError(t, err, strings.Join([]string{
		"url: must begin with https:// or http:// and a host", "url: holds credentials; give them as a header",
		"url: has a fragment, which is never sent", "url: must have a port between 1 and 65535",
		"secrets: number 2 is not whsec_ and base64", "secrets: number 3 has 7 bytes; Standard Webhooks has 24 to 64",
		"headers: Webhook-Id is not yours to set", "headers: the value of X has a character that can't be sent",
		"headers: X-Firstseen-Topic is not yours to set", `headers: "a b" is no name of a header`,
		"headers: Content-Type is not yours to set",
		"timeout: can't be negative", "connections: can't be negative",
		"proxy: is no URL of a proxy; write http://HOST:PORT",
	}, "\n"))
	for _, url := range []string{"", "http://", "://x", "https:x", "http://[::1"} {
		_, err := handlers.NewWebhook(handlers.WebhookConfig{URL: url})
		require.ErrorContains(t, err, "url: ", url)
	}
}

func TestWebhookEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url, _ := answering(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	require.ErrorIs(t, webhook(t, handlers.WebhookConfig{URL: url}).Deliver(ctx, message()), context.Canceled)
	require.True(t, errors.Is(ctx.Err(), context.Canceled))
}
