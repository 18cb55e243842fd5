package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers"
)

// newSilentStage is a stage whose consumers reach Postgres through a proxy that can fall silent.
func newSilentStage(t *testing.T, partitions int) (*stage, *deduptest.Proxy) {
	t.Helper()
	s := newStage(t, consumertest.NewFake(t).Addr, partitions)
	proxy := deduptest.NewProxy(t, s.dsn)
	s.dsn, s.silence = proxy.DSN, 2*time.Second
	return s, proxy
}

func (s *stage) requireNoAttempt() {
	s.t.Helper()
	require.Zero(s.t, s.count(`select (select count(*) from firstseen.inbox where attempts > 0)
		+ (select count(*) from firstseen.dead_letters) + (select count(*) from firstseen.parked)`), "attempts")
}

// heldFor waits until a partition is held by a code.
func (s *stage) heldFor(code string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		for _, p := range s.latest.Status().Partitions {
			if p.Held == code {
				return true
			}
		}
		return false
	}, 3*time.Minute, 20*time.Millisecond, "no partition is held for %s", code)
}

func TestOpenConnectionsThatFallSilentAreGivenUp(t *testing.T) {
	t.Parallel()
	s, proxy := newSilentStage(t, 3)
	rs := s.records(600, 30)
	consumertest.Produce(t, s.addr, rs[:300]...)
	stop := s.start(s.consumer(nil))
	s.caughtUp()
	for range 3 {
		proxy.SilenceOpen()
		consumertest.Produce(t, s.addr, rs[300:400]...)
		rs = append(rs[:300:300], rs[400:]...)
		s.caughtUp()
	}
	stop()
	proxy.Close() // or closing the pool would wait for answers
	s.requireOnce(600)
	s.requireNoAttempt()
}

func TestConnectionsThatFallSilentWithinABatchSpendNoAttempt(t *testing.T) {
	t.Parallel()
	s, proxy := newSilentStage(t, 2)
	consumertest.Produce(t, s.addr, s.records(200, 20)...)
	opened := make(chan struct{}, 1000)
	stop := s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.MaxBatch = 40
		hc.HandlerTimeout = 3 * time.Second // its statements wait for an answer as long as this
		hc.Observe = func(at handlers.Stage) {
			if at == handlers.StageAccepted {
				opened <- struct{}{}
			}
		}
	}))
	<-opened
	proxy.SilenceOpen() // before the handlers' statements, or before the commit
	<-opened
	proxy.SilenceOpen()
	s.settled()
	stop()
	proxy.Close() // or closing the pool would wait for answers
	s.requireOnce(200)
	s.requireNoAttempt()
}

func TestStartThatFailsAfterThePositionWasAcquiredMakesNoMessageSuspicious(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.exec(`create sequence starts`)
	s.exec(`create function fails() returns trigger language plpgsql as $$ begin
		if new.epoch > 0 and nextval('public.starts') <= 3 then raise exception 'told to' using errcode = '57P01'; end if;
		return new; end $$`)
	s.exec(`create trigger fails before update of next_offset on firstseen.positions for each row execute function fails()`)
	consumertest.Produce(t, s.addr, s.records(50, 10)...)
	handled := 0
	stop := s.start(s.consumerOf(handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx,
		ms []dedup.Message) error {
		handled = max(handled, len(ms))
		return effect("effect").HandleBatch(ctx, tx, ms)
	}), nil))
	s.settled()
	stop()
	s.requireOnce(50)
	require.Greater(t, handled, 1, "messages that were handled together")
	require.Greater(t, s.count(`select last_value from starts`), 3, "starts")
}

func TestSilentPostgresIsAHoldThatEndsByItself(t *testing.T) {
	t.Parallel()
	s, proxy := newSilentStage(t, 2)
	rs := s.records(100, 10)
	consumertest.Produce(t, s.addr, rs[:50]...)
	stop := s.start(s.consumer(nil))
	s.caughtUp()
	proxy.Silence()
	consumertest.Produce(t, s.addr, rs[50:]...)
	s.heldFor(consumer.HeldPostgres)
	proxy.Speak()
	s.caughtUp()
	stop()
	proxy.Close() // or closing the pool would wait for answers
	s.requireOnce(100)
	s.requireNoAttempt()
}

func TestConsumerEndsInTimeWhilePostgresIsSilent(t *testing.T) {
	t.Parallel()
	s, proxy := newSilentStage(t, 2)
	s.silence = 0 // the default: longer than the drain
	waiting := make(chan struct{}, 100)
	stop := s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.DrainTimeout = 2 * time.Second
		require.NoError(t, hc.Handlers.Register("effect", handlers.Each(handlers.HandlerFunc(
			func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
				proxy.Silence()
				waiting <- struct{}{}
				_, err := tx.Exec(ctx, `select 1`)
				return err
			})), s.topic))
	}))
	consumertest.Produce(t, s.addr, s.records(10, 10)...)
	<-waiting
	began := time.Now()
	stop()
	took := time.Since(began)
	proxy.Close() // or closing the pool would wait for answers
	require.Less(t, took, time.Minute, "drain, what is cut off after it, and leaving the group")
}

func TestReadOnlyPostgresIsAHoldOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	consumertest.Produce(t, s.addr, s.records(50, 10)...)
	set := func(value string) {
		s.exec(`do $$ begin execute format('alter database %I set default_transaction_read_only = ` + value +
			`', current_database()); end $$`)
		s.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	}
	c := s.consumer(nil)
	set("on")
	stop := s.start(c)
	s.heldFor(consumer.HeldReadOnly)
	require.Zero(t, s.count(`select count(*) from effects`))
	set("off")
	s.caughtUp()
	stop()
	s.requireOnce(50)
	s.requireNoAttempt()
}

func TestFailoverIsFollowedWhileTheAddressStillLeadsToTheDemotedServer(t *testing.T) {
	t.Parallel()
	first := deduptest.StartServer(t, pgserver.Config{})
	db := deduptest.Migrated(t, first.DSN("postgres"))
	second := deduptest.StartStandby(t, first)
	s := newStageOn(t, consumertest.NewFake(t).Addr, 2, db)
	proxy := deduptest.NewProxy(t, s.dsn)
	s.dsn = proxy.DSN
	rs := s.records(120, 10)
	consumertest.Produce(t, s.addr, rs[:40]...)
	stop := s.start(s.consumer(nil))
	s.caughtUp()

	require.NoError(t, first.Stop(pgserver.Fast)) // once the standby has everything
	s.pool = deduptest.OpenPool(t, second.DSN("postgres"), nil)
	s.exec(`select pg_promote()`)
	require.NoError(t, first.Follow(t.Context(), second))
	consumertest.Produce(t, s.addr, rs[40:]...)
	s.heldFor(consumer.HeldReadOnly)
	proxy.Lead(second.DSN("postgres"))
	s.caughtUp()
	stop()
	s.requireOnce(120)
	s.requireNoAttempt()
}
