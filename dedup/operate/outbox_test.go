package operate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// post is an outbox in which something has become of messages.
type post struct {
	*deduptest.DB
	t     *testing.T
	inbox *operate.Inbox
	ids   map[string]uuid.UUID // by the messages' values
}

func newPost(t *testing.T) *post {
	t.Helper()
	p := &post{DB: deduptest.New(t), t: t, ids: map[string]uuid.UUID{}}
	var err error
	p.inbox, err = operate.Open(t.Context(), p.Pool, dedup.Config{Inbox: dedup.OutboxInbox})
	require.NoError(t, err)
	return p
}

// add adds messages, each known by its value.
func (p *post) add(ms ...outbox.Message) {
	p.t.Helper()
	var w outbox.Writer
	added, err := w.AddAll(p.t.Context(), p.Pool, ms)
	require.NoError(p.t, err)
	for i, a := range added {
		p.ids[string(ms[i].Value)] = a.ID
	}
}

func letter(topic, value string) outbox.Message {
	return outbox.Message{Topic: topic, Key: []byte(value), Value: []byte(value)}
}

// relay sends what there is for the topics sent, sick and dead, of which two fail.
func (p *post) relay() {
	p.t.Helper()
	send := func(err error) outbox.Func { return func(context.Context, dedup.Message) error { return err } }
	retry := handlers.Retry{Base: time.Hour, Cap: time.Hour, MaxAttempts: 5}
	r, err := outbox.New(p.t.Context(), outbox.Config{Pool: deduptest.OpenPool(p.t, p.DSN, nil), Logger: quiet(),
		LanePoll: 10 * time.Millisecond, Destinations: []outbox.Destination{
			{Name: "events", Topics: []string{"sent"}, Sender: send(nil), Retry: retry},
			{Name: "crm", Topics: []string{"sick"}, Sender: send(errors.New(strings.Repeat("x", 3000))), Retry: retry},
			{Name: "mail", Topics: []string{"dead"}, Retry: retry,
				Sender: send(handlers.Permanent(errors.New("no such mailbox")))},
		}})
	require.NoError(p.t, err)
	ctx, cancel := context.WithCancel(p.t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	require.Eventually(p.t, func() bool {
		return p.count(`select count(*) from firstseen.outbox where topic in ('sent', 'sick', 'dead')`) == 0
	}, 3*time.Minute, 5*time.Millisecond)
	cancel()
	running.Wait()
}

func (p *post) count(sql string) (n int) {
	p.t.Helper()
	require.NoError(p.t, p.Pool.QueryRow(context.Background(), sql).Scan(&n))
	return n
}

// known is a data set of which all is known: three messages are sent, one has failed, with another behind it, two are
// dead, three wait, and one is not to be sent before an hour is over.
func (p *post) known() {
	p.t.Helper()
	later := letter("sent", "later")
	later.NotBefore = time.Now().Add(time.Hour)
	sick := letter("sick", "behind")
	sick.Key = []byte("sick")
	keyed := letter("sent", "keyed")
	keyed.IdempotencyKey, keyed.Tenant = "order 7", "acme"
	p.add(letter("sent", "a"), letter("sent", "b"), keyed, letter("sick", "sick"), sick, letter("dead", "dead 1"),
		letter("dead", "dead 2"), later)
	p.relay()
	p.add(letter("nobody", "waits 1"), letter("nobody", "waits 2"), letter("sent", "waits 3"))
}

func (p *post) list(status operate.Status, f operate.Filter) (values []string) {
	p.t.Helper()
	found, next, err := p.inbox.Messages(p.t.Context(),
		operate.Listing{Status: status, Filter: f, Limit: 100, Content: true})
	require.NoError(p.t, err)
	require.Empty(p.t, next)
	for _, m := range found {
		require.Equal(p.t, p.ids[string(m.Message.Value)], m.Message.ID)
		require.Equal(p.t, status, m.Status)
		values = append(values, string(m.Message.Value))
	}
	return values
}

func TestMessagesOfTheOutboxAreListedByWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.known()
	require.ElementsMatch(t, []string{"a", "b", "keyed"}, p.list(operate.StatusProcessed, operate.Filter{}))
	require.Equal(t, []string{"sick"}, p.list(operate.StatusFailed, operate.Filter{}))
	require.ElementsMatch(t, []string{"dead 1", "dead 2"}, p.list(operate.StatusDead, operate.Filter{}))
	require.Equal(t, []string{"waits 3", "waits 2", "waits 1", "later", "behind"},
		p.list(operate.StatusPending, operate.Filter{}), "the last added first, wherever they lie")
	for name, test := range map[string]struct {
		filter operate.Filter
		want   []string
	}{
		"topic":       {operate.Filter{Topic: "nobody"}, []string{"waits 2", "waits 1"}},
		"destination": {operate.Filter{Handler: "crm"}, []string{"behind"}},
		"key":         {operate.Filter{Key: []byte("sick")}, []string{"behind"}},
		"tenant":      {operate.Filter{Tenant: "acme"}, nil},
		"reason":      {operate.Filter{Reason: "failed"}, nil},
		"until":       {operate.Filter{To: time.Now().Add(-time.Hour)}, nil},
		"since":       {operate.Filter{From: time.Now().Add(-time.Hour), Topic: "sent"}, []string{"waits 3", "later"}},
		"ids":         {operate.Filter{IDs: []uuid.UUID{p.ids["later"], p.ids["a"]}}, []string{"later"}},
	} {
		require.Equal(t, test.want, p.list(operate.StatusPending, test.filter), name)
	}
	require.Equal(t, []string{"keyed"}, p.list(operate.StatusProcessed, operate.Filter{Tenant: "acme"}))
}

