package online_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/online"
)

// The way of docs/TABLES.md, from its first step to its last, while programs of the old and of the new version insert
// all the time: none of them fails, no order is lost, and from the index on no key has two.
func TestTableGetsItsKeysWhileProgramsWriteToIt(t *testing.T) {
	s := newStage(t)
	s.exec(`insert into orders (tenant, item) select 't', 'book ' || i from generate_series(1, $1) i`, oldRows)
	l := &load{stage: s}
	l.pool = deduptest.OpenPool(t, s.db.DSN, func(c *pgxpool.Config) {
		c.MaxConns = 12
		c.ConnConfig.RuntimeParams["statement_timeout"] = "30s" // a writer that waits for ever fails
	})
	stopOld := l.run(2, l.insertOld)

	s.killDuringBuild(func() error { return addKey(t.Context(), s.db.DSN) })
	require.Equal(t, "invalid", s.index())
	stopNew := l.run(2, l.insertNew) // too early, but for what they need: a column
	l.goOn()
	require.NoError(t, addKey(t.Context(), s.db.DSN))
	require.Equal(t, "valid", s.index())
	l.twins.Store(true)
	l.goOn()

	ctx, breakOff := context.WithCancel(t.Context())
	err := giveKeys(ctx, s.db.DSN, func(p online.Progress) {
		require.Less(t, p.Pages, p.Total)
		breakOff()
	})
	require.ErrorIs(t, err, context.Canceled)
	without := s.count(`id <= $1 and idempotency_key is null`, oldRows)
	require.True(t, 0 < without && without < oldRows, "%d", without)
	var last online.Progress
	require.NoError(t, giveKeys(t.Context(), s.db.DSN, func(p online.Progress) { last = p }))
	require.Equal(t, last.Total, last.Pages)
	require.GreaterOrEqual(t, last.Rows, int64(without), "and what the old version has inserted since")
	require.Zero(t, s.count(`id <= $1 and idempotency_key is null`, oldRows))

	l.goOn()
	stopOld()
	require.NoError(t, requireKeys(t.Context(), s.db.DSN, nil))
	l.goOn()
	stopNew()
	l.requireAll()
	_, err = s.db.Pool.Exec(t.Context(), `insert into orders (tenant, item) values ('t', 'without')`)
	require.ErrorContains(t, err, "not-null")
}

// oldRows are the orders that were there before: about 400 pages.
const oldRows = 50_000

// load is what inserts into orders, and knows what it has inserted.
type load struct {
	*stage
	pool  *pgxpool.Pool
	twins atomic.Bool // each key comes more than once

	inserted atomic.Int64
	keys     sync.Map // of each key, the order
	copies   atomic.Int64
}

// run has n programs insert until they are stopped.
func (l *load) run(n int, insert func(ctx context.Context, key string) error) (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var running sync.WaitGroup
	for program := range n {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := insert(context.WithoutCancel(ctx), fmt.Sprint(program, "/", i)); err != nil {
					l.t.Errorf("an insert failed: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// insertOld is what a program does that knows nothing of keys.
func (l *load) insertOld(ctx context.Context, _ string) error {
	_, err := l.pool.Exec(ctx, `insert into orders (tenant, item) values ('t', 'old')`)
	l.inserted.Add(1)
	return err
}

// insertNew is what a program does that knows of them. Twins come at once.
func (l *load) insertNew(_ context.Context, key string) error {
	n := 1
	if l.twins.Load() {
		n = 3
		l.copies.Add(1)
	}
	var isNew atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		group.Go(func() {
			// no context: it would end with the test
			errs[i] = pgx.BeginFunc(context.Background(), l.pool, func(tx pgx.Tx) error {
				id, created, err := insertOnce(context.Background(), tx, "t", key, "new")
				if created {
					isNew.Add(1)
				}
				if of, twice := l.keys.LoadOrStore(key, id); twice && of != id && err == nil {
					err = fmt.Errorf("key %s: orders %d and %d", key, of, id)
				}
				return err
			})
		})
	}
	group.Wait()
	l.inserted.Add(1)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if isNew.Load() != 1 {
		return fmt.Errorf("key %s was new %d times", key, isNew.Load())
	}
	return nil
}

// goOn waits until the load has gone on.
func (l *load) goOn() {
	l.t.Helper()
	before := l.inserted.Load()
	require.Eventually(l.t, func() bool { return l.inserted.Load() > before+20 }, 3*time.Minute, time.Millisecond)
}

// requireAll requires that all that was inserted is there, each once.
func (l *load) requireAll() {
	l.t.Helper()
	require.Positive(l.t, l.copies.Load())
	require.EqualValues(l.t, oldRows+l.inserted.Load(), l.count(`idempotency_key is not null`))
	require.Zero(l.t, l.count(`idempotency_key is null`))
	rows, err := l.db.Pool.Query(l.t.Context(), `select idempotency_key, id from orders where item = 'new'`)
	require.NoError(l.t, err)
	var key string
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&key, &id}, func() error {
		got, _ := l.keys.LoadAndDelete(key)
		require.Equal(l.t, id, got, key)
		return nil
	})
	require.NoError(l.t, err)
	l.keys.Range(func(key, id any) bool {
		l.t.Errorf("order %d of key %s is lost", id, key)
		return true
	})
}
