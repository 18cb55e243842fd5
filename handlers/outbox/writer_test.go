package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

var writer outbox.Writer

// place is a migrated database with a table of orders.
type place struct {
	t *testing.T
	*deduptest.DB
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t, deduptest.New(t)}
	p.exec(`create table orders (id text)`)
	return p
}

func (p *place) exec(sql string, args ...any) {
	p.t.Helper()
	_, err := p.Pool.Exec(context.Background(), sql, args...)
	require.NoError(p.t, err)
}

func (p *place) count(sql string, args ...any) (n int) {
	p.t.Helper()
	require.NoError(p.t, p.Pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func (p *place) rows() int {
	p.t.Helper()
	return p.count(`select count(*) from firstseen.outbox`)
}

func (p *place) in(level pgx.TxIsoLevel, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(context.Background(), p.Pool, pgx.TxOptions{IsoLevel: level}, do)
}

func (p *place) add(ms ...outbox.Message) []outbox.Added {
	p.t.Helper()
	added, err := writer.AddAll(context.Background(), p.Pool, ms)
	require.NoError(p.t, err)
	return added
}

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

func shipped(key string) outbox.Message {
	return outbox.Message{Topic: "shipping", Key: []byte("o-17"), Value: []byte(`{}`), IdempotencyKey: key}
}

func TestTwoExecutionsOfACommandAddOneMessage(t *testing.T) {
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			p := newPlace(t)
			var answers []outbox.Added
			for range 2 {
				require.NoError(t, p.in(level, func(tx pgx.Tx) error {
					added, err := writer.Add(t.Context(), tx, shipped("order o-17 shipped"))
					answers = append(answers, added)
					if err != nil || added.AlreadyExisted {
						return err
					}
					_, err = tx.Exec(t.Context(), `insert into orders values ('o-17')`)
					return err
				}))
			}
			require.Equal(t, 1, p.rows())
			require.Equal(t, 1, p.count(`select count(*) from orders`))
			require.Equal(t, answers[0].ID, answers[1].ID)
			require.Equal(t, []bool{false, true}, []bool{answers[0].AlreadyExisted, answers[1].AlreadyExisted})
		})
	}
}

func TestRolledBackTransactionLeavesNoMessageAndNoKey(t *testing.T) {
	p := newPlace(t)
	for _, level := range levels {
		err := p.in(level, func(tx pgx.Tx) error {
			_, err := writer.Add(t.Context(), tx, shipped("k"))
			require.NoError(t, err)
			return pgx.ErrTxCommitRollback
		})
		require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
		require.Zero(t, p.rows())
		require.Zero(t, p.count(`select count(*) from firstseen.outbox_keys`))
	}
	require.False(t, p.add(shipped("k"))[0].AlreadyExisted)
}

// All transactions have their snapshots before the first one adds.
func TestTwinsInParallelAddOneMessageAndAllTransactionsCommit(t *testing.T) {
	for _, level := range levels {
		for _, set := range []bool{false, true} {
			t.Run(fmt.Sprint(level, " set ", set), func(t *testing.T) {
				p := newPlace(t)
				const n = 8
				var barrier, done sync.WaitGroup
				barrier.Add(n)
				answers, errs := make([]outbox.Added, n), make([]error, n)
				for i := range n {
					done.Go(func() {
						errs[i] = p.in(level, func(tx pgx.Tx) (err error) {
							_, err = tx.Exec(t.Context(), `select pg_current_snapshot()`)
							barrier.Done()
							barrier.Wait()
							if err != nil {
								return err
							}
							if !set {
								answers[i], err = writer.Add(t.Context(), tx, shipped("one key"))
							} else {
								own := shipped(fmt.Sprint("own ", i))
								all, e := writer.AddAll(t.Context(), tx, []outbox.Message{own, shipped("one key"), own})
								if err = e; e == nil {
									answers[i] = all[1]
									require.Equal(t, []bool{false, true}, []bool{all[0].AlreadyExisted, all[2].AlreadyExisted})
								}
							}
							if err == nil {
								_, err = tx.Exec(t.Context(), `insert into orders values ($1)`, fmt.Sprint(i))
							}
							return err
						})
					})
				}
				done.Wait()
				fresh := 0
				for i := range n {
					require.NoError(t, errs[i], "transaction %d", i)
					require.Equal(t, answers[0].ID, answers[i].ID)
					if !answers[i].AlreadyExisted {
						fresh++
					}
				}
				require.Equal(t, 1, fresh)
				require.Equal(t, 1, p.count(`select count(*) from firstseen.outbox where message_id = $1`, answers[0].ID))
				require.Equal(t, n, p.count(`select count(*) from orders`), "each caller's own work is kept")
				if set {
					require.Equal(t, n+1, p.rows())
				}
			})
		}
	}
}

