package operate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

func TestOfManyRedrivesAtOnceOneRunsTheHandler(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.kill(m)
	w.handler.mend()
	stop := w.runLanes(w.processor)
	counts := make([]int, 8)
	var group errgroup.Group
	for i := range counts {
		group.Go(func() (err error) {
			counts[i], err = w.inbox.Redrive(t.Context(), operate.Filter{}, by)
			return err
		})
	}
	require.NoError(t, group.Wait())
	stop()
	w.settle()
	slices.Sort(counts)
	require.Equal(t, []int{0, 0, 0, 0, 0, 0, 0, 1}, counts)
	require.Equal(t, 1, w.count(`select count(*) from effects`))
	require.Equal(t, 1, w.count(`select count(*) from firstseen.inbox i join firstseen.message_dedup d
		on d.message_id = i.message_id and d.first_seen_at = i.received_at and i.processed_at > i.received_at`))
	require.Equal(t, 1, w.count(`select count(*) from firstseen.audit where actor = $1 and action = 'redrive' and why = $2 and message_id = $3`, by.Actor, by.Why, m.ID))
	require.Empty(t, w.dead(operate.Filter{}))
}

// full is a message with everything that must not change.
func full(offset int64) dedup.Message {
	m := message(offset, "k")
	m.RawID, m.Key, m.Value = "order 7", []byte{}, []byte{0, 0xff, '\n'}
	m.Headers = []dedup.Header{{Key: "trace", Value: []byte("a")}, {Key: "trace", Value: []byte("b")}, {Key: "none"},
		{Key: "empty", Value: []byte{}}}
	return m
}

func TestDeadLetterIsTheMessageByteForByte(t *testing.T) {
	w := newWard(t)
	m := full(0)
	null := message(1, "")
	null.Key, null.Value = nil, nil
	w.kill(m, null)
	d := w.dead(operate.Filter{Handler: "book", IDs: []uuid.UUID{m.ID}})[0]
	require.True(t, m.Timestamp.Equal(d.Message.Timestamp))
	m.Timestamp = d.Message.Timestamp
	require.Equal(t, m, d.Message)
	require.Equal(t, []any{"orders-inbox", "book", "attempts_exhausted", 1},
		[]any{d.Inbox, d.Handler, d.Reason, d.Attempts})
	require.Contains(t, d.Error, errSick.Error())
	require.WithinDuration(t, time.Now(), d.At, time.Minute)

	d = w.dead(operate.Filter{Handler: "book", IDs: []uuid.UUID{null.ID}})[0]
	require.Nil(t, d.Message.Key)
	require.Nil(t, d.Message.Value)
	require.Nil(t, d.Message.Headers)
	require.Empty(t, w.dead(operate.Filter{Handler: "book", Tenant: "other", IDs: []uuid.UUID{m.ID}}))
}

func TestFiveRedrivesChangeNothingOfAMessage(t *testing.T) {
	w := newWard(t)
	m := full(0)
	w.kill(m)
	first := w.dead(operate.Filter{})[0]
	for n := range 5 {
		require.Equal(t, 1, w.redrive(operate.Filter{IDs: []uuid.UUID{m.ID}}))
		require.Equal(t, 1, w.count(`select count(*) from firstseen.parked where attempts = 0 and reason is null`))
		w.settle()
		again := w.dead(operate.Filter{})[0]
		require.True(t, again.At.After(first.At))
		require.Equal(t, n+1, w.count(`select count(*) from firstseen.audit`))
		again.At = first.At
		require.Equal(t, first, again)
	}
	w.handler.mend()
	w.redrive(operate.Filter{})
	w.settle()
	require.Equal(t, 1, w.count(`select count(*) from effects where value = $1`, m.Value))
	require.Equal(t,
		1, w.count(`select count(*) from firstseen.inbox where headers = $1 and key = '' and raw_id = 'order 7'`,
			dedup.AppendHeaders(nil, m.Headers)))
}

func TestRedrivenMessageWaitsForAProcessThatHasItsHandler(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.kill(m)
	w.handler.mend()
	require.Equal(t, 1, w.redrive(operate.Filter{}))
	other := w.newProcessor("ship")
	stop := w.runLanes(other)
	require.Equal(t, 1, w.processWith(other, message(1, "k2")).New)
	require.Never(t, func() bool { return w.count(`select count(*) from effects where handler <> 'ship'`) > 0 },
		200*time.Millisecond, 20*time.Millisecond)
	stop()
	require.Equal(t, 1, w.count(`select count(*) from firstseen.parked p join firstseen.lanes l using (scope_id, lane) where l.claims = 0 and p.attempts = 0`))
	w.settle()
	require.Equal(t, 1, w.count(`select count(*) from effects where handler = 'book'`))
}

