package operate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// age makes everything that is there older.
func (w *ward) age(interval string) {
	w.t.Helper()
	for _, sql := range []string{
		`update firstseen.message_dedup set first_seen_at = first_seen_at - $1::interval`,
		`update firstseen.inbox set received_at = received_at - $1::interval`,
		`update firstseen.parked set received_at = received_at - $1::interval`,
		`update firstseen.dead_letters set received_at = received_at - $1::interval`,
	} {
		w.exec(sql, interval)
	}
}

func (w *ward) forget(before time.Duration, handlers ...string) int64 {
	w.t.Helper()
	times := map[string]time.Time{}
	for _, h := range handlers {
		times[h] = time.Now().Add(-before)
	}
	n, err := w.inbox.ForgetIDs(w.t.Context(), times, by)
	require.NoError(w.t, err)
	return n
}

const days2 = 48 * time.Hour

func TestForgetIDsTakesTheOldOnesOfItsHandlersOnly(t *testing.T) {
	w := newWard(t)
	p := w.newProcessor("book", "ship")
	old := message(0, "k")
	w.processWith(p, old)
	other, err := dedup.Open(t.Context(), w.pool, dedup.Config{Inbox: "other"})
	require.NoError(t, err)
	scopes, err := other.Scopes(t.Context(), []dedup.ScopeKey{{Handler: "book"}})
	require.NoError(t, err)
	w.exec(`insert into firstseen.message_dedup (scope_id, message_id) values ($1, $2)`, scopes.IDs[0], old.ID)
	w.age("3 days")
	young := message(1, "k")
	w.processWith(p, young)

	before := map[string]time.Time{"book": time.Now().Add(-days2)}
	estimated, err := w.inbox.EstimateForget(t.Context(), before)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"book": 1}, estimated)
	require.EqualValues(t, 1, w.forget(days2, "book"))
	require.Equal(t, 4, w.count(`select count(*) from firstseen.message_dedup`),
		"ship's, the young ones, and the other inbox's are left")
	require.Equal(t, 1, w.process(dedup.Message{ID: old.ID, Topic: "orders", Offset: 2}).New,
		"a copy takes effect again")
	require.Equal(t, 1, w.process(dedup.Message{ID: young.ID, Topic: "orders", Offset: 3}).Duplicates)
	require.Zero(t, w.forget(days2, "book"))
	require.EqualValues(t, 1, w.forget(days2, "book", "ship"))

	forgotten, err := w.inbox.Forgotten(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(-days2), forgotten["book"], time.Minute)
	require.Equal(t, 2,
		w.count(`select count(*) from firstseen.audit where action = 'forget' and actor = $1 and why = $2
		and inbox = 'orders-inbox' and subject ~ '^IDs of handler (book|ship) first seen before '`, by.Actor, by.Why))
	e, err := w.inbox.ExplainID(t.Context(), uuid.New())
	tells(t, e, err, "was never seen",
		"Or it was forgotten: retention has deleted IDs that inbox orders-inbox saw first before "+
			time.Now().Add(-days2).UTC().Format("2006-01-02"))
	e, err = operate.Of(other).ExplainID(t.Context(), uuid.New())
	require.NoError(t, err)
	require.NotContains(t, strings.Join(e.Sentences, " "), "forgotten")
}

// Only the IDs are made older: a message is found by its ID, not by its time.
func TestForgetIDsKeepsThoseOfParkedMessagesAndDeadLetters(t *testing.T) {
	w := newWard(t)
	dead, waiting := message(0, "a"), message(1, "b")
	w.kill(dead)
	w.failFirst(waiting)
	w.process(message(2, "c"))
	w.exec(`update firstseen.message_dedup set first_seen_at = now() - interval '400 days'`)
	require.EqualValues(t, 1, w.forget(days2, "book"))
	require.Equal(t, 2, w.count(`select count(*) from firstseen.message_dedup where message_id in ($1, $2)`, dead.ID,
		waiting.ID))
}

func TestForgetIDsLeavesTheIDOfAMessageThatIsJustBeingRerun(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.process(m)
	w.age("3 days")
	rerun, err := w.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = rerun.Rollback(context.Background()) }()
	_, err = rerun.Exec(t.Context(),
		`select firstseen.rerun(array[received_at], array[seq], array[message_id], 'me', 'x') from firstseen.inbox`)
	require.NoError(t, err)
	var forgotten, next int64
	require.NoError(t, w.pool.QueryRow(t.Context(), forgetAll).Scan(&forgotten, &next), "nothing is waited for")
	require.Zero(t, forgotten)
	require.Zero(t, next, "the same pages again")
	require.NoError(t, rerun.Commit(t.Context()))
	require.Zero(t, w.forget(days2, "book"))
	require.Equal(t, 1, w.count(`select count(*) from firstseen.message_dedup`))
}

const forgetAll = `select forgotten, next_page from firstseen.forget_ids('orders-inbox', '{book}', array[now() - interval '2 days'], 0, 10, 'me', 'x')`