// Two that add the same messages in opposite orders.
func TestTwinsInOppositeOrdersNeverDeadlock(t *testing.T) {
	p := newPlace(t)
	var ms []outbox.Message
	for i := range 200 {
		ms = append(ms, shipped(fmt.Sprint(i)))
	}
	back := slices.Clone(ms)
	slices.Reverse(back)
	var done sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		done.Go(func() {
			_, errs[i] = writer.AddAll(t.Context(), p.Pool, [][]outbox.Message{ms, back}[i%2])
		})
	}
	done.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, len(ms), p.rows())
}

// Many are noted in another way than few.
func TestTwinsAmongManyMessagesAreFound(t *testing.T) {
	for _, level := range levels {
		p := newPlace(t)
		many := func(from, to int) (ms []outbox.Message) {
			for i := from; i < to; i++ {
				m := outbox.Message{Topic: "t", Value: fmt.Append(nil, i)}
				if i%10 != 0 { // else it has none
					m.IdempotencyKey = fmt.Sprint("key ", i)
				}
				ms = append(ms, m)
			}
			return ms
		}
		add := func(ms []outbox.Message, existed func(i int) bool) {
			require.NoError(t, p.in(level, func(tx pgx.Tx) error {
				added, err := writer.AddAll(t.Context(), tx, ms)
				for i := range added {
					require.Equal(t, existed(i), added[i].AlreadyExisted, "%s: message %d", level, i)
				}
				return err
			}))
		}
		add(many(0, 300), func(int) bool { return false })
		add(many(200, 500), func(i int) bool { return i < 100 && i%10 != 0 })
		add(append(many(500, 650), many(500, 650)...), func(i int) bool { return i >= 150 && i%10 != 0 })
		require.Equal(t, 300+10+200+150+15, p.rows(), level)
		require.Equal(t, 650*9/10, p.count(`select count(*) from firstseen.outbox_keys`))
	}
}

func TestSameKeyOfAnotherTenantIsAnotherMessageAndNoKeyIsANewOneEachTime(t *testing.T) {
	p := newPlace(t)
	mine, other, none := shipped("k"), shipped("k"), shipped(" \t")
	other.Tenant = "globex"
	added := p.add(mine, other, mine, none, none)
	require.Equal(t, 4, p.rows())
	require.Equal(t, added[0].ID, added[1].ID, "the ID is the key's")
	require.NotEqual(t, added[3].ID, added[4].ID)
	require.EqualValues(t, 7, added[3].ID.Version())
	for i, a := range added {
		require.Equal(t, i == 2, a.AlreadyExisted)
	}
	_, err := p.Pool.Exec(t.Context(), `insert into firstseen.outbox_keys (tenant, message_id) values ('', $1)`,
		added[0].ID)
	require.ErrorContains(t, err, "outbox_keys_pkey", "the database itself refuses it")
}

func TestFirstContentStandsAndIsKeptByteForByte(t *testing.T) {
	p := newPlace(t)
	for i, m := range []outbox.Message{
		{}, {Key: []byte{}, Value: []byte{}}, {Key: []byte{0, 255}, Value: []byte("null")},
		{Headers: []dedup.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte{0}}}},
	} {
		for _, add := range []func(m outbox.Message) error{
			func(m outbox.Message) error { _, err := writer.Add(t.Context(), p.Pool, m); return err },
			func(m outbox.Message) error {
				_, err := writer.AddAll(t.Context(), p.Pool, []outbox.Message{m})
				return err
			},
		} {
			m.Topic, m.IdempotencyKey = "t", fmt.Sprint(i)
			require.NoError(t, add(m))
			var key, value, headers []byte
			require.NoError(t, p.Pool.QueryRow(t.Context(), `select key, payload, headers from firstseen.outbox
				where raw_id = $1`, m.IdempotencyKey).Scan(&key, &value, &headers))
			require.Equal(t, m.Key, key)
			require.Equal(t, m.Value, value)
			got, err := dedup.DecodeHeaders(headers)
			require.NoError(t, err)
			require.Equal(t, m.Headers, got)
			again := m
			again.Value = []byte("other")
			require.NoError(t, add(again))
			p.exec(`delete from firstseen.outbox`)
			p.exec(`delete from firstseen.outbox_keys`)
		}
	}
}

