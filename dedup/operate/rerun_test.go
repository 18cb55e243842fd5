package operate_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

func (w *ward) rerun(f operate.RerunFilter) int {
	w.t.Helper()
	n, err := w.inbox.Rerun(w.t.Context(), f, by)
	require.NoError(w.t, err)
	return n
}

// effects are the offsets that a handler has handled, in order.
func (w *ward) effects(handler string) (offsets []int64) {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `select "offset" from effects where handler = $1 order by seq`, handler)
	require.NoError(w.t, err)
	defer rows.Close()
	for rows.Next() {
		var offset int64
		require.NoError(w.t, rows.Scan(&offset))
		offsets = append(offsets, offset)
	}
	return offsets
}

// requireOnePlace checks that a message lies in exactly one table for each handler.
func (w *ward) requireOnePlace(m dedup.Message, handlers int) {
	w.t.Helper()
	require.Equal(w.t, handlers, w.count(`select count(*) from (select message_id from firstseen.inbox union all select message_id from firstseen.parked
		union all select message_id from firstseen.dead_letters) m where message_id = $1`, m.ID))
}

func ofBook(ids ...uuid.UUID) operate.RerunFilter {
	return operate.RerunFilter{Filter: operate.Filter{Handler: "book", IDs: ids}}
}

func TestRerunCallsTheOneHandlerAgainWithTheSameBytes(t *testing.T) {
	w := newWard(t)
	p := w.newProcessor("book", "ship")
	m := message(0, "k")
	m.RawID, m.Headers = "order 7", []dedup.Header{{Key: "a", Value: []byte{0, 0xff}}, {Key: "a"},
		{Key: "", Value: []byte{}}}
	other := message(1, "k")
	w.processWith(p, m, other)
	before, err := w.inbox.ExplainID(t.Context(), m.ID)
	require.NoError(t, err)
	require.Equal(t, 1, w.rerun(ofBook(m.ID)))
	e, err := w.inbox.ExplainID(t.Context(), m.ID)
	tells(t, e, err, "waiting in its lane", "The lane is due now", "rerun by "+by.Actor+": "+by.Why)
	w.requireOnePlace(m, 2)

	stop := w.runLanes(p)
	require.Eventually(t, func() bool { return w.count(`select count(*) from firstseen.parked`) == 0 },
		3*time.Minute, 10*time.Millisecond)
	stop()
	require.Equal(t, []int64{0, 1, 0}, w.effects("book"))
	require.Equal(t, []int64{0, 1}, w.effects("ship"))
	w.requireOnePlace(m, 2)
	e, err = w.inbox.ExplainID(t.Context(), m.ID)
	tells(t, e, err, "It was handled at", "rerun by ")
	stored := func(e operate.Explanation) dedup.Message { return e.Seen[0].Stored.Message }
	require.Equal(t, stored(before), stored(e))
	require.Equal(t, handlers.Result{Duplicates: 2}, w.processWith(p,
		dedup.Message{ID: m.ID, Topic: "orders", Offset: 2, Value: m.Value}), "its ID was never forgotten")
}

func TestRerunKeepsTheOrderOfItsKey(t *testing.T) {
	w := newWard(t)
	var ms []dedup.Message
	for i := range int64(6) {
		ms = append(ms, message(i, "k"))
	}
	w.process(ms...)
	w.failFirst(message(6, "k")) // is in the lane already, for an hour
	var ids []uuid.UUID
	for _, i := range []int{5, 0, 3, 1, 4, 2} {
		ids = append(ids, ms[i].ID)
	}
	preview, err := w.inbox.CountRerun(t.Context(), ofBook(ids...))
	require.NoError(t, err)
	for i, m := range preview.First {
		require.EqualValues(t, i, m.Offset, "parked in order, for a worker may come between two transactions")
	}
	require.Equal(t, 6, w.rerun(ofBook(ids...)))
	require.Equal(t, handlers.Result{Parked: 1}, w.process(message(7, "k")), "a new one waits behind them")
	w.handler.mend()
	w.settle()
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7}, w.effects("book"))
}

func TestRerunsAtOnceRunAMessageOnce(t *testing.T) {
	w := newWard(t)
	var ms []dedup.Message
	var ids []uuid.UUID
	for i := range int64(50) {
		ms = append(ms, message(i, "k"))
		ids = append(ids, ms[i].ID)
	}
	w.process(ms...)
	moved := make([]int, 4)
	var all errgroup.Group
	for i := range moved {
		all.Go(func() (err error) {
			moved[i], err = w.inbox.Rerun(context.Background(), ofBook(ids...), by)
			return err
		})
	}
	require.NoError(t, all.Wait())
	require.Equal(t, 50, moved[0]+moved[1]+moved[2]+moved[3])
	w.settle()
	require.Len(t, w.effects("book"), 100)
	require.Equal(t, 50, w.count(
		`select count(*) from firstseen.audit where action = 'rerun' and actor = $1 and why = $2`, by.Actor, by.Why))
}

