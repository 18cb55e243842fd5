package idempotency_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// overHTTP2 is the same by TLS and HTTP/2.
func (s *service) overHTTP2() *service {
	server := httptest.NewUnstartedServer(s.server.Config.Handler)
	server.Config.ErrorLog = s.server.Config.ErrorLog
	server.EnableHTTP2 = true
	server.StartTLS()
	s.t.Cleanup(server.Close)
	return &service{s.t, server}
}

// protocols are a service by each of them.
func (s *service) protocols() map[string]*service {
	all := map[string]*service{"HTTP/1.1": s, "HTTP/2.0": s.overHTTP2()}
	for _, one := range all {
		one.server.Client().Timeout = time.Minute
		one.server.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	}
	return all
}

// heard is an answer with how it came.
type heard struct {
	answer
	protocol string
	trailer  http.Header
}

// ask sends an order by a client that waits until its body is asked for, where it says so.
func (s *service) ask(ctx context.Context, key string, body io.Reader, headers ...string) heard {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.server.URL+"/orders", body)
	require.NoError(s.t, err)
	if counted, ok := body.(*unread); ok {
		r.ContentLength = int64(counted.Len())
	}
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set("Idempotency-Key", key)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	response, err := s.server.Client().Do(r)
	require.NoError(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return heard{answer{response.StatusCode, response.Header, string(text)}, response.Proto, response.Trailer}
}

func TestAnswersAreTheSameByHTTP2(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.MaxRequestBytes = 100
		services := serve(s.create).protocols()
		first := services["HTTP/2.0"].ask(t.Context(), "k", strings.NewReader(`{"n":1}`))
		require.Equal(t, []any{http.StatusCreated, `{"id":1}`, "/orders/1"},
			[]any{first.status, first.body, first.header.Get("Location")})
		for name, c := range map[string]struct {
			key, body string
			headers   []string
			status    int
		}{
			"again":        {"k", `{"n":1.0}`, nil, 201},
			"another":      {"k", `{"n":2}`, nil, 409},
			"no key":       {`"k`, `{"n":1}`, nil, 400},
			"nobody":       {"k", `{"n":1}`, []string{"Authorization", "Bearer wrong"}, 401},
			"too large":    {"k", `"` + strings.Repeat("x", 100) + `"`, nil, 413},
			"key repeated": {"k", `{"n":1}`, []string{"Idempotency-Key", "k"}, 400},
		} {
			c.headers = append(c.headers, "X-Request-Id", "r")
			answers := map[string]answer{}
			for protocol, at := range services {
				got := at.ask(t.Context(), c.key, strings.NewReader(c.body), c.headers...)
				require.Equal(t, protocol, got.protocol)
				got.header.Del("Date")
				got.header.Del("Connection") // HTTP/2 has none
				answers[protocol] = got.answer
			}
			require.Equal(t, c.status, answers["HTTP/2.0"].status, name)
			require.Equal(t, answers["HTTP/1.1"], answers["HTTP/2.0"], name)
		}
		require.Equal(t, []int{1, 1}, []int{s.effects(), s.answers()})
	})
}

// A handler that sends what it has so far, or means to, is heard when all is committed; trailers are not sent at all.
func TestNothingLeavesBeforeTheCommitByWhateverProtocol(t *testing.T) {
	s := newStage(t)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			reached, sooner := make(chan struct{}), false
			reach := sync.OnceFunc(func() { close(reached) })
			orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				w.Header().Set(http.TrailerPrefix+"X-Before", "1")
				w.WriteHeader(http.StatusEarlyHints)
				s.create(w, r)
				_, err := w.Write(make([]byte, 100_000))
				require.NoError(t, err)
				w.(http.Flusher).Flush()
				require.NoError(t, http.NewResponseController(w).Flush())
				w.Header().Set("X-Sum", "1")
				w.Header().Set(http.TrailerPrefix+"X-After", "1")
				select {
				case <-reached:
					sooner = true
				case <-time.After(200 * time.Millisecond):
				}
			}).protocols()[protocol]
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotFirstResponseByte: reach,
				Got1xxResponse: func(int, textproto.MIMEHeader) error { reach(); return nil }})
			before := s.effects()
			for range 2 {
				got := orders.ask(ctx, protocol, strings.NewReader(`{}`))
				require.Equal(t, []any{protocol, http.StatusCreated, before + 1}, []any{got.protocol, got.status, s.effects()})
				require.Empty(t, got.trailer)
				require.Empty(t, got.header.Get("X-Sum"))
			}
			require.False(t, sooner)
		})
	}
}