func TestDatabaseSQLAddsTheSame(t *testing.T) {
	p := newPlace(t)
	db, err := sql.Open("pgx", p.DSN)
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	m := shipped("k")
	m.NotBefore = time.Now().Add(time.Hour)
	first, err := writer.AddSQL(t.Context(), tx, m)
	require.NoError(t, err)
	again, err := writer.AddSQL(t.Context(), tx, shipped("k"))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Equal(t, outbox.Added{ID: first.ID, AlreadyExisted: true}, again)
	require.Equal(t, 1, p.count(`select count(*) from firstseen.outbox_delayed where key = 'o-17' and headers is null`))
}

// The IDs of keys are for ever.
func TestKeysGiveTheirIDsInGoAndInSQLAlike(t *testing.T) {
	p := newPlace(t)
	id := "0192f3c4-5d6e-7f80-8a9b-0c1d2e3f4a5b"
	for key, want := range map[string]string{
		"order 17 shipped": "", "é ü": "", "null": "", " padded\t\n": "", "a\x01b": "", " a\x01b ": "", "\u00a0x": "",
		`"quoted"`:                "",
		strings.Repeat("x", 1024): "", "{" + id + "": "",
		id: id, strings.ToUpper(id): id, "{" + id + "}": id, "urn:uuid:" + id: id, "URN:UUID:" + strings.ToUpper(id): id,
		strings.ReplaceAll(id, "-", ""): id, `"` + id + `"`: id, ` " ` + id + " \" ": id, "\ufeff" + id: id,
		"not-" + id: "",
	} {
		ids, err := identity.ParseIDs(key)
		require.NoError(t, err, key)
		if want != "" {
			require.Equal(t, want, ids[0].String(), key)
		}
		var got uuid.UUID
		var existed bool
		require.NoError(t, p.Pool.QueryRow(t.Context(),
			`select * from firstseen.send('t', '{}', p_idempotency_key => $1)`, key).
			Scan(&got, &existed), key)
		require.Equal(t, ids[0], got, "%q", key)
		require.False(t, existed)
		added := p.add(outbox.Message{Topic: "t", IdempotencyKey: key})
		require.Equal(t, outbox.Added{ID: got, AlreadyExisted: true}, added[0], "%q", key)
		var raws int
		require.NoError(t, p.Pool.QueryRow(t.Context(), `select count(distinct raw_id) from firstseen.outbox`).Scan(&raws))
		require.Equal(t, map[bool]int{true: 0, false: 1}[want != ""], raws, "%q", key)
		p.exec(`delete from firstseen.outbox`)
		p.exec(`delete from firstseen.outbox_keys`)
	}
	for _, key := range []string{strings.Repeat("0", 32), uuid.Max.String(), strings.Repeat("x", 1025)} {
		_, err := p.Pool.Exec(t.Context(), `select firstseen.send('t', '{}', p_idempotency_key => $1)`, key)
		require.Error(t, err)
		_, err = writer.Add(t.Context(), p.Pool, outbox.Message{Topic: "t", IdempotencyKey: key})
		require.ErrorContains(t, err, "idempotency key")
	}
}

func TestSQLSendsTextJSONAndBytes(t *testing.T) {
	p := newPlace(t)
	p.exec(`select firstseen.send('t', '{"b": 1}', p_key => 'k', p_headers => '{"a": "1", "b": null}')`)
	p.exec(`select firstseen.send('t', '{"b":1}'::jsonb, p_tenant => 'acme')`)
	p.exec(`select firstseen.send('t', '\x00ff'::bytea)`)
	p.exec(`select firstseen.send('t', null::bytea, p_not_before => now() + interval '1 day')`)
	require.Equal(t, 1, p.count(`select count(*) from firstseen.outbox where payload = '{"b": 1}' and key = 'k' and
		(select array_agg(convert_from(h.key, 'UTF8') || coalesce(convert_from(h.value, 'UTF8'), '-') order by ordinal)
			from firstseen.decode_headers(headers) h) = array['a1', 'b-']`))
	require.Equal(t, 1, p.count(`select count(*) from firstseen.outbox
		where payload = '{"b": 1}' and key is null and tenant = 'acme'`))
	require.Equal(t, 1, p.count(`select count(*) from firstseen.outbox where payload = '\x00ff'`))
	require.Equal(t, 1, p.count(`select count(*) from firstseen.outbox_delayed where payload is null`))
	require.Equal(t, 3, p.count(`select count(distinct message_id) from firstseen.outbox where
		substring(message_id::text, 15, 1) = '7' and substring(message_id::text, 20, 1) in ('8', '9', 'a', 'b')`))
	_, err := p.Pool.Exec(t.Context(), `select firstseen.send('t', '', p_headers => '{"message-id": "x"}')`)
	require.ErrorContains(t, err, "message-id")
}