func TestRerunOfAPlaceRangeReadsTheInboxBack(t *testing.T) {
	w := newWard(t)
	var ms []dedup.Message
	for i := range int64(10) {
		ms = append(ms, message(i, "k"))
	}
	w.process(ms...)
	w.exec(`with old as (update firstseen.inbox set received_at = now() - interval '3 days' where "offset" = 4 returning message_id, received_at)
		update firstseen.message_dedup d set first_seen_at = o.received_at from old o where d.message_id = o.message_id`)
	f := operate.RerunFilter{Filter: operate.Filter{Handler: "book", Topic: "orders"},
		Places: &operate.PlaceRange{From: 3, To: 7}}
	preview, err := w.inbox.CountRerun(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, 3, preview.Messages, "without the one of three days ago")
	require.WithinDuration(t, time.Now().AddDate(0, 0, -2), preview.SearchedFrom, time.Minute)
	require.Equal(t, []int64{3, 5, 6}, []int64{preview.First[0].Offset, preview.First[1].Offset,
		preview.First[2].Offset})
	f.From = time.Now().AddDate(0, 0, -5)
	require.Equal(t, 4, w.rerun(f))
	w.settle()
	require.Equal(t, []int64{3, 4, 5, 6}, w.effects("book")[10:])
	f.Places = &operate.PlaceRange{Partition: 1}
	require.Zero(t, w.rerun(f))
	require.Equal(t, 10, w.rerun(operate.RerunFilter{Filter: operate.Filter{Handler: "book", Key: []byte("k"),
		From: f.From}}))
}

func TestRerunSaysWhatItCanNotRun(t *testing.T) {
	w := newWard(t)
	dead, waiting, dropped, known := message(0, "a"), message(1, "b"), message(2, "c"), message(3, "d")
	unseen := uuid.New()
	w.kill(dead)
	w.failFirst(waiting)
	w.process(dropped, known)
	w.exec(`delete from firstseen.inbox where message_id = $1`, dropped.ID)
	preview, err := w.inbox.CountRerun(t.Context(), ofBook(dead.ID, waiting.ID, dropped.ID, known.ID, unseen))
	require.NoError(t, err)
	require.Equal(t, 1, preview.Messages)
	require.ElementsMatch(t, []operate.MissingRerun{{dead.ID, "dead"}, {waiting.ID, "parked"},
		{dropped.ID, "dropped"}, {unseen, "unseen"}}, preview.Missing)
	require.Equal(t, 1, w.rerun(ofBook(dead.ID, waiting.ID, dropped.ID, known.ID, unseen)))

	for want, f := range map[string]operate.RerunFilter{
		"say whose messages": {}, "handler ledger has seen no message in this inbox; those that have: book": {
			Filter: operate.Filter{Handler: "ledger"}},
		"offsets are a topic's": {Filter: operate.Filter{Handler: "book"},
			Places: &operate.PlaceRange{}}, "has none": {Filter: operate.Filter{Handler: "book", Reason: "x"}},
	} {
		_, err := w.inbox.Rerun(t.Context(), f, by)
		require.ErrorContains(t, err, want)
	}
	_, err = w.inbox.Rerun(t.Context(), ofBook(known.ID), operate.By{})
	require.ErrorContains(t, err, "why: say what for")
}

func TestRerunIsSeenByLaterBatchesThoughOneIsOpen(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.process(m)
	w.exec(`update firstseen.positions set has_lanes = true`)
	other := message(1, "other")
	e := dedup.Entry{Scope: w.scope("book"), Message: &other, Lane: laneOf(other)}
	open, err := w.store.Accept(t.Context(), &dedup.Batch{Position: w.position(0), Next: 2, Entries: []dedup.Entry{e}})
	require.NoError(t, err)
	defer open.Rollback(t.Context())
	require.NoError(t, open.Join(t.Context(), []*dedup.Entry{&e}), "which clears has_lanes")
	moved := make(chan int, 1)
	go func() {
		n, err := w.inbox.Rerun(context.Background(), ofBook(m.ID), by)
		if err != nil {
			n = -1
		}
		moved <- n
	}()
	w.awaitLock()
	require.NoError(t, open.Commit(t.Context()))
	require.Equal(t, 1, w.await(moved))
	require.Equal(t, handlers.Result{Parked: 1}, w.process(message(2, "k")), "behind the message that is rerun")
}
