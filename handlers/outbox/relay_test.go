package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

const waitLimit = 2 * time.Minute

// target is what messages are sent to: it keeps them, in the order that they come in.
type target struct {
	mu   sync.Mutex
	got  []dedup.Message
	fail func(m dedup.Message) error // nil: it takes all
}

func (s *target) send(_ context.Context, m dedup.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(m); err != nil {
			return err
		}
	}
	m.Key, m.Value = []byte(string(m.Key)), []byte(string(m.Value))
	s.got = append(s.got, m)
	return nil
}

func (s *target) fails(f func(m dedup.Message) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// values are what was sent, of one key, in order.
func (s *target) values(key string) (values []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.got {
		if string(m.Key) == key {
			values = append(values, string(m.Value))
		}
	}
	return values
}

func (s *target) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// quick is a relay's config for tests.
func quick(t *testing.T, dsn string, log *deduptest.Log, topics map[string]handlers.Sender,
	retry handlers.Retry) outbox.Config {
	t.Helper()
	pool := deduptest.OpenPool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 12 })
	cfg := outbox.Config{Pool: pool, IdlePoll: 50 * time.Millisecond, LanePoll: 10 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for topic, sender := range topics {
		cfg.Destinations = append(cfg.Destinations, outbox.Destination{Name: "to " + topic, Topics: []string{topic},
			Sender: sender, Retry: retry})
	}
	return cfg
}

var often = handlers.Retry{Base: time.Millisecond, Cap: 5 * time.Millisecond, MaxAttempts: 5}