func TestDerivedKeysAreNormalisedAndNeverClashByDelimiter(t *testing.T) {
	for want, got := range map[string]string{
		"c186fd39-45fc-853b-8cd1-026a3a928979": outbox.KeyOf("acme", "orders", "o-17", "shipped", 3),
		"b2012cb8-8db6-8d93-9c65-42d9f0d6575c": outbox.KeyOf("", "", "", "", 0),
		"31acb576-769c-8851-b55a-b72826c9251d": outbox.KeyOf("acme", "orderso", "-17", "shipped", 3),
	} {
		require.Equal(t, want, got)
	}
	same := outbox.KeyOf("acme", "orders", "o-17", "shipped", 3)
	require.Equal(t, same, outbox.KeyOf(" ACME", "Orders\n", "O-17", "SHIPPED", 3))
	for _, other := range []string{
		outbox.KeyOf("acmf", "orders", "o-17", "shipped", 3), outbox.KeyOf("acme", "order", "o-17", "shipped", 3),
		outbox.KeyOf("acme", "orders", "o-18", "shipped", 3), outbox.KeyOf("acme", "orders", "o-17", "sent", 3),
		outbox.KeyOf("acme", "orders", "o-17", "shipped", 4), outbox.KeyOf("acmeorders", "", "o-17", "shipped", 3),
		outbox.KeyOf("acme", "orders:o-17", "", "shipped", 3), outbox.KeyOf("acme", "orders", "o -17", "shipped", 3),
	} {
		require.NotEqual(t, same, other)
	}
}

func TestHandlersMessageIsNamedAsTheCause(t *testing.T) {
	p := newPlace(t)
	store, err := dedup.Open(t.Context(), p.Pool, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	var registry handlers.Registry
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: 1})
	require.NoError(t, registry.Register("h", handlers.Each(handlers.HandlerFunc(
		func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			_, err := writer.Add(trace.ContextWithSpanContext(ctx, span), tx, outbox.Message{Topic: "t", Key: m.Key,
				Headers: []dedup.Header{{Key: "own", Value: []byte("1")}}})
			return err
		})), "orders"))
	require.NoError(t, registry.Register("batch", handlers.BatchHandlerFunc(
		func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
			_, err := writer.Add(handlers.WithMessage(ctx, &ms[1]), tx, outbox.Message{Topic: "t", Key: []byte("batch")})
			if err == nil {
				_, err = writer.Add(ctx, tx, outbox.Message{Topic: "t", Key: []byte("nobody")})
			}
			return err
		}), "orders"))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	require.NoError(t, err)
	first, second := uuid.New(), uuid.New()
	_, err = processor.Process(t.Context(), handlers.Batch{Messages: []dedup.Message{
		{ID: first, Topic: "orders", Key: []byte("1")},
		{ID: second, Topic: "orders", Offset: 1, Key: []byte("2"),
			Headers: []dedup.Header{{Key: "correlation-id", Value: []byte("story")}}},
	}})
	require.NoError(t, err)
	headersOf := func(key string) (lines []string) {
		var b []byte
		require.NoError(t, p.Pool.QueryRow(t.Context(), `select headers from firstseen.outbox where key = $1`,
			[]byte(key)).Scan(&b))
		headers, err := dedup.DecodeHeaders(b)
		require.NoError(t, err)
		for _, h := range headers {
			lines = append(lines, h.Key+"="+string(h.Value))
		}
		return lines
	}
	const parent = "traceparent=00-01000000000000000000000000000000-0200000000000000-01"
	require.Equal(t, []string{"own=1", "correlation-id=" + first.String(), "causation-id=" + first.String(), parent},
		headersOf("1"))
	require.Equal(t, []string{"own=1", "correlation-id=story", "causation-id=" + second.String(), parent}, headersOf("2"))
	require.Equal(t, []string{"correlation-id=story", "causation-id=" + second.String()}, headersOf("batch"))
	require.Empty(t, headersOf("nobody"))
}

func TestWhatCanNotBeAddedSaysWhy(t *testing.T) {
	p := newPlace(t)
	for want, m := range map[string]outbox.Message{
		"topic":                      {},
		"tenant":                     {Topic: "t", Tenant: "\xff"},
		"UTF-8":                      {Topic: "t", IdempotencyKey: "a\x00b"},
		"give the ID as Idempotency": {Topic: "t", Headers: []dedup.Header{{Key: "message-id"}}},
	} {
		_, err := writer.Add(t.Context(), p.Pool, m)
		require.ErrorContains(t, err, want)
		_, err = writer.AddAll(t.Context(), p.Pool, []outbox.Message{shipped("k"), m})
		require.ErrorContains(t, err, "message 1 of 2")
	}
	require.Zero(t, p.rows())
	none, err := writer.AddAll(t.Context(), p.Pool, nil)
	require.NoError(t, err)
	require.Empty(t, none)
}
