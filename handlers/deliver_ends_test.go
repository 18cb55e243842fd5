package handlers

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestCallsThatAShutdownBreaksOffAreMadeByTheNextProcess(t *testing.T) {
	t.Parallel()
	b, first, second := newBench(t), &calls{}, &calls{}
	quickly := func(cfg *Config) { cfg.AbandonAfter = 20 * time.Millisecond }
	hanging := first.noting(func(ctx context.Context, _ dedup.Message) error { <-ctx.Done(); return ctx.Err() })
	p := b.processor(quickly, Registration{Name: "hook", Detached: hanging})
	stop := lanes(t, p)
	b.process(p, b.messages("a=1", "a=2", "b=1"))
	require.Eventually(t, func() bool { return first.count() == 2 }, 3*time.Minute, time.Millisecond)
	stop()
	require.Zero(t, b.count(`select sum(attempts) from firstseen.parked`), "it was no attempt")
	require.Equal(t, 2, b.count(`select count(*) from firstseen.lanes where due_at <= now() and claims = 0`),
		"free at once")
	p = b.processor(quickly, Registration{Name: "hook",
		Detached: second.noting(func(context.Context, dedup.Message) error { return nil })})
	lanes(t, p)
	b.delivered(3)
	require.Equal(t, []string{"1", "2"}, second.of("a"))
	require.Equal(t, 3, b.count(`select count(*) from firstseen.inbox where attempts = 0`))
}

func TestACallThatEndsInTimeAfterShutdownIsNotRepeated(t *testing.T) {
	t.Parallel()
	b, c, release := newBench(t), &calls{}, make(chan struct{})
	p := b.processor(nil, Registration{Name: "hook", Detached: c.noting(func(ctx context.Context,
		_ dedup.Message) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})})
	stop := lanes(t, p)
	b.process(p, b.messages("a=1"))
	require.Eventually(t, func() bool { return c.count() == 1 }, 3*time.Minute, time.Millisecond)
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	stop()
	b.delivered(1)
}

func TestAProcessThatDiesLeavesItsLanesToOthersAfterTheLease(t *testing.T) {
	t.Parallel()
	b, c := newBench(t), &calls{}
	reg := Registration{Name: "hook", Detached: c.noting(func(context.Context, dedup.Message) error { return nil })}
	p := b.processor(nil, reg)
	b.process(p, b.messages("a=1"))
	claims, err := b.store.ClaimLanes(t.Context(), "hook", 1, 300*time.Millisecond) // and never heard of again
	require.NoError(t, err)
	require.Len(t, claims, 1)
	claimed := time.Now()
	lanes(t, p)
	b.delivered(1)
	require.Greater(t, time.Since(claimed), 200*time.Millisecond)
	require.Equal(t, 1, c.count())
}

func TestAMessageThatKillsTheProcessRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	b, c := newBench(t), &calls{}
	die := func(times int) {
		for range times {
			claims, err := b.store.ClaimLanes(t.Context(), "hook", 1, 0)
			require.NoError(t, err)
			require.Len(t, claims, 1)
			if claims[0].Times > suspiciousCall {
				_, _, answer, err := b.store.Announce(t.Context(), claims[0], uuid.New(), 0, 2, false)
				if err == nil && answer == dedup.LastOne {
					_, _, _, err = b.store.Announce(t.Context(), claims[0], uuid.New(), 0, 2, true)
				}
				require.NoError(t, err)
			}
		}
	}
	reg := Registration{Name: "hook", Retry: Retry{MaxAttempts: 2, Base: 1, Cap: 1},
		Detached: c.noting(func(context.Context, dedup.Message) error { return nil })}
	p := b.processor(nil, reg)
	ms := b.messages("a=1", "b=1")
	b.process(p, ms[:1])
	die(suspiciousCall)
	stop := lanes(t, p)
	b.delivered(1)
	stop()
	require.Zero(t, b.count(`select attempts from firstseen.inbox`), "it was suspected and did nothing")
	b.process(p, ms[1:])
	die(suspiciousCall + 2)
	lanes(t, p)
	require.Eventually(t, func() bool {
		return b.count(`select count(*) from firstseen.dead_letters where reason = 'killed'`) == 1
	}, 3*time.Minute, time.Millisecond)
	require.Equal(t, 1, c.count())
}

func TestDetachedHandlersThatPanicExitOrHangCostAnAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var tries atomic.Int32
	change := func(cfg *Config) { cfg.HandlerTimeout, cfg.AbandonAfter = 30*time.Millisecond, 10*time.Millisecond }
	hang := make(chan struct{})
	defer close(hang)
	p := b.processor(change, Registration{Name: "hook",
		Detached: DetachedFunc(func(ctx context.Context, _ dedup.Message) error {
			switch tries.Add(1) {
			case 1:
				panic("told to")
			case 2:
				runtime.Goexit()
			case 3:
				<-hang
			case 4:
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})})
	lanes(t, p)
	b.process(p, b.messages("k=v"))
	b.delivered(1)
	require.Equal(t, 2, b.count(`select attempts from firstseen.inbox`),
		"not those that hung: all that was called did")
}

func TestACallThatHangsCostsAttemptsWhileItsSiblingsPass(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(func(cfg *Config) { cfg.HandlerTimeout = 30 * time.Millisecond },
		Registration{Name: "hook", Retry: Retry{MaxAttempts: 3, Base: 1, Cap: 1},
			Detached: DetachedFunc(func(ctx context.Context, m dedup.Message) error {
				if string(m.Value) == "hang" {
					<-ctx.Done()
				}
				return ctx.Err()
			})})
	lanes(t, p)
	b.process(p, b.messages("k=hang"))
	siblings := 0
	require.Eventually(t, func() bool {
		siblings++
		b.process(p, b.messages(fmt.Sprintf("s%d=ok", siblings)))
		return b.count(`select count(*) from firstseen.dead_letters where attempts = 3`) == 1
	}, 3*time.Minute, time.Millisecond)
	b.delivered(siblings)
}

func TestOutcomesOutliveAnOutageOfPostgres(t *testing.T) {
	t.Parallel()
	b, c := newBench(t), &calls{}
	// the store keeps the other one, whose connections are ended
	b.pool = deduptest.OpenPool(t, b.dsn+"&application_name=observer", nil)
	p := b.processor(nil, Registration{Name: "hook", Detached: c.noting(func(context.Context, dedup.Message) error {
		b.exec(`select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and application_name <> 'observer'`)
		return nil
	})})
	lanes(t, p)
	b.process(p, b.messages("a=1", "b=1", "c=1"))
	b.delivered(3)
	require.Equal(t, 3, c.count())
}