func TestRedrivenMessagesOfAKeyAreHandledInTheOrderOfTheirOffsets(t *testing.T) {
	w := newWard(t)
	w.handler.mend()
	const n = 1203 // more than two transactions
	scope := w.scope("book")
	w.exec(`with m as (select gen_random_uuid() as id, o from generate_series(1, $2) o),
		seen as (insert into firstseen.message_dedup (scope_id, message_id) select $1, id from m)
		insert into firstseen.dead_letters (scope_id, message_id, lane, topic, "partition", "offset", reason, died_at)
		select $1, id, $3, 'orders', o % 2, o, 'failed', now() - o * interval '1 s' from m`, scope, n, uuid.New())
	w.position(0)
	stop := w.runLanes(w.processor) // at work while the later ones are not redriven yet
	require.Equal(t, n, w.redrive(operate.Filter{Topic: "orders"}))
	stop()
	w.settle()
	require.Equal(t, n, w.count(`select count(distinct message_id) from effects`))
	require.Equal(t, n, w.count(`select count(*) from effects`))
	require.Zero(t, w.count(`select count(*) from (select "offset" < lag("offset") over (partition by "offset" % 2 order by seq) as back from effects) e where back`))
	require.Equal(t, n, w.count(`select count(*) from firstseen.audit`))
}

func (w *ward) scope(handler string) int32 {
	w.t.Helper()
	scopes, err := w.store.Scopes(w.t.Context(), []dedup.ScopeKey{{Handler: handler}})
	require.NoError(w.t, err)
	return scopes.IDs[0]
}

func TestDiscardForgetsTheContentAndNotTheID(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.kill(m)
	_, err := w.inbox.Discard(t.Context(), operate.Filter{}, operate.By{Actor: shift})
	require.ErrorContains(t, err, "why")
	_, err = w.inbox.Redrive(t.Context(), operate.Filter{}, operate.By{Why: "x", Actor: " "})
	require.ErrorContains(t, err, "actor")
	require.Len(t, w.dead(operate.Filter{}), 1)

	n, err := w.inbox.Discard(t.Context(), operate.Filter{}, by)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, w.dead(operate.Filter{}))
	require.Equal(t, 1, w.count(`select count(*) from firstseen.audit where action = 'discard' and message_id = $1`,
		m.ID))
	w.handler.mend()
	again := m
	again.Offset = 1
	require.Equal(t, handlers.Result{Duplicates: 1}, w.process(again))
	require.Zero(t, w.redrive(operate.Filter{}))
}

func TestCopyOfADeadLetterIsReportedAndNotHandled(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.kill(m)
	w.handler.mend()
	again, other := m, message(2, "k2")
	again.Offset = 1
	require.Equal(t, handlers.Result{New: 1, Buried: 1}, w.process(again, other))
	require.Len(t, w.dead(operate.Filter{}), 1)
	require.Zero(t, w.count(`select count(*) from effects where message_id = $1`, m.ID))
	w.redrive(operate.Filter{})
	w.settle()
	again.Offset = 3
	require.Equal(t, handlers.Result{Duplicates: 1}, w.process(again), "handled by now")
	require.Equal(t, 1, w.count(`select count(*) from effects where message_id = $1`, m.ID))
}

func TestFilterPicksDeadLetters(t *testing.T) {
	w := newWard(t)
	a, b := message(0, "k1"), message(1, "k2")
	b.Tenant = "blue"
	c := message(2, "")
	c.Refuse(identity.ReasonIDTooLong, uuid.Nil)
	w.handler.fails(a.ID, b.ID)
	require.Equal(t, 3, w.process(a, b, c).Dead)
	w.exec(`update firstseen.dead_letters set died_at = '2026-01-01 00:00:01Z' where message_id = $1`, a.ID)
	at := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	for name, test := range map[string]struct {
		filter operate.Filter
		want   []uuid.UUID
	}{
		"handler":       {operate.Filter{Handler: "book"}, []uuid.UUID{a.ID, b.ID, c.ID}},
		"other handler": {operate.Filter{Handler: "ship"}, nil},
		"topic":         {operate.Filter{Topic: "orders", Reason: "id_too_long"}, []uuid.UUID{c.ID}},
		"other topic":   {operate.Filter{Topic: "order"}, nil},
		"tenant":        {operate.Filter{Tenant: "blue"}, []uuid.UUID{b.ID}},
		"key":           {operate.Filter{Key: []byte("k1")}, []uuid.UUID{a.ID}},
		"empty key":     {operate.Filter{Key: []byte{}}, []uuid.UUID{c.ID}},
		"from":          {operate.Filter{From: at.Add(time.Second)}, []uuid.UUID{b.ID, c.ID}},
		"from is in":    {operate.Filter{From: at, To: at.Add(time.Microsecond)}, []uuid.UUID{a.ID}},
		"to is out":     {operate.Filter{To: at}, nil},
		"ids":           {operate.Filter{IDs: []uuid.UUID{b.ID, uuid.New(), a.ID}}, []uuid.UUID{a.ID, b.ID}},
		"no ids":        {operate.Filter{IDs: []uuid.UUID{}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []uuid.UUID
			for _, d := range w.dead(test.filter) {
				got = append(got, d.Message.ID)
			}
			require.ElementsMatch(t, test.want, got)
			n, err := w.inbox.CountDeadLetters(t.Context(), test.filter)
			require.NoError(t, err)
			require.Equal(t, len(test.want), n)
		})
	}
	other, err := dedup.Open(t.Context(), w.pool, dedup.Config{Inbox: "another"})
	require.NoError(t, err)
	n, err := operate.Of(other).Redrive(t.Context(), operate.Filter{}, by)
	require.NoError(t, err)
	require.Zero(t, n, "of another inbox")
}

