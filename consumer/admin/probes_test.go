package admin

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestProbesAnswerBeforePostgresIsReached(t *testing.T) {
	s := unstarted(t, nil)
	s.start()
	s.get("/livez")
	require.Contains(t, s.ask(503, http.MethodGet, "/readyz", "").at("reason"), "Postgres has not been reached")
	health := s.get("/healthz")
	require.Equal(t, "degraded", health.at("status"))
	require.Equal(t, []any{"postgres", "degraded"}, []any{health.at("checks.0.name"), health.at("checks.0.status")})
	require.Equal(t, "starting", s.get(prefix+"/status").at("state"))
	answer := s.ask(http.StatusServiceUnavailable, http.MethodGet, prefix+"/pauses", "")
	require.NotEmpty(t, answer.Header.Get("Retry-After"))
	s.refused(http.StatusServiceUnavailable, http.MethodPost, prefix+"/dead-letters/redrive", `{"all":true,"why":"x"}`)
}

func TestSlowRequestIsCutOff(t *testing.T) {
	s := unstarted(t, nil)
	s.server.patience = 50 * time.Millisecond
	s.start()
	for _, limit := range []time.Duration{s.server.http.ReadTimeout, s.server.http.WriteTimeout,
		s.server.http.IdleTimeout, headerTimeout} {
		require.Positive(t, limit)
	}
	c, err := net.Dial("tcp", s.server.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(readTimeout-5*time.Second)))
	_, err = fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	require.NoError(t, err)
	for {
		if _, err = bufio.NewReader(c).ReadByte(); err != nil {
			break
		}
	}
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url("/livez"), nil)
	require.NoError(t, err)
	r.Header.Set("X-Large", strings.Repeat("x", 2*maxHeader))
	response, err := s.client.Do(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
}

func TestStopEndsWhatIsOpenAndLeavesNothing(t *testing.T) {
	s := unstarted(t, nil)
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, s.server.Start(ctx))
	stop := s.service.Start(ctx)
	s.get("/livez")
	cancel()
	s.client.CloseIdleConnections()
	s.server.Stop()
	stop()
	goleak.VerifyNone(t, before)
	require.Error(t, s.unreached("/livez"))
}

func TestAddressThatIsTakenIsSaid(t *testing.T) {
	s := unstarted(t, nil)
	s.start()
	other := unstarted(t, func(o *stage) { o.cfg.Listen = s.server.Addr().String() })
	require.ErrorContains(t, other.server.Start(t.Context()), s.server.Addr().String())
}

func TestNewTokenIsTakenWhileTheProgramRuns(t *testing.T) {
	s := unstarted(t, withTokens)
	s.start()
	s.get(prefix+"/status", "Authorization", "Bearer "+writeToken)
	next := s.settings
	next.Access.WriteToken = "another-" + writeToken
	require.NoError(t, s.service.Apply(next))
	s.refused(http.StatusUnauthorized, http.MethodGet, prefix+"/status", "", "Authorization", "Bearer "+writeToken)
	s.get(prefix+"/status", "Authorization", "Bearer another-"+writeToken)
	next.Access.WriteToken = "short"
	require.ErrorContains(t, s.service.Apply(next), "less than 16 characters")
	s.get(prefix+"/status", "Authorization", "Bearer another-"+writeToken)
}

// Whoever has a server of its own has the API by its handler, as closed as with ours.
func TestTheAPIIsAHandlerForAnyServer(t *testing.T) {
	s := unstarted(t, nil)
	api, err := NewAPI(s.service)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", api)
	for peer, want := range map[string]int{"127.0.0.1:5": http.StatusOK, "10.0.0.1:5": http.StatusForbidden} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+prefix+"/status", nil)
		r.RemoteAddr = peer
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, peer)
	}
}

// Others in a program that has the API may use huma too, and find it as it is.
func TestHumaIsAsItWasForOthers(t *testing.T) {
	require.True(t, huma.DefaultArrayNullable)
	require.False(t, huma.ValidateStrictCasing)
	require.IsType(t, &huma.ErrorModel{}, huma.NewErrorWithContext(nil, http.StatusBadRequest, "x"))
	require.IsType(t, &huma.ErrorModel{}, huma.NewError(http.StatusBadRequest, "x"))
}
