package handlers_test

import (
	"bytes"
	"cmp"
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
)

func TestTwoHandlersOfATopicEachRunOnceInOneTransaction(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`alter table effects add xid text default pg_current_xact_id()::text`)
	s.register("a", effect("a"))
	s.register("b", effect("b"))
	p, ids := s.position("orders"), newIDs(3)
	s.requireResult(handlers.Result{New: 6}, p, messages(p, ids...)...)
	s.requireResult(handlers.Result{Duplicates: 6}, p, messages(p, ids...)...)
	require.Equal(t, 3, s.effects("a"))
	require.Equal(t, 3, s.effects("b"))
	require.Equal(t, 1, s.count(`select count(distinct xid) from effects`), "one transaction")
	require.EqualValues(t, 6, s.position("orders").Next)
}

func TestHandlersFailureLeavesTheOtherHandlersAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("a", effect("a"))
	s.register("b", handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		return cmp.Or(effect("b").HandleBatch(ctx, tx, ms), context.Canceled)
	}))
	s.register("c", effect("c"))
	p := s.position("orders")
	s.requireResult(handlers.Result{New: 6, Parked: 3}, p, keyed(messages(p, newIDs(3)...))...)
	require.Equal(t, 3, s.effects("a"))
	require.Equal(t, 0, s.effects("b"))
	require.Equal(t, 3, s.effects("c"))
	require.Equal(t, 3, s.count(`select count(*) from firstseen.parked join firstseen.scopes using (scope_id)
		where handler = 'b' and attempts = 1 and error = 'handler b: context canceled'`))
	require.EqualValues(t, 3, s.position("orders").Next)
}

func TestHandlerAddedLaterIsFedAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("a", effect("a"))
	p, ids := s.position("orders"), newIDs(3)
	s.requireResult(handlers.Result{New: 3}, p, messages(p, ids...)...)
	s.register("b", effect("b"))
	s.requireResult(handlers.Result{New: 3, Duplicates: 3}, p, messages(p, ids...)...)
	require.Equal(t, 3, s.effects("a"))
	require.Equal(t, 3, s.effects("b"))
}

func TestSameIDOnTwoTopicsRunsOnceForEachHandler(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("a", effect("a"), "t1")
	s.register("b", effect("b"), "t2")
	one, two, id := s.position("t1"), s.position("t2"), uuid.New()
	for _, want := range []handlers.Result{{New: 1}, {Duplicates: 1}} {
		s.requireResult(want, one, messages(one, id)...)
		s.requireResult(want, two, messages(two, id)...)
	}
	require.Equal(t, 1, s.effects("a"))
	require.Equal(t, 1, s.effects("b"))
}

func TestSameIDOnTwoTopicsOfOneHandlerRunsOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("a", effect("a"), "t1", "t2")
	one, two, id := s.position("t1"), s.position("t2"), uuid.New()
	s.requireResult(handlers.Result{New: 1}, one, messages(one, id)...)
	s.requireResult(handlers.Result{Duplicates: 1}, two, messages(two, id)...)
	require.Equal(t, 1, s.effects("a"))
}

func TestSameIDInTwoTenantsRunsTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", effect("h"))
	p, id := s.position("orders"), uuid.New()
	ms := messages(p, id, id, id, id, uuid.New())
	for i, tenant := range []string{"a", "b", "a", "", "b"} {
		ms[i].Tenant = tenant
	}
	s.requireResult(handlers.Result{New: 4, Duplicates: 1}, p, ms...)
	require.Equal(t, 3, s.count(`select count(*) from effects where message_id = $1`, id))
	require.Equal(t, 3,
		s.count(`select count(distinct tenant) from firstseen.inbox join firstseen.scopes using (scope_id)`))
}

func TestSecondCopyInOneBatchRunsHandlerOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", effect("h"))
	p, id := s.position("orders"), uuid.New()
	s.requireResult(handlers.Result{New: 2, Duplicates: 2}, p, messages(p, id, uuid.New(), id, id)...)
	require.Equal(t, 0, s.count(`select "offset" from effects where message_id = $1`, id), "the first copy")
}

func TestMessageWithoutAnIDIsADeadLetterAndReachesNoHandler(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", effect("h"))
	p := s.position("orders")
	ms := messages(p, uuid.New(), uuid.New(), uuid.New())
	dead := &ms[1]
	dead.Key, dead.Value = []byte{}, []byte("\x00\xff null")
	dead.Headers = []dedup.Header{{Key: "trace", Value: []byte("b")}, {Key: "trace", Value: nil},
		{Key: "trace", Value: []byte{}}}
	dead.Refuse(identity.ReasonAmbiguousID, uuid.New())
	s.requireResult(handlers.Result{New: 2, Dead: 1}, p, ms...)
	s.requireResult(handlers.Result{Duplicates: 2, Buried: 1}, p, ms...)

	require.Equal(t, 2, s.effects("h"))
	require.Equal(t, 2, s.count(`select count(*) from firstseen.inbox`))
	require.Equal(t, 1, s.count(`select count(*) from firstseen.dead_letters where attempts = 0`),
		"replayed, it is the same dead letter")
	var got dedup.Message
	var headers []byte
	require.NoError(t, s.admin.QueryRow(t.Context(),
		`select message_id, reason, topic, "partition", "offset", key, payload, headers
		from firstseen.dead_letters`).Scan(&got.ID, &got.Reason, &got.Topic, &got.Partition, &got.Offset,
		&got.Key, &got.Value, &headers))
	require.True(t, bytes.Equal(headers, dedup.AppendHeaders(nil, dead.Headers)))
	got.Headers = dead.Headers
	require.Equal(t, *dead, got)
}