func TestPagesOfWhatWaitsInTheOutboxHaveEachMessageOnce(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.known()
	for n := range 50 {
		p.add(letter(fmt.Sprint("topic ", n%3), fmt.Sprint(n)))
	}
	want := p.list(operate.StatusPending, operate.Filter{})
	require.Len(t, want, 55)
	var got []string
	for after, pages := operate.Cursor(""), 0; pages == 0 || after != ""; pages++ {
		found, next, err := p.inbox.Messages(t.Context(),
			operate.Listing{Status: operate.StatusPending, After: after, Limit: 7, Content: true})
		require.NoError(t, err)
		for _, m := range found {
			got = append(got, string(m.Message.Value))
		}
		after = next
		p.add(letter("nobody", fmt.Sprint("meanwhile ", pages)))
	}
	require.Equal(t, want, got)
	for _, wrong := range []operate.Cursor{"p1.2", "o", "ox", "7"} {
		_, _, err := p.inbox.Messages(t.Context(), operate.Listing{Status: operate.StatusPending, After: wrong, Limit: 1})
		require.ErrorAs(t, err, new(*operate.CursorError), wrong)
	}
}

func TestBacklogOfTheOutboxIsWhatIsKnown(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.known()
	p.exec(`update firstseen.outbox set added_at = now() - interval '1 hour' where payload = 'waits 2'`)
	p.exec(`update firstseen.parked set produced_at = now() - interval '2 hours'`)
	found, err := p.inbox.OutboxBacklog(t.Context())
	require.NoError(t, err)
	ages := map[string]time.Duration{}
	for i := range found {
		if !found[i].OldestAt.IsZero() {
			ages[found[i].Topic] = time.Since(found[i].OldestAt)
			found[i].OldestAt = time.Time{}
		}
	}
	require.Equal(t, []operate.OutboxBacklog{{Topic: "dead", Dead: 2}, {Topic: "nobody", Pending: 2},
		{Topic: "sent", Pending: 1, Delayed: 1}, {Topic: "sick", Pending: 1, Failed: 1, Parked: 2}}, found)
	require.Len(t, ages, 3)
	require.InDelta(t, time.Hour.Seconds(), ages["nobody"].Seconds(), 60)
	require.InDelta(t, 2*time.Hour.Seconds(), ages["sick"].Seconds(), 60)
	require.InDelta(t, 0, ages["sent"].Seconds(), 60)

	p.exec(`update firstseen.outbox_delayed set due_at = now() - interval '3 hours'`)
	found, err = p.inbox.OutboxBacklog(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{2, 0}, []int64{found[2].Pending, found[2].Delayed}, "its time has come")
	require.InDelta(t, 3*time.Hour.Seconds(), time.Since(found[2].OldestAt).Seconds(), 60, "it waits since then")
	p.exec(`update firstseen.outbox_delayed set added_at = now() - interval '1 week'`)
	p.exec(`select firstseen.release_outbox(10)`)
	found, err = p.inbox.OutboxBacklog(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 3*time.Hour.Seconds(), time.Since(found[2].OldestAt).Seconds(), 60, "nor does it when it may be sent")
}

func TestWhatWasSentIsCountedByTopicAlsoWhereNothingWaits(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.known()
	sent := func() map[string]int64 {
		found, err := p.inbox.OutboxTopics(t.Context())
		require.NoError(t, err)
		byTopic := map[string]int64{}
		for _, topic := range found {
			byTopic[topic.Topic] = topic.Sent
		}
		require.Len(t, byTopic, len(found))
		return byTopic
	}
	want := map[string]int64{"dead": 0, "nobody": 0, "sent": 3, "sick": 0}
	require.Equal(t, want, sent())
	p.exec(`delete from firstseen.outbox; delete from firstseen.outbox_delayed`)
	delete(want, "nobody")
	require.Equal(t, want, sent(), "what waits no more is still counted where it was sent")
}

