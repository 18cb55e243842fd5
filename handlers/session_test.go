package handlers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// leaving runs what a message's value says, and leaves an effect.
func leaving(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	for sql := range strings.SplitSeq(string(m.Value), "; ") {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx,
		`insert into public.effects (handler, message_id, key, "offset") values ('h', $1, current_user, $2)`,
		m.ID, m.Offset)
	return err
}

func TestWhatAHandlerLeavesInTheSessionIsNotTheNextTransactions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := b.withPool(1)
	found := func() string {
		var state string
		require.NoError(t, pool.QueryRow(t.Context(),
			`select concat_ws(' ', current_user = session_user, current_setting('statement_timeout'),
			current_setting('search_path'), current_setting('default_transaction_isolation'), current_setting('synchronous_commit'),
			nullif(current_setting('app.tenant', true), ''), to_regclass('pg_temp.t'), (select count(*) from pg_listening_channels()),
			(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), (select count(*) from pg_cursors where is_holdable))`).
			Scan(&state))
		return state
	}
	clean := found()
	p := b.processor(nil, Registration{Name: "h", Handler: Each(HandlerFunc(leaving))})
	for _, sql := range []string{"set statement_timeout = 100000", "set search_path = pg_catalog",
		"set session characteristics as transaction isolation level serializable",
		"set synchronous_commit = off", "select set_config('app.tenant', 'a', false)", "create temp table t (id int)",
		"listen x", "select pg_advisory_lock(7)", "declare c cursor with hold for select 1"} {
		require.Equal(t, Result{New: 1}, b.process(p, b.messages("k="+sql)), sql)
		require.Equal(t, clean, found(), sql)
		b.process(p, b.messages("k=select 1", "l=select 1"))
	}
}

func TestARoleThatAHandlerLeavesIsItsOwnOnly(t *testing.T) {
	t.Parallel()
	queued := Queue(QueuedFunc(func(q *pgx.Batch, m dedup.Message) error {
		q.Queue(string(m.Value))
		q.Queue(`insert into public.effects (handler, message_id, key, "offset") values ('h', $1, current_user, $2)`,
			m.ID, m.Offset)
		return nil
	}))
	for kind, handler := range map[string]BatchHandler{"each": Each(HandlerFunc(leaving)),
		"opaque": opaque(HandlerFunc(leaving)), "queue": queued} {
		for _, local := range []bool{true, false} {
			t.Run(fmt.Sprint(kind, " local ", local), func(t *testing.T) {
				b := newBench(t)
				login, pool := b.asConsumer()
				other := login + "_other"
				b.exec(`create role ` + other + `; grant ` + other + ` to ` + login +
					`; grant all on public.effects to ` + other)
				t.Cleanup(func() { b.exec(`drop owned by ` + other + `; drop role ` + other) })
				second := Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
					_, err := tx.Exec(ctx,
						`insert into effects (handler, message_id, key, "offset") values ('second', $1, current_user, $2)`,
						m.ID, m.Offset)
					return err
				}))
				p := b.processor(nil, Registration{Name: "h", Handler: handler, Retry: later},
					Registration{Name: "second", Handler: second})
				take := fmt.Sprintf("select set_config('role', '%s', %t)", other, local)
				texts := []string{"a=" + take, "b=" + take, "c=" + take, "d=" + take}
				require.Equal(t, Result{New: 8}, b.process(p, b.messages(texts...)))
				require.Equal(t, 4, b.count(
					`select count(*) from effects where handler = 'second' and key = $1`, login), "as the login")
				require.Equal(t, 4, b.count(`select count(*) from effects where handler = 'h' and key = $1`, other))
				require.Equal(t, Result{New: 9, Parked: 1},
					b.process(p, b.messages(append(texts, "bad=select 1 / 0")...)))
				var role string
				for range 10 { // whichever connection
					require.NoError(t, pool.QueryRow(t.Context(), `select current_user`).Scan(&role))
					require.Equal(t, login, role)
				}
			})
		}
	}
}

func TestWhatThePoolSetsInASessionStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, pool := b.asConsumer()
	pool = deduptest.OpenPool(t, pool.Config().ConnString(), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `set statement_timeout = '77s'`)
			return err
		}
	})
	var err error
	b.store, err = dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(HandlerFunc(leaving))})
	for range 2 {
		require.Equal(t, Result{New: 1},
			b.process(p, b.messages("k=set statement_timeout = '1s'; set lock_timeout = '1s'")))
		var got string
		require.NoError(t, pool.QueryRow(t.Context(),
			`select current_setting('statement_timeout') || ' ' || current_setting('lock_timeout')`).Scan(&got))
		require.Equal(t, "77s 0", got)
	}
}

func TestATemporaryTableForEachMessageCostsNoAttempt(t *testing.T) {
	t.Parallel()
	const make = `create temp table basket (id int) on commit drop; insert into basket values (1)`
	for kind, wrap := range map[string]func(*bench) BatchHandler{
		"each":   func(*bench) BatchHandler { return Each(HandlerFunc(leaving)) },
		"opaque": func(*bench) BatchHandler { return opaque(HandlerFunc(leaving)) },
		"queue": func(*bench) BatchHandler {
			return Queue(QueuedFunc(func(q *pgx.Batch, m dedup.Message) error {
				q.Queue(`create temp table basket (id int) on commit drop`)
				q.Queue(`insert into effects (handler, message_id, "offset") values ('h', $1, $2)`, m.ID, m.Offset)
				return nil
			}))
		},
		"SQL": func(b *bench) BatchHandler {
			b.exec(`create function app(m firstseen.message) returns void language plpgsql as $$
				begin
					create temp table basket (id int) on commit drop;
					insert into effects (handler, message_id, "offset") values ('h', m.id, m."offset");
				end $$`)
			handler, err := NewSQL(context.Background(), b.pool, "", "app")
			require.NoError(b.t, err)
			return handler
		},
	} {
		t.Run(kind, func(t *testing.T) {
			b, log := newBench(t), &lockedLog{}
			p := b.processor(func(cfg *Config) { cfg.Logger = log.logger() },
				Registration{Name: "h", Handler: wrap(b), Retry: later})
			for range 2 {
				require.Equal(t, Result{New: 6}, b.process(p,
					b.messages("a="+make, "b="+make, "a="+make, "c="+make, "d="+make, "e="+make)))
			}
			require.Equal(t, 12, b.count(`select count(*) from effects`))
			require.Equal(t, 1, log.count("one at a time"))
		})
	}
}

func TestATableThatIsReallyThereIsTheMessagesFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`create table basket (id int)`)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(HandlerFunc(leaving)), Retry: later})
	require.Equal(t, Result{New: 2, Parked: 1}, b.process(p,
		b.messages("a=select 1", "b=create table basket (id int)", "c=select 1")))
	require.Equal(t, "1/1", b.parked())
}
