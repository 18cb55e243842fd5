package operate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// inBackground runs a redrive of everything, and gives how many were redriven.
func (w *ward) inBackground() <-chan int {
	done := make(chan int, 1)
	go func() {
		n, err := w.inbox.Redrive(context.Background(), operate.Filter{}, by)
		if err != nil {
			n = -1
		}
		done <- n
	}()
	return done
}

// parkInBackground processes a message, and gives how many were parked.
func (w *ward) parkInBackground(p *handlers.Processor, m dedup.Message) <-chan int {
	done := make(chan int, 1)
	batch := handlers.Batch{Position: w.position(m.Partition), Next: m.Offset + 1, Messages: []dedup.Message{m}}
	go func() {
		result, err := p.Process(context.Background(), batch)
		if err != nil {
			result.Parked = -1
		}
		done <- result.Parked
	}()
	return done
}

func (w *ward) await(done <-chan int) int {
	w.t.Helper()
	select {
	case n := <-done:
		return n
	case <-time.After(time.Minute):
		require.FailNow(w.t, "it did not end")
		return 0
	}
}

// A batch that found no lanes may be about to say so of its partition.
func TestRedriveIsSeenByLaterBatchesThoughOneIsOpen(t *testing.T) {
	w := newWard(t)
	w.kill(message(0, "k"))
	p := w.position(0)
	w.exec(`update firstseen.positions set has_lanes = true`)
	m := message(1, "other")
	e := dedup.Entry{Scope: w.scope("book"), Message: &m, Lane: laneOf(m)}
	open, err := w.store.Accept(t.Context(), &dedup.Batch{Position: p, Next: 2, Entries: []dedup.Entry{e}})
	require.NoError(t, err)
	defer open.Rollback(t.Context())
	require.True(t, open.HasLanes())
	require.NoError(t, open.Join(t.Context(), []*dedup.Entry{&e}), "which clears has_lanes")
	redriven := w.inBackground()
	w.awaitLock()
	require.NoError(t, open.Commit(t.Context()))
	require.Equal(t, 1, w.await(redriven))
	later := message(2, "k")
	require.Equal(t, handlers.Result{Parked: 1}, w.process(later), "behind the redriven message")
}

// claimAndLoad takes the due lanes and leaves the transaction open.
func (w *ward) claimAndLoad() (*dedup.Tx, *dedup.Batch) {
	w.t.Helper()
	claims, err := w.store.ClaimLanes(w.t.Context(), "book", 10, time.Hour)
	require.NoError(w.t, err)
	tx, batch, err := w.store.LoadLanes(w.t.Context(), claims, 1, 0)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx, batch
}

// failFirst has the handler fail on a message behind dead ones of its key, so that it waits in its lane.
func (w *ward) failFirst(m dedup.Message) {
	w.t.Helper()
	w.retry = handlers.Retry{Base: time.Hour, Cap: time.Hour}
	w.handler.fails(m.ID)
	require.Equal(w.t, 1, w.processWith(w.newProcessor("book"), m).Parked)
}

func TestRedriveIntoALaneInBackoffIsTriedAtOnce(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.kill(m)
	w.failFirst(message(1, "k"))
	w.exec(`update firstseen.lanes set due_at = now() + interval '1 h'`)
	w.redrive(operate.Filter{})
	_, batch := w.claimAndLoad()
	require.Len(t, batch.Entries, 1)
	require.Equal(t, m.ID, batch.Entries[0].Message.ID)
	require.Zero(t, batch.Entries[0].Attempts)
}

func TestRedriveIntoALaneAtWorkWaitsForNoHandlerAndIsTriedNext(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.kill(m)
	w.failFirst(message(1, "k"))
	w.exec(`update firstseen.lanes set due_at = now()`)
	worker, batch := w.claimAndLoad()
	require.Equal(t, 1, w.await(w.inBackground()), "while the worker is in its handler")
	require.Equal(t, handlers.Result{New: 1}, w.process(message(2, "other")), "nor is the partition held up")

	batch.Entries[0].Attempts, batch.Entries[0].Reason = 2, "failed"
	batch.Entries[0].Park(time.Hour)
	require.NoError(t, worker.Commit(t.Context()))
	_, batch = w.claimAndLoad()
	require.Len(t, batch.Entries, 1, "the lane is due, though its worker put it off for an hour")
	require.Equal(t, m.ID, batch.Entries[0].Message.ID)
}

func TestRedriveIntoAClaimedLaneTakesTheClaim(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.kill(m)
	w.failFirst(message(1, "k"))
	w.exec(`update firstseen.lanes set due_at = now()`)
	claims, err := w.store.ClaimLanes(t.Context(), "book", 10, time.Hour)
	require.NoError(t, err)
	require.Len(t, claims, 1)
	w.redrive(operate.Filter{})
	stale, batch, err := w.store.LoadLanes(t.Context(), claims, 1, 0)
	require.NoError(t, err)
	defer stale.Rollback(t.Context())
	require.Empty(t, batch.Entries, "what was claimed was the lane with another first message")
	_, batch = w.claimAndLoad()
	require.Equal(t, m.ID, batch.Entries[0].Message.ID)
}

