package operate_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

// settled accepts messages that have a status from the beginning.
func (s *stage) settled(status operate.Status, scope int32, ms ...dedup.Message) {
	s.t.Helper()
	b := &dedup.Batch{}
	for i := range ms {
		e := dedup.Entry{Scope: scope, Message: &ms[i], Lane: dedup.OrderByKey.Lane(&ms[i])}
		switch status {
		case operate.StatusPending:
			e.State, e.Due = dedup.Parked, time.Hour
		case operate.StatusFailed:
			e.State, e.Due, e.Attempts, e.Reason, e.Error = dedup.Parked, time.Hour, 3,
				"handler_failed", "no such account"
		case operate.StatusDead:
			e.State, e.Attempts, e.Reason, e.Error = dedup.Dead, 10, "attempts_exhausted", "no such account"
		}
		b.Entries = append(b.Entries, e)
	}
	s.accept(b)
}

func (s *stage) list(l operate.Listing) ([]operate.Listed, operate.Cursor) {
	s.t.Helper()
	if l.Limit == 0 {
		l.Limit = 1000
	}
	found, next, err := s.inbox.Messages(s.t.Context(), l)
	require.NoError(s.t, err)
	return found, next
}

func listedIDs(found []operate.Listed) []uuid.UUID {
	var ids []uuid.UUID
	for _, m := range found {
		ids = append(ids, m.Message.ID)
	}
	return ids
}

func TestMessagesAreListedByWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	sent := map[operate.Status]dedup.Message{}
	for i, status := range operate.Statuses {
		m := full(int64(i))
		sent[status] = m
		s.settled(status, s.scope, m)
	}
	for status, want := range sent {
		found, next := s.list(operate.Listing{Status: status, Content: true})
		require.Len(t, found, 1, status)
		require.Empty(t, next)
		m := found[0]
		require.True(t, want.Timestamp.Equal(m.Message.Timestamp))
		m.Message.Timestamp = want.Timestamp
		require.Equal(t, want, m.Message)
		require.Equal(t, []any{"test", "h", status}, []any{m.Inbox, m.Handler, m.Status})
		require.WithinDuration(t, time.Now(), m.ReceivedAt, time.Minute)
		require.WithinDuration(t, time.Now(), m.At, time.Minute)
		require.Equal(t, len(want.Key)+len(want.Value)+len(dedup.AppendHeaders(nil, want.Headers)), m.Bytes)
		waits := status == operate.StatusPending || status == operate.StatusFailed
		require.Equal(t, waits, m.DueAt.After(time.Now()), status)
		require.Equal(t, waits || status == operate.StatusDead, m.Lane != uuid.Nil, status)
		bare, _ := s.list(operate.Listing{Status: status})
		require.Equal(t, m.Bytes, bare[0].Bytes)
		require.Equal(t, [][]byte{nil, nil}, [][]byte{bare[0].Message.Key, bare[0].Message.Value})
		require.Empty(t, bare[0].Message.Headers)
	}
	failed, _ := s.list(operate.Listing{Status: operate.StatusFailed})
	require.Equal(t, []any{3, "handler_failed", "no such account", dedup.Parked},
		[]any{failed[0].Attempts, failed[0].Reason, failed[0].Error, failed[0].State})
	dead, _ := s.list(operate.Listing{Status: operate.StatusDead})
	require.Equal(t, []any{10, "attempts_exhausted", dedup.Dead},
		[]any{dead[0].Attempts, dead[0].Reason, dead[0].State})
	_, _, err := s.inbox.Messages(t.Context(), operate.Listing{Status: "lost", Limit: 1})
	require.ErrorContains(t, err, `status "lost" is none of [pending failed processed dead]`)
}

func TestFilterPicksMessagesOfEveryStatus(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	book := s.scopes(dedup.ScopeKey{Handler: "book"}, dedup.ScopeKey{Handler: "book", Tenant: "blue"})
	for _, status := range operate.Statuses {
		a, b, c := message(0, "k1"), message(1, "k2"), message(2, "")
		c.Topic = "returns"
		s.settled(status, s.scope, a)
		s.settled(status, book[0], b)
		s.settled(status, book[1], c)
		for name, test := range map[string]struct {
			filter operate.Filter
			want   []uuid.UUID
		}{
			"none":    {operate.Filter{}, []uuid.UUID{c.ID, b.ID, a.ID}},
			"handler": {operate.Filter{Handler: "book"}, []uuid.UUID{c.ID, b.ID}},
			"tenant":  {operate.Filter{Handler: "book", Tenant: "blue"}, []uuid.UUID{c.ID}},
			"topic":   {operate.Filter{Topic: "returns"}, []uuid.UUID{c.ID}},
			"key":     {operate.Filter{Key: []byte("k1")}, []uuid.UUID{a.ID}},
			"empty":   {operate.Filter{Key: []byte{}}, []uuid.UUID{c.ID}},
			"from":    {operate.Filter{From: time.Now().Add(time.Hour)}, nil},
			"to":      {operate.Filter{To: time.Now().Add(-time.Hour)}, nil},
			"between": {operate.Filter{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour),
				Topic: "orders"}, []uuid.UUID{b.ID, a.ID}},
			"ids": {operate.Filter{IDs: []uuid.UUID{b.ID, uuid.New()}}, []uuid.UUID{b.ID}},
		} {
			found, _ := s.list(operate.Listing{Status: status, Filter: test.filter})
			require.Equal(t, test.want, listedIDs(found), "%s by %s", status, name)
		}
	}
	found, _ := s.list(operate.Listing{Status: operate.StatusFailed, Filter: operate.Filter{Reason: "other"}})
	require.Empty(t, found)
	found, _ = s.list(operate.Listing{Status: operate.StatusProcessed,
		Filter: operate.Filter{Reason: "does not count"}})
	require.Len(t, found, 3)
}

