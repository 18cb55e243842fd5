package consumer_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
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

// newStageOnOwnServer is a stage on a Postgres of its own, to stop and to set back.
func newStageOnOwnServer(t *testing.T, addr string, partitions int) (*stage, *pgserver.Server) {
	t.Helper()
	server := deduptest.StartServer(t, pgserver.Config{})
	return newStageOn(t, addr, partitions, deduptest.Migrated(t, server.DSN("postgres"))), server
}

// askEffects counts the effects, and says whether Postgres could be asked.
func (s *stage) askEffects() (n int, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := s.pool.QueryRow(ctx, `select count(*) from effects`).Scan(&n)
	return n, err == nil
}

func (s *stage) awaitEffects(n int, limit time.Duration) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		have, ok := s.askEffects()
		return ok && have >= n
	}, limit, 50*time.Millisecond, "%d effects", n)
}

func TestPostgresCrashesUnderLoadWithoutLossOrRepeat(t *testing.T) {
	t.Parallel()
	s, server := newStageOnOwnServer(t, consumertest.NewFake(t).Addr, 4)
	group := s.groupAdmin()
	drops := group.watchOffsets()
	load := s.load(20, 20*time.Millisecond)
	stop := s.start(s.consumer(nil))
	for _, outage := range []time.Duration{0, 500 * time.Millisecond, 0, 10 * time.Second} {
		s.awaitEffects(s.count(`select count(*) from effects`)+500, 20*time.Second)
		require.NoError(t, server.Stop(pgserver.Immediate))
		time.Sleep(outage) // as long as an outage lasts
		require.NoError(t, server.Start(t.Context()))
		s.pool.Reset()
		before := s.count(`select count(*) from effects`)
		back := time.Now()
		s.awaitEffects(before+1, 10*time.Second)
		t.Logf("after %s without Postgres: messages took effect again after %s",
			outage, time.Since(back).Round(time.Millisecond))
	}
	unique := load.unique()
	s.caughtUp()
	stop()
	s.requireOnce(unique)
	require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
	require.Empty(t, drops(), "the group's offsets moved back")
}

func TestPostgresGoneWithinABatchDeadLettersNothing(t *testing.T) {
	t.Parallel()
	s, server := newStageOnOwnServer(t, consumertest.NewFake(t).Addr, 1)
	rs := s.records(200, 10)
	for i := range rs {
		rs[i].Value = []byte("sleep:10ms")
	}
	consumertest.Produce(t, s.addr, rs...)
	var handled atomic.Int32
	stop := s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.MaxBatch = 50
		require.NoError(t, hc.Handlers.Register("effect", handlers.Each(handlers.HandlerFunc(func(ctx context.Context,
			tx pgx.Tx, m dedup.Message) error {
			defer handled.Add(1)
			return obey(ctx, tx, m)
		})), s.topic))
	}))
	s.eventually(func() bool { return handled.Load() >= 55 }, "the second batch is not being handled")
	require.NoError(t, server.Stop(pgserver.Immediate))
	require.NoError(t, server.Start(t.Context()))
	s.pool.Reset()
	s.caughtUp()
	stop()
	s.requireOnce(200)
	require.Equal(t, 200, s.count(`select count(*) from firstseen.inbox`))
	require.Zero(t, s.count(`select (select count(*) from firstseen.inbox where attempts > 0) + (select count(*) from firstseen.dead_letters) + (select count(*) from firstseen.parked)`))
}

func TestPostgresSetBackBehindTheGroupMissesNothing(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"the consumer runs on": false, "the consumer is stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, server := newStageOnOwnServer(t, consumertest.NewFake(t).Addr, 3)
			drops := s.groupAdmin().watchOffsets()
			rs := s.records(600, 30)
			heard := &heard{}
			start := func() func() {
				return s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
					cc.Logger, cc.MaxBatch = heard.logger(), 25
					// As slow as the watch, which would not see a short move otherwise.
					require.NoError(t, hc.Handlers.Register("effect", slowly(5*time.Millisecond), s.topic))
				}))
			}
			stop := start()
			consumertest.Produce(t, s.addr, rs[:300]...)
			s.caughtUp()
			backup := filepath.Join(t.TempDir(), "backup")
			require.NoError(t, server.Backup(t.Context(), backup))
			consumertest.Produce(t, s.addr, rs...)
			s.caughtUp()
			if stopped {
				stop()
			}
			require.NoError(t, server.Restore(t.Context(), backup))
			s.pool.Reset()
			require.Equal(t, 300, s.count(`select count(*) from effects`))
			if stopped {
				stop = start()
			}
			// Nothing new is produced: the consumer has to find out by itself.
			s.awaitEffects(600, 30*time.Second)
			consumertest.Produce(t, s.addr, rs...)
			s.caughtUp()
			stop()
			s.requireOnce(600)
			require.True(t, heard.has("is behind the committed offset"), "no word of it in the log")
			require.Empty(t, drops(), "the group's offsets moved back")
		})
	}
}

func TestPostgresSetBackToBeforeTheGroupTakesItOverWhereItStands(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"the consumer runs on": false, "the consumer is stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, server := newStageOnOwnServer(t, consumertest.NewFake(t).Addr, 3)
			backup := filepath.Join(t.TempDir(), "backup")
			require.NoError(t, server.Backup(t.Context(), backup))
			s.pool.Reset()
			heard := &heard{}
			start := func() func() {
				return s.start(s.consumer(
					func(cc *consumer.Config, _ *handlers.Config) { cc.Logger = heard.logger() }))
			}
			stop := start()
			consumertest.Produce(t, s.addr, s.records(300, 30)...)
			s.caughtUp()
			if stopped {
				stop()
			}
			require.NoError(t, server.Restore(t.Context(), backup))
			s.pool.Reset()
			if stopped {
				stop = start()
			}
			require.Eventually(t, func() bool { return heard.times("taking over the group where it stands") == 3 },
				3*time.Minute, 50*time.Millisecond,
				"not each partition was taken over, or not with a word in the log")
			consumertest.Produce(t, s.addr, s.records(100, 30)...)
			s.caughtUp()
			stop()
			s.requireOnce(100)
			require.Equal(t,
				100, s.count(`select count(*) from firstseen.inbox join firstseen.scopes using (scope_id)`),
				"messages in a scope that Postgres knows")
		})
	}
}