// forgetting is a transaction, open until the test ends or it does, that has forgotten all.
func (w *ward) forgetting() pgx.Tx {
	w.t.Helper()
	tx, err := w.pool.Begin(w.t.Context())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(w.t.Context(), forgetAll)
	require.NoError(w.t, err)
	return tx
}

func TestRerunLeavesAMessageWhoseIDIsJustBeingForgotten(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.process(m)
	w.age("3 days")
	forgetting := w.forgetting()
	moved := make(chan int, 1)
	go func() {
		n, err := w.inbox.Rerun(context.Background(), ofBook(m.ID), by)
		if err != nil {
			n = -1
		}
		moved <- n
	}()
	w.awaitLock()
	require.NoError(t, forgetting.Commit(t.Context()))
	require.Zero(t, w.await(moved))
	w.requireOnePlace(m, 1)
}

func TestForgetIDsRefusesWhatTheOwnerKeeps(t *testing.T) {
	w := newWard(t)
	w.process(message(0, "k"))
	for _, before := range []time.Duration{0, 59 * time.Minute} {
		_, err := w.inbox.ForgetIDs(t.Context(), map[string]time.Time{"book": time.Now().Add(-before)}, by)
		require.ErrorContains(t, err, "the IDs of the last 01:00:00 are kept")
	}
	w.exec(`update firstseen.upkeep_limits set ids = '30 days', inbox = '90 days'`)
	_, err := w.inbox.ForgetIDs(t.Context(), map[string]time.Time{"book": time.Now().Add(-days2)}, by)
	require.ErrorContains(t, err, "the IDs of the last 30 days are kept")
	w.exec(`create table firstseen.inbox_20260101 partition of firstseen.inbox for values from ('2026-01-01 00:00+00') to ('2026-01-02 00:00+00')`)
	_, err = w.inbox.DropInbox(t.Context(), time.Now(), by)
	require.ErrorContains(t, err, "the inbox of the last 90 days is kept")
	_, err = w.inbox.ForgetIDs(t.Context(), map[string]time.Time{"book": time.Now().Add(-days2)}, operate.By{})
	require.ErrorContains(t, err, "why: say what for")
}