func TestPagesOfMessagesHoldStillWhileMoreCome(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, status := range operate.Statuses {
		var want, got []uuid.UUID
		for n := range 4 { // five at the same time
			var ms []dedup.Message
			for i := range 5 {
				ms = append(ms, message(int64(5*n+i), "k"))
				want = append(want, ms[i].ID)
			}
			s.settled(status, s.scope, ms...)
		}
		l := operate.Listing{Status: status, Limit: 3}
		for page := 0; page == 0 || l.After != ""; page++ {
			found, next := s.list(l)
			require.LessOrEqual(t, len(found), 3)
			got = append(got, listedIDs(found)...)
			l.After = next
			s.settled(status, s.scope, message(int64(100+page), "k"))
		}
		require.Len(t, got, len(want), status)
		require.ElementsMatch(t, want, got, status)
		_, _, err := s.inbox.Messages(t.Context(), operate.Listing{Status: status, Limit: 3, After: "x1.2"})
		var cursor *operate.CursorError
		require.ErrorAs(t, err, &cursor)
	}
}

func TestPageIsShorterWhereItsContentIsLarge(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var want []uuid.UUID
	for n := range 5 {
		m := message(int64(n), "k")
		m.Value = make([]byte, 6<<20)
		s.settled(operate.StatusDead, s.scope, m)
		want = append(want, m.ID)
	}
	slices.Reverse(want)
	first, next := s.list(operate.Listing{Status: operate.StatusDead, Content: true})
	require.Equal(t, want[:2], listedIDs(first))
	second, _ := s.list(operate.Listing{Status: operate.StatusDead, Content: true, After: next})
	require.Equal(t, want[2:4], listedIDs(second))
	bare, next := s.list(operate.Listing{Status: operate.StatusDead})
	require.Equal(t, want, listedIDs(bare))
	require.Empty(t, next)
}

func TestInboxIsReadBackFromTheNewestWithoutASort(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	midnight := deduptest.InboxDay(t, db.Pool, 0)
	var plans strings.Builder
	s := stageOn(t, db, deduptest.Explained(t, db.DSN, &plans))
	s.exec(`with m as (select gen_random_uuid() as id, n from generate_series(1, 20000) n),
		seen as (insert into firstseen.message_dedup (scope_id, message_id, first_seen_at)
			select $1, id, $2::timestamptz + n * interval '1 s' from m)
		insert into firstseen.inbox (received_at, seq, scope_id, message_id, topic, "partition", "offset")
		select $2::timestamptz + n * interval '1 s', n, $1, id, case n when 5 then 'rare' else 'orders' end, 0, n from m`, s.scope, midnight)
	s.exec(`analyze firstseen.inbox, firstseen.message_dedup, firstseen.scopes`)
	plans.Reset()
	found, _ := s.list(operate.Listing{Status: operate.StatusProcessed, Filter: operate.Filter{Topic: "orders"},
		Limit: 10})
	require.EqualValues(t, 20000, found[0].Message.Offset)
	found, _ = s.list(operate.Listing{Status: operate.StatusProcessed,
		Filter: operate.Filter{Topic: "rare", From: midnight, To: midnight.AddDate(0, 0, 1)}})
	require.Len(t, found, 1)
	text := plans.String()
	require.Contains(t, text, "Index Scan Backward using inbox_"+midnight.Format("20060102")+"_pkey")
	require.NotContains(t, text, "Sort  (")
	require.NotContains(t, text, "Seq Scan on inbox_")

	plans.Reset()
	byID, _ := s.list(operate.Listing{Status: operate.StatusProcessed, Filter: operate.Filter{IDs: listedIDs(found)}})
	require.Equal(t, found, byID)
	require.Contains(t, plans.String(), "Index Scan using message_dedup_pkey")
	require.NotContains(t, plans.String(), "Seq Scan on inbox_"+midnight.Format("20060102"))
}

func TestListEndsWithTheTimeOfWhoeverAsked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	tx, err := s.admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), `lock table firstseen.parked in access exclusive mode`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, _, err = s.inbox.Messages(ctx, operate.Listing{Status: operate.StatusFailed, Limit: 1})
	require.ErrorContains(t, err, "57014", "ended by Postgres, so that the connection outlives it")
}

func TestListsAreGivenInEveryModeThatAPoolerMayNeed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := message(0, "k")
	s.settled(operate.StatusFailed, s.scope, m)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := deduptest.OpenPool(t, s.dsn, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		store, err := dedup.Attach(t.Context(), pool, dedup.Config{Inbox: "test"})
		require.NoError(t, err)
		f := operate.Filter{Key: m.Key, IDs: []uuid.UUID{m.ID}, From: time.Now().Add(-time.Hour),
			To: time.Now().Add(time.Hour)}
		for _, status := range operate.Statuses {
			found, _, err := operate.Of(store).Messages(t.Context(),
				operate.Listing{Status: status, Filter: f, Limit: 1, Content: true})
			require.NoError(t, err, "%s %s", mode, status)
			require.Equal(t, status == operate.StatusFailed, len(found) == 1)
		}
		backlog, err := operate.Of(store).Backlog(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, backlog[0].Failed)
		_, _, err = operate.Of(store).Audit(t.Context(), operate.AuditFilter{Actor: "ann", From: time.Now()}, "a9", 1)
		require.NoError(t, err)
		_, err = operate.Of(store).AllPositions(t.Context(), 1)
		require.NoError(t, err)
	}
}
