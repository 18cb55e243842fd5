package handlers

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// What comes before it in its lane is handled by itself too, and so is it: that the first message of a lane gets
// through says nothing of those behind it.
func TestAMessageThatHangsBehindOthersOfItsKeyIsTriedWithOthersOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var together, alone atomic.Int32
	h := BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		for _, m := range ms {
			if string(m.Value) != "hang" {
				continue
			}
			if len(ms) > 1 {
				together.Add(1)
			} else {
				alone.Add(1)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	})
	p := b.processor(func(c *Config) { c.HandlerTimeout = 300 * time.Millisecond },
		Registration{Name: "h", Handler: h, Retry: Retry{Base: 1, Cap: 1, MaxAttempts: 3}})
	texts := make([]string, 12)
	for i := range texts {
		texts[i] = "k=ok"
	}
	texts[8] = "k=hang"
	texts = append(texts, "a=ok", "b=ok")
	require.Equal(t, Result{Parked: 14}, b.process(p, b.messages(texts...)))
	b.drain(p)
	require.EqualValues(t, 3, alone.Load())
	require.EqualValues(t, 1, together.Load())
	b.requireWhole(14)
}

// A worker that died has had so many of the lane's first messages at work, and no more are handled by themselves.
func TestNoMoreOfALaneAreHandledByThemselvesThanWereAtWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h"))})
	batch := b.batch(b.messages("k=ok", "k=ok", "k=ok", "k=ok", "k=ok", "k=ok"))
	batch.Queued = true
	_, err := p.Process(t.Context(), batch)
	require.NoError(t, err)
	claims, err := b.store.ClaimLanes(t.Context(), "h", 1, time.Microsecond) // by somebody who died
	require.NoError(t, err)
	require.Len(t, claims, 1)
	for handled := 1; handled <= 3; handled++ {
		require.NoError(t, p.workSuspects(t.Context(), p.attached()[0], b.claimSuspect(p), 3))
		require.Equal(t, handled, b.count(`select count(*) from firstseen.inbox`))
	}
	require.Zero(t, b.count(`select claims from firstseen.lanes`), "the others are handled together")
	b.drain(p)
	b.requireWhole(6)
}

// overtake has an earlier message of its key come into a parked message's lane, as a replay or a redrive does.
func (b *bench) overtake() {
	b.t.Helper()
	b.exec(`insert into firstseen.parked (scope_id, lane, attempts, message_id, topic, "partition", "offset", seq)
		select scope_id, lane, 0, gen_random_uuid(), topic, "partition", "offset" - 1, seq + 1 from firstseen.parked`)
}

func TestAMessageThatComesBeforeASuspectIsNoneItself(t *testing.T) {
	t.Parallel()
	t.Run("while it is handled", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		calls := 0
		p := b.suspected(func() error {
			if calls++; calls == 1 {
				b.overtake()
				return &pgconn.PgError{Code: "40P01"}
			}
			return nil
		})
		require.NoError(t, p.workApart(t.Context(), b.claimSuspect(p)))
		require.Equal(t, 1, calls, "the earlier one was not announced")
		require.Zero(t, b.count(`select sum(attempts) from firstseen.parked`))
		b.drain(p)
		require.Zero(t, b.count(`select sum(attempts) from firstseen.inbox`))
		require.Equal(t, 2, b.count(`select count(*) from firstseen.inbox`))
	})
	t.Run("after it was given up as a killer", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		p := b.suspected(func() error { return nil })
		b.exec(`update firstseen.parked set attempts = 3, reason = 'killed'`)
		claim := b.claimSuspect(p)[0]
		id, _, answer, err := b.store.Announce(t.Context(), claim, uuid.New(), time.Minute, 3, false)
		require.NoError(t, err)
		require.Equal(t, dedup.Killed, answer)
		b.overtake()
		s := &suspect{p: p, target: p.attached()[0], claim: claim, id: id, killed: true}
		require.ErrorIs(t, s.try(t.Context(), &isolate.Findings{}), errOvertaken)
		require.Zero(t, b.count(`select count(*) from firstseen.dead_letters`))
	})
}

// Its claim lasts as long as it waits for the others, however slow they are: else workers would take the lane from one
// another for ever.
func TestAKillersLastAttemptIsMadeWhereOthersAreSlow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	done := make(chan struct{})
	p := b.suspected(func() error { close(done); return nil })
	b.exec(`update firstseen.parked set attempts = 2, reason = 'suspected'`)
	var others sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for i := range 2 { // one or the other is at work whenever somebody asks
		others.Go(func() {
			time.Sleep(time.Duration(i) * laneLease) // half a turn behind
			for ctx.Err() == nil {
				end := p.work.begin()
				select {
				case <-ctx.Done():
				case <-time.After(2 * laneLease):
				}
				end()
			}
		})
	}
	lanes(t, p)
	select {
	case <-done:
	case <-time.After(12 * laneLease):
		t.Error("it was not tried")
	}
	stop()
	others.Wait()
}