// unread is a body that knows whether it was read.
type unread struct {
	*bytes.Reader
	read atomic.Bool
}

func (b *unread) Read(p []byte) (int, error) {
	b.read.Store(true)
	return b.Reader.Read(p)
}

// Who asks before he sends a body (RFC 9110, section 10.1.1) need not send one that is refused.
func TestRequestThatIsRefusedIsNotAskedForItsBody(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.MaxRequestBytes, s.cfg.Concurrency = 100, 1
		s.before = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Limit") == "over" {
					http.Error(w, "too many", http.StatusTooManyRequests)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
		entered, leave := make(chan struct{}), make(chan struct{})
		services := serve(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Slow") != "" {
				entered <- struct{}{}
				<-leave
			}
			s.create(w, r)
		}).protocols()
		for protocol, orders := range services {
			ask := func(size int, headers ...string) (status int, read bool) {
				body := &unread{Reader: bytes.NewReader(bytes.Repeat([]byte("7"), size))}
				got := orders.ask(t.Context(), protocol, body, append(headers, "Expect", "100-continue")...)
				return got.status, body.read.Load()
			}
			refused := func(status, size int, headers ...string) {
				got, read := ask(size, headers...)
				require.Equal(t, []any{status, false}, []any{got, read}, protocol)
			}
			refused(http.StatusRequestEntityTooLarge, 101)
			refused(http.StatusUnauthorized, 1, "Authorization", "Bearer wrong")
			refused(http.StatusTooManyRequests, 1, "X-Limit", "over")
			first := make(chan answer, 1)
			go func() {
				got, _ := services["HTTP/1.1"].try("slow "+protocol, "/orders", `{}`, "X-Slow", "1")
				first <- got
			}()
			<-entered
			refused(http.StatusServiceUnavailable, 1)
			leave <- struct{}{}
			require.Equal(t, http.StatusCreated, (<-first).status)
			require.Eventually(t, func() bool {
				status, read := ask(100)
				return status == http.StatusCreated && read
			}, 3*time.Minute, 10*time.Millisecond)
		}
	})
}

// By HTTP/2 requests share a connection, and one that stalls or is given up ends alone.
func TestStreamThatStallsOrIsGivenUpEndsAloneByHTTP2(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.ReadTime = 300 * time.Millisecond
		impatient := serve(s.create).server.Config.Handler
		s.cfg.ReadTime, s.cfg.Wait = 0, 20*time.Second
		s.before = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Stalls") != "" {
					impatient.ServeHTTP(w, r)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
		entered, leave := make(chan struct{}), make(chan struct{})
		orders := serve(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Slow") != "" {
				entered <- struct{}{}
				<-leave
			}
			require.NoError(t, r.Context().Err(), "the work goes on")
			s.create(w, r)
		}).overHTTP2()
		var conns []net.Conn
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { conns = append(conns, info.Conn) }})
		stalled, never := io.Pipe()
		defer never.Close()
		require.Equal(t, http.StatusRequestTimeout, orders.ask(ctx, "stalled", stalled, "X-Stalls", "1").status)
		givenUp, giveUp := context.WithCancel(ctx)
		r, err := http.NewRequestWithContext(givenUp, http.MethodPost, orders.server.URL+"/orders", strings.NewReader(`{}`))
		require.NoError(t, err)
		r.Header = http.Header{"Content-Type": {jsonType}, "Idempotency-Key": {"k"}, "X-Slow": {"1"}}
		gone := make(chan error)
		go func() {
			_, err := orders.server.Client().Do(r) //nolint:bodyclose // there is none
			gone <- err
		}()
		<-entered
		giveUp()
		require.ErrorIs(t, <-gone, context.Canceled)
		close(leave)
		got := orders.ask(ctx, "k", strings.NewReader(`{}`))
		require.Equal(t, []any{http.StatusCreated, true, 1}, []any{got.status, got.replayed(), s.effects()})
		require.Len(t, conns, 3)
		require.Equal(t, []net.Conn{conns[0], conns[0]}, conns[1:])
	})
}
