package ingress_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ask posts to an ingress by a server's own client, which waits until its body is asked for, where it says so.
func ask(t *testing.T, server *httptest.Server, key string, body io.Reader, headers ...string) (protocol string, got answer) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/topics/orders/messages", body)
	require.NoError(t, err)
	if counted, ok := body.(*unread); ok {
		r.ContentLength = int64(counted.Len())
	}
	for i, pairs := 0, append(headers, "Content-Type", "application/json", "Idempotency-Key", key); i < len(pairs); i += 2 {
		r.Header.Add(pairs[i], pairs[i+1])
	}
	response, err := server.Client().Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	got = answer{response.StatusCode, response.Header, string(text)}
	require.NoError(t, asDocumented(r, got))
	return response.Proto, got
}

// byProtocol serves a handler by HTTP/1.1, and by TLS and HTTP/2.
func byProtocol(t *testing.T, h http.Handler) map[string]*httptest.Server {
	t.Helper()
	first, second := httptest.NewServer(h), httptest.NewUnstartedServer(h)
	t.Cleanup(first.Close)
	second.EnableHTTP2 = true
	second.StartTLS()
	t.Cleanup(second.Close)
	for _, server := range []*httptest.Server{first, second} {
		server.Client().Timeout = time.Minute
		server.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	}
	return map[string]*httptest.Server{"HTTP/1.1": first, "HTTP/2.0": second}
}

func TestAnswersAreTheSameByHTTP2(t *testing.T) {
	s := newStage(t)
	s.cfg.MaxBytes = 1000
	servers := byProtocol(t, s.serve().handler)
	_, made := ask(t, servers["HTTP/2.0"], "k1", strings.NewReader(mail))
	require.Equal(t, http.StatusCreated, made.status, made.body)
	for name, c := range map[string]struct {
		key, body string
		headers   []string
		status    int
	}{
		"again":     {"k1", mail, nil, 200},
		"queued":    {"k1", mail, []string{"Prefer", "respond-async"}, 202},
		"no key":    {`"k1`, mail, nil, 400},
		"nobody":    {"k1", mail, []string{"Authorization", "Bearer wrong"}, 401},
		"no tenant": {"k1", mail, []string{"X-Tenant", "acme"}, 403},
		"too large": {"k1", `{"content":"` + strings.Repeat("x", 1000) + `"}`, nil, 413},
	} {
		c.headers = append(c.headers, "X-Request-Id", "r")
		answers := map[string]answer{}
		for protocol, server := range servers {
			by, got := ask(t, server, c.key, strings.NewReader(c.body), c.headers...)
			require.Equal(t, protocol, by)
			got.header.Del("Date")
			got.header.Del("Connection") // HTTP/2 has none
			answers[protocol] = got
		}
		require.Equal(t, c.status, answers["HTTP/2.0"].status, name)
		require.Equal(t, answers["HTTP/1.1"], answers["HTTP/2.0"], name)
	}
	s.left(1, 1, 1, 3, 1)
}

// unread is a body that knows whether it was read.
type unread struct {
	*strings.Reader
	read atomic.Bool
}

func (b *unread) Read(p []byte) (int, error) {
	b.read.Store(true)
	return b.Reader.Read(p)
}

// Who asks before he sends a body (RFC 9110, section 10.1.1) need not send one that is refused.
func TestRequestThatIsRefusedIsNotAskedForItsBody(t *testing.T) {
	s := newStage(t)
	s.cfg.MaxBytes, s.cfg.Concurrency, s.cfg.ReadTime = 1000, 1, time.Minute
	orders := s.serve()
	servers := byProtocol(t, orders.handler)
	post := func(protocol, body string, headers ...string) (status int, read bool) {
		b := &unread{Reader: strings.NewReader(body)}
		_, got := ask(t, servers[protocol], protocol, b, append(headers, "Expect", "100-continue")...)
		return got.status, b.read.Load()
	}
	refused := func(status int, body string, headers ...string) {
		t.Helper()
		for protocol := range servers {
			got, read := post(protocol, body, headers...)
			require.Equal(t, []any{status, false}, []any{got, read}, protocol)
		}
	}
	refused(http.StatusRequestEntityTooLarge, `{"content":"`+strings.Repeat("x", 1000)+`"}`)
	refused(http.StatusUnauthorized, mail, "Authorization", "Bearer wrong")
	refused(http.StatusForbidden, mail, "X-Tenant", "acme")
	var arriving [4]*io.PipeWriter // as many bodies as may be on their way at once
	for i := range arriving {
		var body *io.PipeReader
		body, arriving[i] = io.Pipe()
		go func() { _, _ = orders.try("", body, "Expect", "100-continue") }()
		_, err := arriving[i].Write([]byte("{")) // which is asked for
		require.NoError(t, err)
	}
	refused(http.StatusServiceUnavailable, mail)
	for _, body := range arriving {
		require.NoError(t, body.Close())
	}
	for protocol := range servers {
		require.Eventually(t, func() bool {
			status, read := post(protocol, mail)
			return status == http.StatusCreated && read
		}, waitFor, tick)
	}
}
