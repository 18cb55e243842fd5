package admin

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
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

func TestReadinessFollowsTheProgramsLife(t *testing.T) {
	s := newStage(t, nil)
	ready := func(status int, state consumer.State) {
		t.Helper()
		s.tell(consumer.Status{State: state, Since: time.Now(), KafkaSince: time.Now()})
		s.server.look(time.Now())
		s.ask(status, http.MethodGet, "/readyz", "")
	}
	// its own looks find that
	s.tell(consumer.Status{State: consumer.Starting, Since: time.Now(), KafkaSince: time.Now()})
	s.server.look(time.Now())
	s.server.liveness.joined.Store(false)
	ready(503, consumer.Starting)
	ready(200, consumer.Joining)
	ready(200, consumer.Consuming)
	ready(200, consumer.Draining) // for a rebalance
	ready(200, consumer.Starting) // a topic is gone: it has been ready, and waits
	ready(503, consumer.Ended)
	ready(200, consumer.Consuming)
	s.cancel()
	require.Contains(t, s.ask(503, http.MethodGet, "/readyz", "").at("reason"), "ending")
	s.get("/livez")
}

func TestAnOutageDegradesAndRestartsNothing(t *testing.T) {
	s := newStage(t, nil)
	require.Equal(t, "ok", s.get("/healthz").at("status"), "%s", s.get("/healthz").body)
	pool, err := pgxpool.New(t.Context(), nowhere)
	require.NoError(t, err)
	defer pool.Close()
	s.server.cfg.Pool = pool
	s.server.health.until = time.Time{}
	health := s.get("/healthz")
	require.Equal(t, "degraded", health.at("status"))
	require.Contains(t, health.at("checks.0.reason"), "none is lost")
	s.get("/readyz")
	s.get("/livez")
}

func TestLivenessFailsWhereTheProgramStandsStill(t *testing.T) {
	s := newStage(t, nil)
	s.get("/livez")
	entered, held := make(chan struct{}, 100), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	totals := func() handlers.Totals { return handlers.Totals{} }
	s.server.Attach(Parts{Inbox: operate.Of(s.store), Totals: totals, Window: window(totals),
		Status: func() consumer.Status { entered <- struct{}{}; <-held; return consumer.Status{} }})
	<-entered // the loop waits for a consumer that does not answer
	s.server.liveness.beat(time.Now().Add(-silenceLimit - time.Second))
	require.Contains(t, s.ask(503, http.MethodGet, "/livez", "").at("reason"), "stood still")
	release()
	require.Eventually(t, func() bool { return s.server.liveness.silentFor(time.Now()) < silenceLimit },
		time.Minute, time.Millisecond)
	s.get("/livez")
}

func TestUnhealthyIs503(t *testing.T) {
	s := newStage(t, nil)
	s.totals.Store(&handlers.Totals{Handled: 91, Failed: 10})
	s.ask(503, http.MethodGet, "/healthz", "")
	s.add("order-1", operate.StatusFailed, dedup.Message{})
	s.server.health.until = time.Time{}
	require.Contains(t, s.ask(503, http.MethodGet, "/healthz", "").at("checks.3.reason"), "1 are parked")
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
	s.get("/livez")
	cancel()
	s.client.CloseIdleConnections()
	s.server.Stop()
	goleak.VerifyNone(t, before)
	require.Error(t, s.unreached("/livez"))
}

func TestAddressThatIsTakenIsSaid(t *testing.T) {
	s := unstarted(t, nil)
	s.start()
	other := unstarted(t, func(c *config.Config) { c.HTTP.Listen = s.server.Addr().String() })
	require.ErrorContains(t, other.server.Start(t.Context()), "http.listen")
}

func TestNewTokenIsTakenWhileTheProgramRuns(t *testing.T) {
	s := unstarted(t, nil)
	path := filepath.Join(t.TempDir(), "firstseen.yaml")
	write := func(token string) {
		require.NoError(t, os.WriteFile(path,
			[]byte(fmt.Sprintf(`{postgres: {dsn: %q}, kafka: {brokers: [x:1]}, group: billing,
			topics: [{name: orders, handlers: [{name: book, function: f}]}], http: {listen: "127.0.0.1:0", write_token: %q}}`, nowhere, token)), 0o600))
	}
	write(writeToken)
	live, err := config.Follow(path, nil)
	require.NoError(t, err)
	s.make(live)
	s.start()
	hup := make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	var follow sync.WaitGroup
	follow.Go(func() { live.Run(ctx, s.server.log, hup) })
	defer func() { cancel(); follow.Wait() }()
	s.get(prefix+"/status", "Authorization", "Bearer "+writeToken)
	write("another-" + writeToken)
	hup <- syscall.SIGHUP
	require.Eventually(t, func() bool { return live.Load().HTTP.WriteToken != writeToken },
		time.Minute, time.Millisecond)
	s.refused(http.StatusUnauthorized, http.MethodGet, prefix+"/status", "", "Authorization", "Bearer "+writeToken)
	s.get(prefix+"/status", "Authorization", "Bearer another-"+writeToken)
}

func TestHealthAsksPostgresSeldomButSoonAfterAnOutage(t *testing.T) {
	for took, rest := range map[time.Duration]time.Duration{0: healthAge, 100 * time.Millisecond: healthAge,
		250 * time.Millisecond: 5 * time.Second, healthTimeout: 10 * time.Second} {
		require.Equal(t, rest, restAfter(took), "after %s", took)
	}
}