func TestForgetIDsGoesThroughTheTableByItsPages(t *testing.T) {
	t.Parallel()
	for kind, makeID := range map[string]string{
		"v4": `gen_random_uuid()`,
		"v7": `(lpad(to_hex(1700000000000 + n), 12, '0') || '7000' || right(gen_random_uuid()::text, 17))::text::uuid`,
	} {
		t.Run(kind, func(t *testing.T) {
			db := deduptest.New(t)
			var plans strings.Builder
			s := stageOn(t, db, deduptest.Explained(t, db.DSN, &plans))
			s.exec(`insert into firstseen.message_dedup (scope_id, message_id, first_seen_at)
				select $1, `+makeID+`, now() - interval '3 days' + n * interval '1 s' from generate_series(1, 50000) n`, s.scope)
			s.exec(`analyze firstseen.message_dedup`)
			// it leads to them as well: by what is known of the table, either is taken
			s.exec(`drop index firstseen.dead_letters_message`)
			s.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, reason)
				select scope_id, message_id, 'orders', 'failed' from firstseen.message_dedup where first_seen_at < now() - interval '71 hours'`)
			dead := s.count(`select count(*) from firstseen.dead_letters`)
			before := time.Now().Add(-days2)
			old := s.count(`select count(*) from firstseen.message_dedup where first_seen_at < $1`, before)
			plans.Reset()
			n, err := s.inbox.ForgetIDs(t.Context(), map[string]time.Time{"h": before}, by)
			require.NoError(t, err)
			require.EqualValues(t, old-dead, n)
			require.Equal(t, dead, s.count(`select count(*) from firstseen.message_dedup where first_seen_at < $1`,
				before))

			text := plans.String()
			require.Greater(t, strings.Count(text, "Tid Range Scan on message_dedup"), 3, "in several steps")
			require.Contains(t, text, "Tid Scan on message_dedup")
			require.Regexp(t, `Index (Only )?Scan using dead_letters_pkey`, text)
			require.Regexp(t, `Index (Only )?Scan using parked_message|Bitmap Index Scan on parked_message`, text)
			require.NotRegexp(t, `Seq Scan on (message_dedup|parked|dead_letters)`, text)
		})
	}
}

func TestForgetIDsStopsWithItsContext(t *testing.T) {
	w := newWard(t)
	w.process(message(0, "k"))
	w.age("3 days")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.inbox.ForgetIDs(ctx, map[string]time.Time{"book": time.Now().Add(-days2)}, by)
	require.ErrorIs(t, err, context.Canceled)
}

func TestOneRetentionRunsAtATime(t *testing.T) {
	w := newWard(t)
	err := w.inbox.Exclusively(t.Context(), func(ctx context.Context) error {
		return w.inbox.Exclusively(ctx, func(context.Context) error { return errors.New("both run") })
	})
	require.ErrorIs(t, err, operate.ErrElsewhere)
	require.NoError(t, w.inbox.Exclusively(t.Context(), func(context.Context) error { return nil }))
}

func TestDropInboxDropsWholeDaysOfProcessedMessagesOnly(t *testing.T) {
	w := newWard(t)
	for _, days := range []int{2, 3, 5} {
		deduptest.InboxDay(t, w.pool, days)
	}
	done, dead, waiting, lost := message(0, "a"), message(1, "b"), message(2, "c"), message(3, "d")
	w.process(done)
	w.kill(dead)
	w.failFirst(waiting)
	w.process(lost)
	w.age("3 days")
	w.exec(`with moved as (update firstseen.inbox set received_at = now() - interval '4 days' where message_id = $1 returning *)
		update firstseen.message_dedup d set first_seen_at = m.received_at from moved m where d.message_id = m.message_id`, lost.ID)
	require.Equal(t, 1, w.count(`select count(*) from firstseen.inbox_default`), "a day without a table")

	keep := time.Now().Add(-days2)
	days, err := w.inbox.InboxDaysBefore(t.Context(), keep)
	require.NoError(t, err)
	require.Len(t, days, 2)
	dropped, err := w.inbox.DropInbox(t.Context(), keep, by)
	require.NoError(t, err)
	require.Equal(t, 2, dropped.Days)
	require.EqualValues(t, 1, dropped.Rows)
	require.Positive(t, dropped.Bytes)
	require.Zero(t, w.count(`select count(*) from firstseen.inbox`))
	require.Equal(t, 1, w.count(`select count(*) from firstseen.parked`))
	require.Equal(t, 1, w.count(`select count(*) from firstseen.dead_letters`))
	require.Equal(t, 4, w.count(`select count(*) from firstseen.message_dedup`), "the IDs stay known")
	require.Equal(t, 1, w.count(`select count(*) from pg_class where relname = $1`,
		"inbox_"+time.Now().UTC().AddDate(0, 0, -2).Format("20060102")))
	require.Equal(t, 1, w.count(
		`select count(*) from firstseen.audit where action = 'drop' and subject ~ '^inbox day \d{4}-\d\d-\d\d$'`))
	e, err := w.inbox.ExplainID(t.Context(), done.ID)
	tells(t, e, err, "kept no more: it was handled, and retention has dropped the inbox's days before "+
		days[1].Day.AddDate(0, 0, 1).Format("2006-01-02"))

	w.handler.mend()
	w.exec(`update firstseen.lanes set due_at = now()`)
	w.settle()
	require.Equal(t, 1, w.count(`select count(*) from firstseen.inbox`), "what was unfinished is finished later")
	preview, err := w.inbox.CountRerun(t.Context(), ofBook(done.ID))
	require.NoError(t, err)
	require.Equal(t, []operate.MissingRerun{{done.ID, "dropped"}}, preview.Missing)
}

func TestDropInboxNeverWaitsLongForWhoUsesTheInbox(t *testing.T) {
	w := newWard(t)
	day := deduptest.InboxDay(t, w.pool, 3).Format(time.DateOnly)
	w.process(message(0, "k"))
	w.age("3 days")
	drop := func() (state string) {
		require.NoError(t, w.pool.QueryRow(t.Context(),
			`select firstseen.drop_inbox_day('orders-inbox', $1::text::date, 'me', 'x')`, day).Scan(&state))
		return state
	}
	reader, err := w.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), `select * from firstseen.inbox`)
	require.NoError(t, err)
	require.Equal(t, "busy", drop())
	require.NoError(t, reader.Rollback(t.Context()))

	batch, err := w.pool.Begin(t.Context()) // a batch that has written its rows
	require.NoError(t, err)
	_, err = batch.Exec(t.Context(),
		`insert into firstseen.inbox (scope_id, message_id, topic) values (1, gen_random_uuid(), 'orders')`)
	require.NoError(t, err)
	require.Equal(t, "emptied", drop(), "space is given back though batches go on")
	require.Equal(t, "busy", drop())
	require.NoError(t, batch.Commit(t.Context()))
	require.Equal(t, "dropped", drop())
	require.Equal(t, "gone", drop())
}

// A copy of an ID that is just being forgotten waits for that and is new; nothing deadlocks.
func TestCopyOfAnIDThatIsJustBeingForgottenIsNew(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.process(m)
	w.age("3 days")
	forgetting := w.forgetting()
	done := make(chan int, 1)
	p, position := w.processor, w.position(0)
	go func() {
		again := dedup.Message{ID: m.ID, Topic: "orders", Offset: 1}
		result, err := p.Process(context.Background(), batchOf(position, again))
		if err != nil {
			result.New = -1
		}
		done <- result.New
	}()
	w.awaitLock()
	require.NoError(t, forgetting.Commit(t.Context()))
	require.Equal(t, 1, w.await(done))
}

func batchOf(p *dedup.Position, m dedup.Message) handlers.Batch {
	return handlers.Batch{Position: p, Next: m.Offset + 1, Messages: []dedup.Message{m}}
}
