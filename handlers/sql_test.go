package handlers_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/migrations"
)

// journal is a table that functions write what they were given to, one row a call or a message.
const journal = `create schema app;
	create table app.journal (seq bigint generated always as identity, call text default pg_current_xact_id()::text,
		ordinal bigint, m firstseen.message);`

const oncePerMessage = `create function app.on_payment(m firstseen.message) returns void language sql as
	'insert into app.journal (m) values (m)'`

const oncePerBatch = `create function app.on_payments(batch firstseen.message[]) returns void language sql as
	'insert into app.journal (ordinal, m) select b.ordinality,
		row(b.id, b.raw_id, b.tenant, b.topic, b."partition", b."offset", b.produced_at, b.key, b.payload, b.headers)::firstseen.message
	from unnest(batch) with ordinality b order by b.ordinality'`

func (s *stage) registerSQL(function string) {
	s.t.Helper()
	h, err := handlers.NewSQL(s.t.Context(), s.pool, "", function)
	require.NoError(s.t, err)
	s.register("sql", h)
}

func TestSQLFunctionGetsEveryMessageInOrderByteForByte(t *testing.T) {
	t.Parallel()
	for function, create := range map[string]string{"app.on_payment": oncePerMessage,
		"app.on_payments": oncePerBatch} {
		for _, mode := range []string{"cache_statement", "cache_describe", "exec"} {
			t.Run(function+" "+mode, func(t *testing.T) {
				db := deduptest.New(t)
				s := newStageOn(t, db, db.DSN+"&default_query_exec_mode="+mode)
				s.exec(journal)
				s.exec(create)
				s.registerSQL(function)
				p := s.position("orders")
				ms := messages(p, newIDs(200)...)
				big := bytes.Repeat([]byte("\x00\xff\\'\"\n,{}"), 1<<20/8)
				ms[0].Key, ms[0].Value = nil, nil
				ms[1].Key, ms[1].Value, ms[1].Tenant, ms[1].RawID = []byte{}, []byte{}, "acme", `order "17"\`
				ms[2].Key, ms[2].Value = []byte("null"), big
				ms[3].Headers = []dedup.Header{{Key: "trace", Value: []byte{0xff}}, {Key: "trace", Value: nil},
					{Key: "trace", Value: []byte{}}}
				s.requireResult(handlers.Result{New: len(ms)}, p, ms...)
				requireJournal(t, s, ms, function == "app.on_payments")
			})
		}
	}
}

func requireJournal(t *testing.T, s *stage, want []dedup.Message, ordinals bool) {
	rows, err := s.admin.Query(t.Context(), `select ordinal, (m).id, coalesce((m).raw_id, ''), (m).tenant, (m).topic,
		(m)."partition", (m)."offset", (m).key, (m).payload, (m).headers from app.journal order by seq`)
	require.NoError(t, err)
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var got dedup.Message
		var ordinal *int64
		var headers []byte
		require.NoError(t, rows.Scan(&ordinal, &got.ID, &got.RawID, &got.Tenant, &got.Topic, &got.Partition,
			&got.Offset, &got.Key, &got.Value, &headers))
		got.Headers, err = dedup.DecodeHeaders(headers)
		require.NoError(t, err)
		require.Equal(t, want[n], got)
		if ordinals {
			require.EqualValues(t, n+1, *ordinal)
		}
	}
	require.NoError(t, rows.Err())
	require.Equal(t, len(want), n)
}

func TestSQLFunctionsErrorIsNarrowedDownToItsMessage(t *testing.T) {
	t.Parallel()
	for takes, create := range map[string]string{
		"message": `create function app.fail(m firstseen.message) returns void language plpgsql as $$
			begin
				insert into public.effects (handler, "offset") values ('h', m."offset");
				if m."offset" = 5 then raise exception 'no stock of %', firstseen.header(m, 'item') using errcode = 'AP001'; end if;
			end $$`,
		"batch": `create function app.fail(batch firstseen.message[]) returns void language plpgsql as $$
			declare m firstseen.message;
			begin
				foreach m in array batch loop
					insert into public.effects (handler, "offset") values ('h', m."offset");
					if m."offset" = 5 then raise exception 'no stock of %', firstseen.header(m, 'item') using errcode = 'AP001'; end if;
				end loop;
			end $$`,
	} {
		t.Run(takes, func(t *testing.T) {
			s := newStage(t)
			s.exec(journal + create)
			s.registerSQL("app.fail")
			p := s.position("orders")
			ms := keyed(messages(p, newIDs(9)...))
			ms[5].Headers = []dedup.Header{{Key: "item", Value: []byte("pears")}}
			s.requireResult(handlers.Result{New: 8, Parked: 1}, p, ms...)
			s.requireEffects(0, 1, 2, 3, 4, 6, 7, 8)
			require.Equal(t,
				"handler sql: message orders/0@5: call app.fail: ERROR: no stock of pears (SQLSTATE AP001)",
				s.parkedError(ms[5]), "alone, the message is named")
		})
	}
}

func TestSQLFunctionSaysBySQLSTATEWhatBecomesOfItsMessage(t *testing.T) {
	t.Parallel()
	for takes, function := range map[string]string{
		"message": `create function app.fail(m firstseen.message) returns void language plpgsql as $$ begin
				if m."offset" = 3 then raise 'no account' using errcode = 'PERMA'; end if;
				if m."offset" = 5 then raise 'the ledger is closed' using errcode = 'UNAVA'; end if; end $$`,
		"batch": `create function app.fail(batch firstseen.message[]) returns void language plpgsql as $$
			declare m firstseen.message; begin
			foreach m in array batch loop
				if m."offset" = 3 then raise 'no account' using errcode = 'PERMA'; end if;
				if m."offset" = 5 then raise 'the ledger is closed' using errcode = 'UNAVA'; end if;
			end loop; end $$`,
	} {
		t.Run(takes, func(t *testing.T) {
			s := newStage(t)
			s.exec(journal + function)
			s.registerSQL("app.fail")
			p := s.position("orders")
			s.requireResult(handlers.Result{New: 6, Parked: 1, Dead: 1}, p, keyed(messages(p, newIDs(8)...))...)
			require.Equal(t, 1, s.count(`select count(*) from firstseen.dead_letters
				where "offset" = 3 and reason = 'permanent' and attempts = 1`))
			require.Equal(t, 1, s.count(`select count(*) from firstseen.parked
				where "offset" = 5 and reason = 'unavailable' and attempts = 0`))
		})
	}
}

func TestSQLFunctionMayReadThePayloadAsJSON(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(journal + `create function app.pay(m firstseen.message) returns void language sql as
		$$ insert into public.effects (handler, message_id) values (firstseen.body(m) ->> 'amount', m.id) $$`)
	s.registerSQL("app.pay")
	p := s.position("orders")
	ms := messages(p, newIDs(2)...)
	ms[0].Value, ms[1].Value = []byte(`{"amount": "12.30"}`), nil
	s.requireResult(handlers.Result{New: 2}, p, ms...)
	require.Equal(t, 1, s.effects("12.30"))
}

func TestSQLFunctionIsFoundBySearchPathAndQuotedName(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	s := newStageOn(t, db, db.DSN+"&search_path=app,public")
	s.exec(journal + `create schema other; create function other.on_payment(m firstseen.message) returns void language sql as '';
		create function app."On Payment"(m firstseen.message) returns void language sql as '';` + oncePerMessage)
	for _, name := range []string{"on_payment", "On_Payment", "app.on_payment", `"app"."on_payment"`, `"On Payment"`,
		`app."On Payment"`} {
		_, err := handlers.NewSQL(t.Context(), s.pool, "", name)
		require.NoError(t, err, name)
	}
}

func TestSQLFunctionOfAnotherSchemaOfOurs(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	_, err := migrations.Up(t.Context(), db.DSN, migrations.Config{Schema: "second"})
	require.NoError(t, err)
	s := newStageOn(t, db, db.DSN)
	s.exec(`create function on_second(m second.message) returns void language sql as
		$$ insert into public.effects (handler, message_id) values (second.header(m, 'h'), m.id) $$`)
	_, err = handlers.NewSQL(t.Context(), s.pool, "", "on_second")
	require.ErrorContains(t, err,
		"found public.on_second(m second.message); want one argument of type firstseen.message")
	h, err := handlers.NewSQL(t.Context(), s.pool, "second", "on_second")
	require.NoError(t, err)
	s.register("sql", h)
	p := s.position("orders")
	ms := messages(p, uuid.New())
	ms[0].Headers = []dedup.Header{{Key: "h", Value: []byte("here")}}
	s.requireResult(handlers.Result{New: 1}, p, ms...)
	require.Equal(t, 1, s.effects("here"))
}

func TestSQLFunctionThatDoesNotFitIsNamedWithWhatIsWanted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(journal + oncePerMessage + `;
		create function app.twice(m firstseen.message) returns void language sql as '';
		create function app.twice(batch firstseen.message[]) returns void language sql as '';
		create function app.as_json(j jsonb) returns void language sql as '';
		create function app.as_json(j jsonb, n int) returns void language sql as '';
		create function app.two(m firstseen.message, n int default 1) returns void language sql as '';
		create function app.spread(variadic m firstseen.message[]) returns void language sql as '';
		create function app.counts(m firstseen.message) returns int language sql as 'select 1';
		create function app.many(m firstseen.message) returns setof int language sql as 'select 1';
		create procedure app.proc(m firstseen.message) language sql as '';
		create function app.secret(m firstseen.message) returns void language sql as '';
		revoke all on function app.secret from public;
		create role outsider login; grant usage on schema app, firstseen to outsider`)
	t.Cleanup(func() { s.exec(`drop owned by outsider; drop role outsider`) })
	const want = "want one argument of type firstseen.message (called once a message) or firstseen.message[] (called once a batch)"
	for name, message := range map[string]string{
		"app.absent":     "function app.absent: there is none of that name; create it with one argument of type firstseen.message",
		"on_payment":     "there is none of that name",
		"app.twice":      "ambiguous, found app.twice(batch firstseen.message[]) and app.twice(m firstseen.message)",
		"app.as_json":    "found app.as_json(j jsonb) and app.as_json(j jsonb, n integer); " + want,
		"app.two":        "found app.two(m firstseen.message, n integer); " + want,
		"app.spread":     "found app.spread(VARIADIC m firstseen.message[]); " + want,
		"app.counts":     "found app.counts(m firstseen.message), which returns integer; want a function that returns void",
		"app.many":       "which returns SETOF integer",
		"app.proc":       "which returns nothing, as a procedure or an aggregate",
		"db.app.pay":     "there is none of that name",
		"app.":           "app.",
		"drop table x; ": "drop table x",
		"":               "",
	} {
		_, err := handlers.NewSQL(t.Context(), s.pool, "", name)
		require.ErrorContains(t, err, message, name)
	}
	_, err := handlers.NewSQL(t.Context(), s.pool, "nowhere", "app.on_payment")
	require.ErrorContains(t, err, "there is no type nowhere.message: run `firstseen migrate up`")

	outsider := deduptest.OpenPool(t, deduptest.As(t, s.dsn, "outsider"), nil)
	_, err = handlers.NewSQL(t.Context(), outsider, "", "app.secret")
	require.ErrorContains(t, err, "found app.secret(m firstseen.message), which this role may not execute")
}

func TestSQLFunctionIsOneStatementABatch(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(journal + oncePerMessage)
	h, err := handlers.NewSQL(t.Context(), s.pool, "", "app.on_payment")
	require.NoError(t, err)
	tx, err := s.store.Accept(t.Context(), &dedup.Batch{})
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	counting := &countingTx{Tx: tx.Handler()}
	require.NoError(t, h.HandleBatch(t.Context(), counting, messages(&dedup.Position{}, newIDs(500)...)))
	require.Equal(t, 1, counting.statements)
	var rows int
	require.NoError(t, tx.Handler().QueryRow(t.Context(), `select count(*) from app.journal`).Scan(&rows))
	require.Equal(t, 500, rows, fmt.Sprint(h))
}

type countingTx struct {
	pgx.Tx
	statements int
}

func (c *countingTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c.statements++
	return c.Tx.Exec(ctx, sql, args...)
}