func TestPagesOfDeadLettersHoldStillWhileMoreDie(t *testing.T) {
	w := newWard(t)
	scope := w.scope("book")
	insert := func(from, to int, died string) {
		w.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason, died_at)
			select $1, gen_random_uuid(), 'orders', 0, o, 'failed', `+died+` from generate_series($2::int, $3) o`, scope, from, to)
	}
	insert(1, 20, `now() - (o / 7) * interval '1 s'`) // some die at the same time
	var got []int64
	var after operate.Cursor
	for pages := 0; pages == 0 || after != ""; pages++ {
		letters, next, err := w.page(w.inbox, after, 3)
		require.NoError(t, err)
		require.LessOrEqual(t, len(letters), 3)
		for _, d := range letters {
			got = append(got, d.Message.Offset)
		}
		after = next
		insert(100+pages, 100+pages, `clock_timestamp()`)
	}
	require.Len(t, got, 20)
	slices.Sort(got)
	require.Len(t, slices.Compact(got), 20)
	_, _, err := w.page(w.inbox, "x", 3)
	require.ErrorContains(t, err, `cursor "x"`)
}

func TestFirstPageOfManyDeadLettersIsReadFromTheirIndex(t *testing.T) {
	var plans strings.Builder
	w := newWard(t)
	w.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason, died_at)
		select $1, gen_random_uuid(), 'orders', 0, o, 'failed', now() - o * interval '1 s' from generate_series(1, 20000) o`, w.scope("book"))
	w.exec(`analyze firstseen.dead_letters, firstseen.scopes`)
	pool := deduptest.Explained(t, w.dsn, &plans)
	store, err := dedup.Attach(t.Context(), pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	_, next, err := w.page(operate.Of(store), "", 50)
	require.NoError(t, err)
	_, _, err = w.page(operate.Of(store), next, 50)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(plans.String(), "Index Scan Backward using dead_letters_died"), plans.String())
	require.NotContains(t, plans.String(), "Sort")
}

func TestAttachMakesNothing(t *testing.T) {
	t.Parallel()
	deduptest.AwayFromMidnight(t)
	db := deduptest.New(t)
	_, err := db.Pool.Exec(t.Context(), `drop table firstseen.inbox_`+time.Now().UTC().AddDate(0, 0,
		1).Format("20060102"))
	require.NoError(t, err)
	inboxes, err := dedup.Inboxes(t.Context(), db.Pool, "")
	require.NoError(t, err)
	require.Empty(t, inboxes)
	s, err := dedup.Attach(t.Context(), db.Pool, dedup.Config{Inbox: "x"})
	require.NoError(t, err)
	made, err := s.MakePartitions(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, made, "not made before")
	_, err = dedup.Attach(t.Context(), db.Pool, dedup.Config{Inbox: "x", Schema: "none"})
	require.ErrorContains(t, err, "firstseen migrate up")
}

func TestLettersWithoutAnIDStayWhereOthersAreRedriven(t *testing.T) {
	w := newWard(t)
	reasons := []identity.Reason{identity.ReasonMissingID, identity.ReasonAmbiguousID, identity.ReasonIDTooLong,
		identity.ReasonIDNotScalar, identity.ReasonNilID,
		identity.ReasonNotJSON, identity.ReasonFramed, identity.ReasonBadTenant}
	var ids []string
	for i, reason := range reasons {
		m := message(int64(i), "k")
		m.Refuse(reason, uuid.Nil)
		require.Equal(t, 1, w.process(m).Dead)
		ids = append(ids, m.ID.String())
	}
	ill := message(int64(len(reasons)), "k")
	w.kill(ill)
	w.handler.mend()

	n, err := w.inbox.CountRedrive(t.Context(), operate.Filter{})
	require.Equal(t, 1, n)
	var none *operate.NoIDError
	require.ErrorAs(t, err, &none)
	require.Equal(t, len(reasons), none.Letters)
	n, err = w.inbox.Redrive(t.Context(), operate.Filter{}, by)
	require.Equal(t, 1, n)
	require.ErrorAs(t, err, &none)
	require.Zero(t, w.count(`select redriven from firstseen.redrive(array_fill((select scope_id from firstseen.scopes), array[$2::int]), $1::text[]::uuid[], 'an older', 'build')`,
		ids, len(ids)), "nor by any other way")
	w.settle()
	require.Len(t, w.dead(operate.Filter{}), len(reasons))
	require.Equal(t, 1, w.count(`select count(*) from effects`))
	e, err := w.inbox.ExplainID(t.Context(), uuid.MustParse(ids[0]))
	tells(t, e, err, "it can't be redriven: a replay of its offset")
	n, err = w.inbox.CountRedrive(t.Context(), operate.Filter{Reason: "permanent"})
	require.NoError(t, err)
	require.Zero(t, n)
}