func (p *post) exec(sql string, args ...any) {
	p.t.Helper()
	_, err := p.Pool.Exec(context.Background(), sql, args...)
	require.NoError(p.t, err)
}

func TestViewHasEachMessageOfTheOutboxOnceWithItsStatus(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.known()
	type row struct {
		Status, LiesIn, Topic, Tenant, Destination, Value, Key, Error string
		Retries                                                       int
		Due, Taken, Processed, Died, Next                             bool
	}
	rows, err := p.Pool.Query(t.Context(), `select status, lies_in, topic, tenant, coalesce(destination, ''),
		convert_from(payload, 'UTF8'), coalesce(idempotency_key, ''), coalesce(error, ''), retry_count, due_at is not null,
		taken_at is not null, processed_at is not null, died_at is not null, next_attempt_at is not null
		from firstseen.outbox_messages order by outbox_id`)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	require.NoError(t, err)
	sent := row{Status: "processed", LiesIn: "inbox", Topic: "sent", Destination: "events", Taken: true, Processed: true}
	of := func(r row, value string) row { r.Value = value; return r }
	keyed := of(sent, "keyed")
	keyed.Tenant, keyed.Key = "acme", "order 7"
	dead := row{Status: "dead", LiesIn: "dead_letters", Topic: "dead", Destination: "mail", Retries: 1, Taken: true,
		Died: true, Error: "no such mailbox"}
	waits := row{Status: "pending", LiesIn: "outbox", Topic: "nobody"}
	last := of(waits, "waits 3")
	last.Topic = "sent"
	require.Equal(t, []row{of(sent, "a"), of(sent, "b"), keyed,
		{Status: "failed", LiesIn: "parked", Topic: "sick", Destination: "crm", Value: "sick", Retries: 1, Taken: true,
			Next: true, Error: strings.Repeat("x", 2000)},
		{Status: "pending", LiesIn: "parked", Topic: "sick", Destination: "crm", Value: "behind", Taken: true, Next: true},
		of(dead, "dead 1"), of(dead, "dead 2"),
		{Status: "pending", LiesIn: "outbox_delayed", Topic: "sent", Value: "later", Due: true, Next: true},
		of(waits, "waits 1"), of(waits, "waits 2"), last}, found)
	require.Equal(t, len(found), p.count(`select count(*) from firstseen.outbox_messages
		where created_at > now() - interval '1 hour'`))

	key := uuid.NewString()
	p.add(outbox.Message{Topic: "nobody", Value: []byte("by UUID"), IdempotencyKey: key})
	require.Equal(t, 1, p.count(`select count(*) from firstseen.outbox_messages where idempotency_key = '`+key+`'`))
}

// Days of the inbox are those of all inboxes, so what keeps a consumer's inbox small keeps the outbox's.
func TestSentMessagesGoWithTheirDayOfTheInboxAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.known()
	day := deduptest.InboxDay(t, p.Pool, 3)
	p.exec(`with old as (update firstseen.inbox set received_at = $1 returning message_id)
		update firstseen.message_dedup d set first_seen_at = $1 from old where d.message_id = old.message_id`, day)
	require.Len(t, p.list(operate.StatusProcessed, operate.Filter{}), 3)
	orders, err := operate.Open(t.Context(), p.Pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	dropped, err := orders.DropInbox(t.Context(), time.Now().AddDate(0, 0, -1), operate.By{Actor: "retention", Why: "1d"})
	require.NoError(t, err)
	require.Equal(t, 1, dropped.Days)
	require.Empty(t, p.list(operate.StatusProcessed, operate.Filter{}))
	require.Len(t, p.list(operate.StatusPending, operate.Filter{}), 5)
	require.Len(t, p.list(operate.StatusFailed, operate.Filter{}), 1)
	require.Len(t, p.list(operate.StatusDead, operate.Filter{}), 2)
	e, err := orders.ExplainID(t.Context(), p.ids["keyed"])
	tells(t, e, err, "Destination events of the outbox, for tenant acme, saw it first", "it was sent, and retention has dropped")
	again, err := new(outbox.Writer).Add(t.Context(), p.Pool,
		outbox.Message{Topic: "sent", Tenant: "acme", IdempotencyKey: "order 7"})
	require.NoError(t, err)
	require.Equal(t, outbox.Added{ID: p.ids["keyed"], AlreadyExisted: true}, again)
}
