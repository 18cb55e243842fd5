package handlers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// withPool has the bench's store use a pool of so many connections.
func (b *bench) withPool(n int32) *pgxpool.Pool {
	b.t.Helper()
	pool := deduptest.OpenPool(b.t, b.dsn, func(c *pgxpool.Config) { c.MaxConns = n })
	store, err := dedup.Open(context.Background(), pool, dedup.Config{Inbox: "test"})
	require.NoError(b.t, err)
	b.store = store
	b.position = b.acquire(0)
	return pool
}

func TestAHandlerThatWaitsForAConnectionInVainSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]time.Duration{"its time limit": 0, "its own": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			pool := b.withPool(1)
			again := HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ dedup.Message) error {
				if own > 0 {
					limited, cancel := context.WithTimeout(ctx, own)
					defer cancel()
					ctx = limited
				}
				_, err := pool.Exec(ctx, `select 1`)
				return err
			})
			p := b.processor(func(cfg *Config) { cfg.HandlerTimeout = 300 * time.Millisecond },
				Registration{Name: "h", Handler: Each(again)})
			_, err := p.Process(t.Context(), b.batch(b.messages("a=1", "b=2")))
			require.ErrorIs(t, err, ErrNoConnection)
			b.requireWhole(0)
		})
	}
}

func TestADetachedHandlerThatWaitsForAConnectionInVainSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &lockedLog{}
	pool := b.withPool(2)
	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	giveBack := sync.OnceFunc(held.Release)
	t.Cleanup(giveBack)
	p := b.processor(func(cfg *Config) { cfg.HandlerTimeout, cfg.Logger = 50*time.Millisecond, log.logger() },
		Registration{Name: "hook", Retry: Retry{Base: 1, Cap: 1, MaxAttempts: 2},
			Detached: DetachedFunc(func(ctx context.Context, _ dedup.Message) error {
				for range 2 { // one is taken for the other
					c, err := pool.Acquire(ctx)
					if err != nil {
						return err
					}
					defer c.Release()
				}
				return nil
			})})
	lanes(t, p)
	b.process(p, b.messages("a=1"))
	require.Eventually(t, func() bool { return log.count("waited for a connection") >= 3 },
		3*time.Minute, time.Millisecond)
	giveBack()
	b.delivered(1)
	require.Zero(t, b.count(`select attempts from firstseen.inbox`))
}

func TestConnectionsThatAreNeeded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	detached := DetachedFunc(func(context.Context, dedup.Message) error { return nil })
	for _, c := range []struct {
		want int
		regs []Registration
	}{
		{4 + 2 + 1, []Registration{{Name: "a", Handler: Each(newObedient("a"))}}},
		{3*(4+2) + 1, []Registration{{Name: "a", Handler: Each(newObedient("a")), Connections: 2},
			{Name: "b", Handler: Each(newObedient("b")), Connections: 1}}},
		{4 + 2 + 1 + 1, []Registration{{Name: "a", Detached: detached}}},
		{4 + 2 + 1 + 5*2 + 1, []Registration{{Name: "a", Detached: detached, Concurrency: 5, Connections: 2}}},
	} {
		require.Equal(t, c.want, b.processor(nil, c.regs...).Connections(4))
	}
}