func TestLaneThatIsRemovedWhileAMessageJoinsItIsOpenedAgain(t *testing.T) {
	for name, join := range map[string]func(w *ward) <-chan int{
		"redrive": (*ward).inBackground,
		"batch": func(w *ward) <-chan int {
			m := message(1, "k")
			w.handler.fails(m.ID)
			w.exec(`update firstseen.positions set has_lanes = false`) // or it would look for lanes to join
			w.retry = handlers.Retry{Base: time.Hour, Cap: time.Hour}
			return w.parkInBackground(w.newProcessor("book"), m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			m := message(0, "k")
			w.kill(m)
			w.exec(`insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic, "partition")
				select scope_id, $2, now(), inbox, handler, 'orders', 0 from firstseen.scopes where scope_id = $1`,
				w.scope("book"), laneOf(m))
			remover, err := w.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = remover.Rollback(context.Background()) }()
			_, err = remover.Exec(t.Context(), `select from firstseen.lanes for update`)
			require.NoError(t, err)
			joined := join(w)
			w.awaitLock()
			_, err = remover.Exec(t.Context(), `delete from firstseen.lanes`)
			require.NoError(t, err)
			require.NoError(t, remover.Commit(t.Context()))
			require.Equal(t, 1, w.await(joined))
			require.Equal(t, 1,
				w.count(`select count(*) from firstseen.parked join firstseen.lanes using (scope_id, lane)`))
		})
	}
}

func TestParkingIntoALaneAtWorkWaitsForNoHandler(t *testing.T) {
	w := newWard(t)
	w.failFirst(message(0, "k"))
	w.exec(`update firstseen.lanes set due_at = now()`)
	w.claimAndLoad() // and stay in the handler
	require.Equal(t, 1, w.await(w.parkInBackground(w.processor, message(1, "k"))))
}

// Everything at once: batches, lane workers, redrives; messages die and live again at random.
func TestRedrivesAmongBatchesAndLaneWorkersLoseNothingAndDoubleNothing(t *testing.T) {
	const partitions, batches, size = 3, 25, 8
	w := newWard(t)
	w.retry = handlers.Retry{MaxAttempts: 2, Base: 4 * time.Millisecond, Cap: 8 * time.Millisecond}
	for partition := range int32(partitions) {
		w.position(partition)
	}
	registry := &handlers.Registry{}
	require.NoError(t, registry.Add(handlers.Registration{Name: "book", Topics: []string{"orders"}, Retry: w.retry,
		Handler: handlers.Each(moody{})}))
	p, err := handlers.NewProcessor(handlers.Config{Store: w.store, Handlers: registry,
		LanePoll: 2 * time.Millisecond, LaneWorkers: 3, Logger: quiet()})
	require.NoError(t, err)
	stop := w.runLanes(p)
	redriving, cancel := context.WithCancel(t.Context())
	var redrivers, feeders errgroup.Group
	for range 2 {
		redrivers.Go(func() error {
			for redriving.Err() == nil {
				if _, err := w.inbox.Redrive(context.Background(), operate.Filter{}, by); err != nil {
					return err
				}
				time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond) // a pace, not a wait
			}
			return nil
		})
	}
	for partition := range int32(partitions) {
		feeders.Go(func() error {
			for b := range int64(batches) {
				ms := make([]dedup.Message, size)
				for i := range ms {
					ms[i] = message(b*size+int64(i), fmt.Sprint("k", i%3))
					ms[i].Partition = partition
				}
				if _, err := p.Process(t.Context(), handlers.Batch{Position: w.positions[partition],
					Next: (b + 1) * size, Messages: ms}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, feeders.Wait())
	deduptest.UntilDone(t, time.Minute, "a message is stuck", func() (string, bool) {
		n := w.count(`select (select count(*) from firstseen.parked) + (select count(*) from firstseen.dead_letters)`)
		return strconv.Itoa(n), n == 0
	})
	cancel()
	require.NoError(t, redrivers.Wait())
	stop()
	const all = partitions * batches * size
	require.Equal(t, all, w.count(`select count(*) from effects`))
	require.Equal(t, all, w.count(`select count(distinct message_id) from effects`))
	require.Equal(t, all, w.count(`select count(*) from firstseen.inbox`))
	require.Zero(t, w.count(`select count(*) from firstseen.parked left join firstseen.lanes l using (scope_id, lane) where l.lane is null`))
	require.NotZero(t, w.count(`select count(*) from firstseen.audit`))
}

// moody fails on three messages of four, twice of three times.
type moody struct{}

func (moody) Handle(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	if moodOf(m.ID) > 0 && rand.IntN(3) > 0 {
		return errSick
	}
	_, err := tx.Exec(ctx, `insert into effects (handler, message_id, "offset") values ('book', $1, $2)`, m.ID,
		m.Offset)
	return err
}

func moodOf(id uuid.UUID) int { return int(id[0] % 4) }
