package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
)

// writers take messages in through dedup, each with a position and a connection of its own, without a broker.
type writers struct {
	db               *database
	store            *dedup.Store
	positions        []*dedup.Position
	scope, copyScope int32 // of accept and of raw COPY
	accepted, copied int   // how many messages
}

// writers makes n of them, with an inbox of their own. They have brought no duplicates for a while, which is when
// accept takes its cheap way.
func (l *lab) writers(ctx context.Context, d *database, n int) (*writers, error) {
	const while = 10 // batches
	name := l.name()
	store, err := dedup.Open(ctx, d.pool, dedup.Config{Inbox: name})
	if err != nil {
		return nil, err
	}
	scopes, err := store.Scopes(ctx, []dedup.ScopeKey{{Handler: "accept"}, {Handler: "copy"}})
	if err != nil {
		return nil, err
	}
	w := &writers{db: d, store: store, scope: scopes.IDs[0], copyScope: scopes.IDs[1]}
	for i := range n {
		p, err := store.Acquire(ctx, name, "bench", int32(i), "bench")
		if err != nil {
			return nil, err
		}
		if err := store.Reposition(ctx, p, 0, uuid.Nil, nil); err != nil {
			return nil, err
		}
		w.positions = append(w.positions, p)
	}
	_, err = w.accept(ctx, messages(while*n, n, uuid.New), 1)
	return w, err
}

// accept takes messages in, a writer's in batches of size, and gives the rate.
func (w *writers) accept(ctx context.Context, dealt [][]dedup.Message, size int) (float64, error) {
	w.accepted += count(dealt)
	return rate(count(dealt), len(dealt), func(i int) error {
		for chunk := range slices.Chunk(dealt[i], size) {
			if err := w.acceptBatch(ctx, w.positions[i], chunk); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *writers) acceptBatch(ctx context.Context, p *dedup.Position, ms []dedup.Message) error {
	batch := &dedup.Batch{Position: p, Next: p.Next + int64(len(ms)), Entries: make([]dedup.Entry, len(ms))}
	for i := range ms {
		batch.Entries[i] = dedup.Entry{Scope: w.scope, Message: &ms[i]}
	}
	tx, err := w.store.Accept(ctx, batch)
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// check counts the rows.
func (w *writers) check(ctx context.Context) error {
	for scope, n := range map[int32]int{w.scope: w.accepted, w.copyScope: w.copied} {
		for _, table := range []string{"message_dedup", "inbox"} {
			if err := w.db.expect(ctx, n,
				`select count(*) from firstseen.`+table+` where scope_id = $1`, scope); err != nil {
				return err
			}
		}
	}
	return nil
}

// messages makes new messages and deals them to partitions in turn.
func messages(n, partitions int, newID func() uuid.UUID) [][]dedup.Message {
	dealt := make([][]dedup.Message, partitions)
	for i := range n {
		p := i % partitions
		dealt[p] = append(dealt[p], dedup.Message{ID: newID(), Topic: "bench", Partition: int32(p),
			Offset:    int64(i / partitions),
			Timestamp: time.Now(), Key: fmt.Appendf(nil, "key-%d", i%keys), Value: payload()})
	}
	return dealt
}

func count(dealt [][]dedup.Message) (n int) {
	for _, ms := range dealt {
		n += len(ms)
	}
	return n
}

// rate runs f for each of the writers at once, which together take n messages in, and gives messages a second. What
// was left to the garbage collector before is not theirs.
func rate(n, writers int, f func(i int) error) (float64, error) {
	runtime.GC()
	var all errgroup.Group
	start := time.Now()
	for i := range writers {
		all.Go(func() error { return f(i) })
	}
	err := all.Wait()
	return float64(n) / time.Since(start).Seconds(), err
}
