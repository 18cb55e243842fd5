package service

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/migrations/dial"
)

const nowhere = "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"

func TestReadinessFollowsTheProgramsLife(t *testing.T) {
	s := newStage(t)
	ready := func(status int, state consumer.State) {
		t.Helper()
		s.tell(state)
		s.look(time.Now())
		s.probe(status, "/readyz")
	}
	s.tell(consumer.Starting) // its own looks find that
	s.look(time.Now())
	s.liveness.joined.Store(false)
	ready(503, consumer.Starting)
	ready(200, consumer.Joining)
	ready(200, consumer.Consuming)
	ready(200, consumer.Draining) // for a rebalance
	ready(200, consumer.Starting) // a topic is gone: it has been ready, and waits
	ready(503, consumer.Ended)
	ready(200, consumer.Consuming)
	s.end()
	require.Contains(t, s.probe(503, "/readyz"), "ending")
	s.probe(200, "/livez")
}

func TestProbesAnswerBeforeThereAreParts(t *testing.T) {
	s := stageOn(t, deduptest.OpenPool(t, nowhere, nil))
	s.probe(200, "/livez")
	require.Contains(t, s.probe(503, "/readyz"), "Postgres has not been reached")
	health, checks := s.examine(200)
	require.Equal(t, degraded, health.Status)
	require.Equal(t, degraded, checks["postgres"].Status)
	require.Equal(t, "starting", s.Describe().State)
}

func TestAnOutageDegradesAndRestartsNothing(t *testing.T) {
	db := deduptest.New(t)
	proxy := deduptest.NewProxy(t, db.DSN)
	s := newStageThrough(t, db, deduptest.OpenPool(t, proxy.DSN, nil))
	health, _ := s.examine(200)
	require.Equal(t, healthy, health.Status)
	proxy.Close()
	s.anew()
	health, checks := s.examine(200)
	require.Equal(t, degraded, health.Status)
	require.Contains(t, checks["postgres"].Reason, "none is lost")
	s.probe(200, "/readyz")
	s.probe(200, "/livez")
}

// Packets are dropped: nothing is refused.
func TestASilentPostgresDegradesHealthWithinAMinute(t *testing.T) {
	db := deduptest.New(t)
	proxy := deduptest.NewProxy(t, db.DSN)
	s := newStageThrough(t, db, deduptest.OpenPool(t, proxy.DSN, func(c *pgxpool.Config) { dedup.PreparePool(c, 0) }))
	s.anew()
	health, _ := s.examine(200)
	require.Equal(t, healthy, health.Status)
	proxy.Silence()
	s.anew()
	_, checks := s.examine(200)
	require.Equal(t, degraded, checks["postgres"].Status)
	proxy.Close() // or closing the pool would wait for answers

	require.Less(t, healthPause+healthTimeout, time.Minute, "from the last good answer to the first bad one")
	require.Less(t, dial.Silence+healthPause, time.Minute, "until a partition whose transaction was open is held")
}

func TestLivenessFailsWhereTheProgramStandsStill(t *testing.T) {
	s := newStage(t)
	s.probe(200, "/livez")
	entered, held := make(chan struct{}, 100), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	parts := s.parts()
	parts.Status = func() consumer.Status { entered <- struct{}{}; <-held; return consumer.Status{} }
	s.Attach(parts)
	<-entered // the loop waits for a consumer that does not answer
	s.liveness.beat(time.Now().Add(-silenceLimit - time.Second))
	require.Contains(t, s.probe(503, "/livez"), "stood still")
	release()
	require.Eventually(t, func() bool { return s.liveness.silentFor(time.Now()) < silenceLimit }, waitFor, time.Millisecond)
	s.probe(200, "/livez")
}

func TestUnhealthyIs503(t *testing.T) {
	s := newStage(t)
	s.totals.Store(&handlers.Totals{Handled: 91, Failed: 10})
	s.examine(503)
	s.fail()
	s.anew()
	_, checks := s.examine(503)
	require.Contains(t, checks["backlog"].Reason, "1 are parked")
}

func TestSettingsTakeEffectAtOnceOrNotAtAll(t *testing.T) {
	s := newStage(t)
	s.fail()
	_, checks := s.examine(200)
	require.Equal(t, healthy, checks["backlog"].Status)
	next := s.Settings()
	next.Health.Degraded.Backlog, next.Health.Unhealthy.Backlog = 0, 0
	next.Health.Degraded.OldestAge = time.Nanosecond
	require.NoError(t, s.Apply(next))
	_, checks = s.examine(200)
	require.Equal(t, degraded, checks["oldest_age"].Status)
	next.Health, next.Access.ReadToken = Limits{}, "short"
	require.ErrorContains(t, s.Apply(next), "less than 16 characters")
	_, checks = s.examine(200)
	require.Equal(t, degraded, checks["oldest_age"].Status)
	require.NoError(t, s.Apply(Settings{}))
	require.Equal(t, DefaultLimits(), s.Settings().Health)
}

func TestEveryFaultOfAConfigIsReported(t *testing.T) {
	_, err := New(Config{Settings: Settings{Access: Access{ReadToken: "same-token-for-both", Writers: []string{"ann"},
		WriteToken: "same-token-for-both"}}})
	for _, fault := range []string{"group", "pool", "are the same", "writers have no effect"} {
		require.ErrorContains(t, err, fault)
	}
}

func TestHealthAsksPostgresSeldomButSoonAfterAnOutage(t *testing.T) {
	for took, rest := range map[time.Duration]time.Duration{0: healthAge, 100 * time.Millisecond: healthAge,
		250 * time.Millisecond: 5 * time.Second, healthTimeout: 10 * time.Second} {
		require.Equal(t, rest, restAfter(took), "after %s", took)
	}
}

func TestOtherPathsAndMethodsAreNoProbes(t *testing.T) {
	s := stageOn(t, deduptest.OpenPool(t, nowhere, nil))
	require.Equal(t, http.StatusNotFound, s.get("/metrics").status)
}