// relay runs a relay until stop is called or the test ends.
func (p *place) relay(cfg outbox.Config) (r *outbox.Relay, stop func()) {
	p.t.Helper()
	r, err := outbox.New(p.t.Context(), cfg)
	require.NoError(p.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	p.t.Cleanup(stop)
	return r, stop
}

// relayTo runs one that sends the topic "t" to a function.
func (p *place) relayTo(send outbox.Func) (stop func(), log *deduptest.Log) {
	log = &deduptest.Log{}
	_, stop = p.relay(quick(p.t, p.DSN, log, map[string]handlers.Sender{"t": send}, often))
	return stop, log
}

func (p *place) eventually(what string, is func() bool) {
	p.t.Helper()
	require.Eventually(p.t, is, waitLimit, 5*time.Millisecond, what)
}

// settled waits until nothing is to be sent any more.
func (p *place) settled() {
	p.t.Helper()
	deduptest.UntilDone(p.t, waitLimit, "messages are left", func() (state string, done bool) {
		left := p.count(`select (select count(*) from firstseen.outbox) + (select count(*) from firstseen.parked)`)
		return fmt.Sprint(left, " ", p.count(`select coalesce(sum(attempts), 0) from firstseen.parked`)), left == 0
	})
}

func numbered(n, keys int) []outbox.Message {
	ms := make([]outbox.Message, n)
	for i := range ms {
		ms[i] = outbox.Message{Topic: "t", Key: fmt.Append(nil, "k", i%keys), Value: fmt.Append(nil, i)}
	}
	return ms
}

// requireInOrder checks that each key's messages came once and in the order that they were added in.
func (s *target) requireInOrder(t *testing.T, n, keys int) {
	t.Helper()
	for k := range keys {
		var want []string
		for i := k; i < n; i += keys {
			want = append(want, fmt.Sprint(i))
		}
		require.Equal(t, want, s.values(fmt.Sprint("k", k)))
	}
}

func TestSentMessageIsProcessedUnderItsIDAndIsNeverSentAgain(t *testing.T) {
	p, to := newPlace(t), &target{}
	m := outbox.Message{Topic: "t", Key: []byte("k"), Value: []byte("v"), Tenant: "acme", IdempotencyKey: "order 17",
		Headers: []dedup.Header{{Key: "a", Value: []byte{}}}}
	added := p.add(m)[0]
	_, log := p.relayTo(to.send)
	p.settled()
	require.Len(t, to.got, 1)
	got := to.got[0]
	require.Equal(t, []any{added.ID, "order 17", "acme", "t", m.Headers, "v"},
		[]any{got.ID, got.RawID, got.Tenant, got.Topic, got.Headers, string(got.Value)})
	require.Equal(t, 1, p.count(`select count(*) from firstseen.inbox i join firstseen.scopes s using (scope_id)
		where i.message_id = $1 and s.inbox = 'outbox' and s.handler = 'to t' and s.tenant = 'acme'
		and processed_at is not null`, added.ID))
	require.Equal(t, outbox.Added{ID: added.ID, AlreadyExisted: true}, p.add(m)[0])
	p.add(numbered(1, 1)...)
	p.settled()
	require.Equal(t, 2, to.count())
	for _, event := range []string{"OUTBOX_WORKER_FETCH", "OUTBOX_WORKER_DISPATCH_SUCCESS"} {
		require.Contains(t, log.String(), "event="+event)
	}
}

func TestNothingOfATransactionThatIsOpenOrRolledBackIsSent(t *testing.T) {
	p, to := newPlace(t), &target{}
	p.relayTo(to.send)
	for _, commit := range []bool{false, true} {
		tx, err := p.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = writer.Add(t.Context(), tx, outbox.Message{Topic: "t", Key: []byte("open"), Value: []byte("open")})
		require.NoError(t, err)
		p.add(outbox.Message{Topic: "t", Key: []byte("open"), Value: []byte("later")}) // a higher number, committed before
		p.eventually("the later one was not sent", func() bool { return len(to.values("open")) == 1 })
		require.Equal(t, []string{"later"}, to.values("open"))
		if !commit {
			require.NoError(t, tx.Rollback(t.Context()))
			to.got = nil
			continue
		}
		require.NoError(t, tx.Commit(t.Context()))
		p.settled()
		require.Equal(t, []string{"later", "open"}, to.values("open"), "a lower number that commits late is not passed over")
	}
}

func TestManyMessagesAreSentOnceAndInTheOrderOfTheirKeysByTwoRelays(t *testing.T) {
	p, to := newPlace(t), &target{}
	const n, keys = 5000, 40
	for range 2 {
		p.relayTo(to.send)
	}
	for from := 0; from < n; from += 500 {
		p.add(numbered(n, keys)[from : from+500]...)
	}
	p.settled()
	to.requireInOrder(t, n, keys)
}

func TestFailingMessageDelaysItsKeyAlone(t *testing.T) {
	p, to := newPlace(t), &target{}
	const n, keys = 200, 10
	fixed, times := make(chan struct{}), 0
	to.fails(func(m dedup.Message) error {
		if string(m.Value) != "3" {
			return nil
		}
		select {
		case <-fixed:
			return nil
		default:
		}
		if times++; times > 2 { // then it waits, and costs nothing
			return handlers.Unavailable(errors.New("not yet"))
		}
		return errors.New("no")
	})
	p.add(numbered(n, keys)...)
	p.relayTo(to.send)
	p.eventually("the other keys wait", func() bool { return to.count() == n-n/keys })
	require.Empty(t, to.values("k3"))
	p.eventually("it is tried again", func() bool {
		return p.count(`select count(*) from firstseen.parked where attempts = 2 and error = 'not yet'`) == 1
	})
	close(fixed)
	p.settled()
	to.requireInOrder(t, n, keys)
	require.Equal(t, 1, p.count(`select count(*) from firstseen.inbox where attempts = 2 and payload = '3'`))
}

func TestMessageIsDeadAfterItsTriesAndItsErrorIsCut(t *testing.T) {
	p, to := newPlace(t), &target{}
	times := 0
	to.fails(func(m dedup.Message) error {
		if string(m.Value) == "3" {
			times++
			return errors.New(strings.Repeat("é", 3000))
		}
		return nil
	})
	p.add(numbered(20, 10)...)
	_, log := p.relayTo(to.send)
	p.settled()
	require.Equal(t, 5, times)
	require.Equal(t, 19, to.count())
	require.Equal(t, []string{"13"}, to.values("k3"), "what waited behind it is sent")
	require.Equal(t, 1, p.count(`select count(*) from firstseen.dead_letters
		where attempts = 5 and reason = 'attempts_exhausted' and error = repeat('é', 2000)`))
	require.Contains(t, log.String(), "event=OUTBOX_WORKER_DISPATCH_FAIL")
}

func TestMessageThatCanNeverBeSentIsDeadAtOnceAndTheRestFlows(t *testing.T) {
	p, to := newPlace(t), &target{}
	to.fails(func(m dedup.Message) error {
		if strings.HasPrefix(string(m.Value), "1") {
			return handlers.Permanent(errors.New("too large"))
		}
		return nil
	})
	p.add(numbered(100, 10)...)
	p.relayTo(to.send)
	p.settled()
	require.Equal(t, 11, p.count(`select count(*) from firstseen.dead_letters
		where reason = 'permanent' and attempts = 1`))
	require.Equal(t, 89, to.count())
	require.Equal(t, []string{"2", "22", "32", "42", "52", "62", "72", "82", "92"}, to.values("k2"))
}

// All is away for some time, then it is there again.
func TestOutageSpendsNoTryAndLeavesMessagesInTheOutbox(t *testing.T) {
	p, to := newPlace(t), &target{}
	to.fails(func(dedup.Message) error { return handlers.Unavailable(errors.New("down")) })
	const n = 3000
	log := &deduptest.Log{}
	cfg := quick(t, p.DSN, log, map[string]handlers.Sender{"t": outbox.Func(to.send)}, often)
	cfg.Batch = 100
	p.relay(cfg)
	p.add(numbered(n, 50)...)
	p.eventually("the outage is not noticed", func() bool {
		return strings.Contains(log.String(), "down") && p.count(`select count(*) from firstseen.parked`) > 0
	})
	time.Sleep(time.Second) // it stays so for a while
	require.Greater(t, p.rows(), n-1000, "messages are not moved in bulk")
	require.Zero(t, p.count(`select coalesce(sum(attempts), 0) from firstseen.parked`))
	to.fails(nil)
	p.settled()
	to.requireInOrder(t, n, 50)
	require.Equal(t, n, p.count(`select count(*) from firstseen.inbox where attempts = 0`))
}

func TestPanicOfASenderCostsNoOtherMessageATry(t *testing.T) {
	p, to := newPlace(t), &target{}
	to.fails(func(m dedup.Message) error {
		if string(m.Value) == "3" {
			panic("at the disco")
		}
		return nil
	})
	p.add(numbered(20, 20)...)
	p.relayTo(to.send)
	p.settled()
	require.Equal(t, 1, p.count(`select count(*) from firstseen.dead_letters where attempts = 5 and payload = '3'`))
	require.Equal(t, 19, p.count(`select count(*) from firstseen.inbox where attempts = 0`))
}

func TestMessagesWithoutASenderStayAndStopNobody(t *testing.T) {
	p, to := newPlace(t), &target{}
	stranger := outbox.Message{Topic: "elsewhere"}
	p.add(append([]outbox.Message{stranger}, numbered(20, 3)...)...)
	p.relayTo(to.send)
	p.eventually("they are stopped", func() bool { return to.count() == 20 })
	require.Equal(t, 1, p.count(`select count(*) from firstseen.outbox where topic = 'elsewhere'`))
}

func TestDelayedMessageIsSentWhenItsTimeHasCome(t *testing.T) {
	p, to := newPlace(t), &target{}
	p.relayTo(to.send)
	due := time.Now().Add(700 * time.Millisecond)
	p.add(outbox.Message{Topic: "t", Value: []byte("later"), NotBefore: due},
		outbox.Message{Topic: "t", Value: []byte("now")},
		outbox.Message{Topic: "t", Value: []byte("past"), NotBefore: time.Now().Add(-time.Hour)})
	p.eventually("what is due is not sent", func() bool { return to.count() == 2 })
	p.eventually("it is never sent", func() bool { return to.count() == 3 })
	require.False(t, time.Now().Before(due))
	require.Zero(t, p.count(`select count(*) from firstseen.outbox_delayed`))
}

func TestAMillionMessagesDueNextWeekCostNothing(t *testing.T) {
	p := newPlace(t)
	p.exec(`insert into firstseen.outbox_delayed (outbox_id, due_at, message_id, shard, topic, tenant)
		select n, now() + interval '7 days', '018f0000-0000-7000-8000-000000000000', n % 16, 't', ''
		from generate_series(1, 1000000) n`)
	p.exec(`analyze firstseen.outbox_delayed`)
	p.exec(`select firstseen.open_outbox_shards('{t}')`)
	const looks = 20
	require.LessOrEqual(t, p.reads(looks, `select firstseen.release_outbox(1000)`,
		`select firstseen.claim_outbox('relay', '{t}', 0, 1000, 1000000)`, `select firstseen.unsent_topics('{t}', now())`),
		100*looks)
}

// Retention would ask Kafka about them, and find that nothing may be forgotten.
func TestPositionsOfRelaysAreNoConsumers(t *testing.T) {
	p, to := newPlace(t), &target{}
	p.relayTo(to.send)
	p.add(numbered(1, 1)...)
	p.settled()
	store, err := dedup.Open(t.Context(), p.Pool, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	_, err = store.Acquire(t.Context(), "relay/of no outbox", "orders", 1, "me")
	require.NoError(t, err)
	positions, err := operate.Of(store).AllPositions(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, positions, 1)
	require.Equal(t, "orders", positions[0].Topic)
	require.Equal(t, 1, p.count(`select count(*) from firstseen.positions where consumer = 'relay/outbox' and next_offset = 1`))
}

func TestKeysOfSentMessagesAreForgottenWithTheirIDsAndNoOthers(t *testing.T) {
	p, to := newPlace(t), &target{}
	to.fails(func(m dedup.Message) error {
		if string(m.Value) == "dead" {
			return handlers.Permanent(errors.New("never"))
		}
		return nil
	})
	keyed := func(key string, m outbox.Message) outbox.Message {
		m.IdempotencyKey, m.Tenant, m.Value = key, "acme", []byte(key)
		return m
	}
	ms := []outbox.Message{keyed("sent", outbox.Message{Topic: "t"}), keyed("dead", outbox.Message{Topic: "t"}),
		keyed("stays", outbox.Message{Topic: "nobody's"}),
		keyed("later", outbox.Message{Topic: "t", NotBefore: time.Now().Add(time.Hour)})}
	p.add(ms...)
	stop, _ := p.relayTo(to.send)
	p.eventually("they are not settled", func() bool {
		return p.count(`select (select count(*) from firstseen.inbox) + (select count(*) from firstseen.dead_letters)`) == 2
	})
	stop()
	for _, statement := range []string{
		`insert into firstseen.scopes (inbox, handler, tenant) values ('another', 'to t', 'acme')`, // which has seen the same
		`insert into firstseen.message_dedup (scope_id, message_id) select s.scope_id, d.message_id
			from firstseen.scopes s, firstseen.message_dedup d where s.inbox = 'another'`,
		`update firstseen.outbox_keys set added_at = added_at - interval '400 days'`,
		`update firstseen.message_dedup set first_seen_at = first_seen_at - interval '400 days'`,
	} {
		p.exec(statement)
	}
	forget := func(inbox string) {
		store, err := dedup.Open(t.Context(), p.Pool, dedup.Config{Inbox: inbox})
		require.NoError(t, err)
		_, err = operate.Of(store).ForgetIDs(t.Context(), map[string]time.Time{"to t": time.Now().AddDate(0, 0, -300)},
			operate.By{Actor: "me", Why: "to see"})
		require.NoError(t, err)
	}
	forget("another")
	for _, added := range p.add(ms...) {
		require.True(t, added.AlreadyExisted)
	}
	forget("outbox")
	for i, added := range p.add(ms...) {
		require.Equal(t, i > 0, added.AlreadyExisted, "message %d", i)
	}
}

// reads is how many rows and index entries of the outbox are read where statements are run so many times.
func (p *place) reads(times int, statements ...string) int {
	p.t.Helper()
	// on one connection, so that its own statistics are there
	conn, err := p.Pool.Acquire(p.t.Context())
	require.NoError(p.t, err)
	defer conn.Release()
	read := func() int {
		_, err = conn.Exec(p.t.Context(), `select pg_stat_force_next_flush()`)
		require.NoError(p.t, err)
		return p.count(`select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables
			where schemaname = 'firstseen' and relname in ('outbox', 'outbox_delayed', 'outbox_shards')`) +
			p.count(`select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = 'firstseen'
			and relname in ('outbox', 'outbox_delayed', 'outbox_shards')`)
	}
	before := read()
	for range times {
		for _, sql := range statements {
			_, err := conn.Exec(p.t.Context(), sql)
			require.NoError(p.t, err)
		}
	}
	return read() - before
}

// Whatever Postgres has learnt of the table.
func TestABatchOfALongOutboxCostsWhatItTakes(t *testing.T) {
	p := newPlace(t)
	p.exec(`select firstseen.open_outbox_shards('{a,t,u}')`)
	p.exec(`insert into firstseen.outbox (outbox_id, message_id, shard, topic, tenant)
		select n, '018f0000-0000-7000-8000-000000000000', 0, 't', '' from generate_series(1, 100000) n`)
	ids := `(select array_agg(n::bigint) from generate_series(50001, 50100) n)`
	for range 2 {
		for _, sql := range []string{`select firstseen.claim_outbox('relay', '{a,t,u}', 0, 100, 1000000)`,
			`select firstseen.load_outbox('t', 0::smallint, ` + ids + `)`, `select firstseen.unsent_topics('{t}', now())`,
			`begin; select firstseen.drop_outbox('t', 0::smallint, ` + ids + `); rollback`} {
			require.LessOrEqual(t, p.reads(10, sql), 10*500, sql)
		}
		p.exec(`analyze firstseen.outbox`)
	}
}

func TestTriesArePausedByTenSecondsAtRandomAtFirstAndTwiceThatThen(t *testing.T) {
	p, to := newPlace(t), &target{}
	to.fails(func(dedup.Message) error { return errors.New("no") })
	const n = 300
	p.add(numbered(n, n)...)
	cfg := quick(t, p.DSN, &deduptest.Log{}, map[string]handlers.Sender{"t": outbox.Func(to.send)}, handlers.Retry{})
	cfg.LanePoll = time.Hour // what is parked is looked at only when more is
	p.relay(cfg)
	tried := func(attempts int) {
		p.eventually("they are not tried", func() bool {
			return p.count(`select count(*) from firstseen.parked where attempts >= $1`, attempts) == n
		})
	}
	tried(1)
	seconds := func(attempts int, what string) int {
		return p.count(`select round(extract(epoch from `+what+`)) from firstseen.lanes l
			join firstseen.parked p using (scope_id, lane) where p.attempts = $1`, attempts)
	}
	require.LessOrEqual(t, seconds(1, `min(l.due_at - p.parked_at)`), 1, "full jitter")
	require.Contains(t, []int{9, 10}, seconds(1, `max(l.due_at - p.parked_at)`))
	p.exec(`create table again as select clock_timestamp() as at`)
	p.exec(`update firstseen.lanes set due_at = now()`)
	p.add(numbered(1, 1)...)
	tried(2)
	require.GreaterOrEqual(t, seconds(2, `max(l.due_at - (select at from again))`), 18)
	require.LessOrEqual(t, seconds(2, `max(l.due_at - now())`), 20)
}

// The events have no other test: a copy of a dead letter, by whatever way it came into the table again.
func TestCopyOfADeadLetterIsToldOfAndNotSent(t *testing.T) {
	p, to := newPlace(t), &target{}
	to.fails(func(dedup.Message) error { return handlers.Permanent(errors.New("never")) })
	p.add(numbered(1, 1)...)
	p.exec(`create table copies as select * from firstseen.outbox`)
	_, log := p.relayTo(to.send)
	p.settled()
	to.fails(nil)
	p.exec(`insert into firstseen.outbox select * from copies`)
	p.settled()
	require.Zero(t, to.count())
	require.Contains(t, log.String(), "event=OUTBOX_WORKER_DUPLICATE")
	require.Equal(t, 1, p.count(`select count(*) from firstseen.dead_letters`))
}

// A dump has what the tables have, and nothing else of the cluster that it comes from.
func TestOutboxThatIsRestoredIntoANewClusterIsSentFromWhereItWas(t *testing.T) {
	p, to := newPlace(t), &target{}
	const n, keys = 100, 10
	to.fails(func(m dedup.Message) error {
		if string(m.Value) == "3" {
			return handlers.Unavailable(errors.New("not yet"))
		}
		return nil
	})
	stop, _ := p.relayTo(to.send)
	twin := outbox.Message{Topic: "t", Key: []byte("k0"), Value: []byte("twin"), IdempotencyKey: "twin"}
	p.add(append(numbered(n/2, keys), twin)...)
	p.eventually("they are not sent", func() bool { return to.count() == n/2-4 })
	stop()
	p.add(numbered(n, keys)[n/2:]...)
	p.add(outbox.Message{Topic: "t", Key: []byte("later"), NotBefore: time.Now().Add(time.Hour)})

	server := deduptest.StartServer(t, pgserver.Config{})
	there := &place{t, deduptest.Migrated(t, server.DSN("postgres"))}
	p.copyTo(there)
	require.True(t, there.add(twin)[0].AlreadyExisted)
	to.fails(nil)
	there.relayTo(to.send)
	there.add(numbered(n+keys, keys)[n:]...)
	there.settled()
	require.Equal(t, []string{"twin"}, slices.DeleteFunc(to.values("k0"), func(v string) bool { return v != "twin" }))
	for k := 1; k < keys; k++ {
		var want []string
		for i := k; i < n+keys; i += keys {
			want = append(want, fmt.Sprint(i))
		}
		require.Equal(t, want, to.values(fmt.Sprint("k", k)))
	}
	require.Equal(t, 1, there.count(`select count(*) from firstseen.outbox_delayed where due_at > now()`))
}

// copyTo copies all that the schema has, as pg_dump does.
func (p *place) copyTo(there *place) {
	p.t.Helper()
	from, err := p.Pool.Acquire(p.t.Context())
	require.NoError(p.t, err)
	defer from.Release()
	to, err := pgx.Connect(p.t.Context(), there.DSN)
	require.NoError(p.t, err)
	defer to.Close(context.Background()) //nolint:errcheck // the test's end
	_, err = to.Exec(p.t.Context(), `set session_replication_role = replica`)
	require.NoError(p.t, err)
	rows, _ := from.Query(p.t.Context(), `select relname from pg_class
		where relnamespace = 'firstseen'::regnamespace and relkind = 'r' and not relispartition`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(p.t, err)
	for _, table := range append(tables, "inbox") {
		_, err := to.Exec(p.t.Context(), `delete from firstseen.`+table)
		require.NoError(p.t, err, table)
		var content bytes.Buffer
		_, err = from.Conn().PgConn().CopyTo(p.t.Context(), &content, `copy (select * from firstseen.`+table+`) to stdout`)
		require.NoError(p.t, err, table)
		_, err = to.PgConn().CopyFrom(p.t.Context(), &content, `copy firstseen.`+table+` from stdin`)
		require.NoError(p.t, err, table)
	}
	for _, sequence := range []string{"outbox_seq", "message_seq"} {
		_, err := to.Exec(p.t.Context(), fmt.Sprintf(`select setval('firstseen.%s', %d)`, sequence,
			p.count(`select last_value from firstseen.`+sequence)))
		require.NoError(p.t, err)
	}
	_, err = to.Exec(p.t.Context(), `select setval(pg_get_serial_sequence('firstseen.scopes', 'scope_id'), 1000),
		setval(pg_get_serial_sequence('firstseen.positions', 'position_id'), 1000)`)
	require.NoError(p.t, err)
}

// Postgres ends the relay's sessions between the sending and the commit that would have noted it.
func TestWhatWasSentWhenTheRelayWasCutOffIsSentAgainUnderTheSameID(t *testing.T) {
	p, to := newPlace(t), &target{}
	const n, keys = 1000, 20
	p.add(numbered(n, keys)...)
	var cut sync.Once
	p.relayTo(func(ctx context.Context, m dedup.Message) error {
		err := to.send(ctx, m)
		cut.Do(func() {
			p.exec(`select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'`)
		})
		return err
	})
	p.settled()
	require.Greater(t, to.count(), n, "nothing was sent again")
	ids := map[string]string{}
	for _, m := range to.got {
		if id, again := ids[string(m.Value)]; again {
			require.Equal(t, id, m.ID.String())
		}
		ids[string(m.Value)] = m.ID.String()
	}
	require.Len(t, ids, n)
	require.Equal(t, n, p.count(`select count(*) from firstseen.inbox where attempts = 0`))
}

// A copy that another relay has sent meanwhile, as one reads that lost its shard.
func TestWhatAnotherRelayHasSentIsSkipped(t *testing.T) {
	p, to := newPlace(t), &target{}
	p.add(numbered(20, 5)...)
	p.exec(`create table copies as select * from firstseen.outbox`)
	_, log := p.relayTo(to.send)
	p.settled()
	p.exec(`insert into firstseen.outbox select * from copies where outbox_id % 2 = 0`)
	p.settled()
	p.exec(`insert into firstseen.outbox select * from copies`)
	p.add(outbox.Message{Topic: "t", Key: []byte("new")})
	p.settled()
	require.Equal(t, 21, to.count())
	require.Contains(t, log.String(), "event=OUTBOX_WORKER_SKIP_PROCESSED")
}

func TestPausedDestinationsMessagesStayInTheOutbox(t *testing.T) {
	p, to := newPlace(t), &target{}
	p.exec(`select firstseen.pause('outbox', 'handler', 'to t', -1, 'me', 'to see')`)
	p.add(numbered(20, 5)...)
	p.relay(quick(t, p.DSN, &deduptest.Log{}, map[string]handlers.Sender{"t": outbox.Func(to.send)}, often))
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, 20, p.rows())
	p.exec(`select firstseen.resume('outbox', 'handler', 'to t', -1, 'me', 'seen')`)
	p.settled()
	require.Equal(t, 20, to.count())
}

func TestRelayEndsWithinItsDrainThoughASenderHangs(t *testing.T) {
	p := newPlace(t)
	p.add(outbox.Message{Topic: "t"})
	sending := make(chan struct{}, 1)
	cfg := quick(t, p.DSN, &deduptest.Log{}, map[string]handlers.Sender{"t": outbox.Func(
		func(ctx context.Context, _ dedup.Message) error {
			sending <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})}, often)
	cfg.SendTimeout, cfg.DrainTimeout = time.Hour, 10*time.Millisecond
	_, stop := p.relay(cfg)
	<-sending
	ended := make(chan struct{})
	go func() { defer close(ended); stop() }()
	select {
	case <-ended:
	case <-time.After(waitLimit):
		t.Fatal("it waits for the sender")
	}
	require.Equal(t, 1, p.rows(), "it is sent again")
}

// A batch may take an hour here; what is the relay's own is waited for no longer than for an answer.
func TestARelayGivesUpConnectionsThatFallSilent(t *testing.T) {
	p, to := newPlace(t), &target{}
	proxy, log := deduptest.NewProxy(t, p.DSN), &deduptest.Log{}
	cfg := quick(t, proxy.DSN, log, map[string]handlers.Sender{"t": outbox.Func(to.send)}, often)
	cfg.SendTimeout, cfg.Store.AnswerTimeout = time.Hour, 200*time.Millisecond
	p.relay(cfg)
	p.add(numbered(20, 5)...)
	p.settled()
	proxy.SilenceOpen()
	p.add(numbered(20, 5)...)
	p.settled()
	require.Equal(t, 40, to.count())
	require.Contains(t, log.String(), "postgres has not answered in time")
	proxy.Close() // or its pool waits for the connections that it has given up
}