func TestBatchOfDeadLettersCallsNoHandler(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h",
		handlers.BatchHandlerFunc(func(context.Context, pgx.Tx, []dedup.Message) error { panic("called") }))
	p := s.position("orders")
	ms := messages(p, newIDs(2)...)
	for i := range ms {
		ms[i].Refuse(identity.ReasonMissingID, uuid.New())
	}
	s.requireResult(handlers.Result{Dead: 2}, p, ms...)
}

func TestEmptyBatchMovesThePosition(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", effect("h"))
	p := s.position("orders")
	result, err := s.processor().Process(t.Context(), handlers.Batch{Position: p, Next: 9})
	require.NoError(t, err)
	require.Zero(t, result)
	require.EqualValues(t, 9, s.position("orders").Next)
}

func TestHandlersGetTheNewMessagesInOrder(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var offsets []int64
	s.register("h", handlers.BatchHandlerFunc(func(_ context.Context, _ pgx.Tx, ms []dedup.Message) error {
		offsets = nil
		for i := range ms {
			offsets = append(offsets, ms[i].Offset)
		}
		return nil
	}))
	p, ids := s.position("orders"), newIDs(6)
	s.requireResult(handlers.Result{New: 2}, p, messages(p, ids[1], ids[4])...)
	require.Equal(t, []int64{0, 1}, offsets)
	ms := messages(p, ids...)
	ms[2].Refuse(identity.ReasonMissingID, uuid.Nil)
	s.requireResult(handlers.Result{New: 3, Duplicates: 2, Dead: 1}, p, ms...)
	require.Equal(t, []int64{2, 5, 7}, offsets)
}

func TestQueuedHandlersStatementsRunInOrderAndNameTheMessage(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", handlers.Queue(handlers.QueuedFunc(func(b *pgx.Batch, m dedup.Message) error {
		b.Queue(`insert into effects (handler, "offset") values ('h', $1)`, m.Offset)
		b.Queue(`insert into effects (handler, "offset") values ('h', 100 / ($1 - 2))`, m.Offset)
		return nil
	})))
	p := s.position("orders")
	ms := keyed(messages(p, newIDs(4)...))
	s.requireResult(handlers.Result{New: 3, Parked: 1}, p, ms...)
	require.Equal(t, "handler h: message orders/0@2: ERROR: division by zero (SQLSTATE 22012)", s.parkedError(ms[2]))
	rows, err := s.admin.Query(t.Context(), `select "offset" from effects order by seq`)
	require.NoError(t, err)
	order, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	require.Equal(t, []int{0, -50, 1, -100, 3, 100}, order)
}

func TestTopicWithoutAHandlerIsAnError(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", effect("h"))
	p := s.position("other")
	_, err := s.process(p, messages(p, newIDs(1)...)...)
	require.EqualError(t, err, "process other: the topic has no handler")
}

func TestWrongRegistrationsAreRefused(t *testing.T) {
	var r handlers.Registry
	require.Error(t, r.Register(" ", effect("h"), "orders"))
	require.Error(t, r.Register("h", nil, "orders"))
	require.Error(t, r.Register("h", effect("h")))
	require.ErrorContains(t, r.Register("h", effect("h"), "orders", ""), "topic: a name is required")
	require.NoError(t, r.Register("h", effect("h"), "orders", "payments"))
	require.ErrorContains(t, r.Register("h", effect("h"), "orders"),
		"register handler h: there is one of that name already")
	require.Equal(t, []string{"orders", "payments"}, r.Topics())
	_, err := handlers.NewProcessor(handlers.Config{Handlers: &r})
	require.Error(t, err)
}

func TestStagesAreObservedInOrder(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", effect("h"))
	var stages []handlers.Stage
	s.cfg.Observe = func(stage handlers.Stage) { stages = append(stages, stage) }
	p := s.position("orders")
	s.requireResult(handlers.Result{New: 1}, p, messages(p, newIDs(1)...)...)
	require.Equal(t, []handlers.Stage{handlers.StageAccepted, handlers.StageHandled, handlers.StageCommitted}, stages)
}

func TestAMessageWithoutAnIDIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", effect("h"))
	p := s.position("orders")
	for _, id := range []uuid.UUID{uuid.Nil, uuid.Max} {
		_, err := s.process(p, messages(p, uuid.New(), id)...)
		require.ErrorIs(t, err, handlers.ErrNoID)
		require.ErrorContains(t, err, "process orders/0@1:")
	}
	ms := messages(p, uuid.New(), uuid.Nil)
	ms[1].Refuse(identity.ReasonMissingID, uuid.Nil)
	s.requireResult(handlers.Result{New: 1, Dead: 1}, p, ms...)
}
