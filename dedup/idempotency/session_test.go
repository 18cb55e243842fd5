package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

// found is what a request's handler, or the pool's next user, finds in a session.
const found = `select concat_ws(' ', current_user, session_user, current_setting('statement_timeout'),
	current_setting('search_path'), current_setting('synchronous_commit'),
	current_setting('idle_in_transaction_session_timeout'),
	nullif(current_setting('app.tenant', true), ''), to_regclass('pg_temp.t'),
	(select count(*) from pg_listening_channels()),
	(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
	(select count(*) from pg_cursors where is_holdable))`

// The pool has one connection, which each request, however it ends, gives back as it was.
func TestWhatAHandlerLeavesInTheSessionIsNotTheNextRequests(t *testing.T) {
	pools := map[string]func(context.Context, *pgx.Conn) error{
		"plain": nil,
		"made by the pool": func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `set statement_timeout = 123456`)
			return err
		},
	}
	for name, afterConnect := range pools {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			pool := deduptest.OpenPool(t, s.db.DSN, func(c *pgxpool.Config) {
				c.MinConns, c.MaxConns, c.AfterConnect = 1, 1, afterConnect
			})
			s.store = open(t, pool)
			look := func() (state string) {
				require.NoError(t, pool.QueryRow(t.Context(), found).Scan(&state))
				return state
			}
			clean := look()
			var status int
			var sql string
			orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
				_, err := s.effect(r)
				require.NoError(t, err)
				require.NoError(t, execute(sql)(r.Context(), idempotency.Tx(r.Context())))
				w.WriteHeader(status)
			})
			for _, sql = range []string{`set role pg_monitor`, `select set_config('role', 'pg_monitor', false)`,
				`set session authorization pg_monitor`,
				`set statement_timeout = 100000`, `set search_path = pg_catalog`, `set synchronous_commit = off`,
				`select set_config('app.tenant', 'a', false)`, `create temp table t (id int)`,
				`listen x`, `select pg_advisory_lock(7)`, `declare c cursor with hold for select 1`} {
				for _, status = range []int{http.StatusCreated, http.StatusConflict, http.StatusInternalServerError} {
					require.Equal(t, status, orders.post(fmt.Sprint(sql, status), `{}`).status,
						"%s: %s", sql, s.log.String())
					require.Equal(t, clean, look(), "%s, %d", sql, status)
					require.Equal(t, status, orders.post("", `{}`).status, sql)
					require.Equal(t, clean, look(), "%s, %d, without a key", sql, status)
				}
			}
		})
	}
}

// With a key its answer could not be written any more, at any try: that is the handler's fault, and the log names it.
func TestTransactionThatAHandlerMakesReadOnlyIsAnsweredAsItsFault(t *testing.T) {
	s := newStage(t)
	status := http.StatusCreated
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, execute(`set transaction read only`)(r.Context(), idempotency.Tx(r.Context())))
		w.WriteHeader(status)
	})
	got := orders.post("k", `{}`)
	require.Equal(t, []any{http.StatusInternalServerError, idempotency.CodeNotCommitted, ""},
		[]any{got.status, got.code(), got.header.Get("Retry-After")})
	require.Contains(t, s.log.String(), "the handler has made it read-only")
	s.left(0, 0)
	require.Equal(t, http.StatusCreated, orders.post("", `{}`).status, "without a key nothing is written")
	status = http.StatusNotFound
	require.Equal(t, http.StatusNotFound, orders.post("k", `{}`).status, "what was undone is not in force")
	require.True(t, orders.post("k", `{}`).replayed())
}
