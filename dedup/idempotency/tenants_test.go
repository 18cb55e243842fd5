package idempotency_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

// One tenant never learns that another's key exists, also not by how long an answer takes: for a key that another
// has, answered or at work, Postgres is asked for the same and does the same as for one that nobody has: by the same
// plans, on as many rows, under the same locks. And it waits for nobody.
func TestNothingTellsThatAnotherTenantHasTheKey(t *testing.T) {
	modes := map[string]func(*stage, http.HandlerFunc) *service{
		"in transaction": (*stage).inTransaction, "claimed": (*stage).claimed}
	for mode, in := range modes {
		for state, running := range map[string]bool{"answered": false, "running": true} {
			t.Run(mode+", "+state, func(t *testing.T) {
				fresh := newWorld(t, in, running, "another key").ask("k")
				require.Regexp(t, `Insert on idempotency .*\(actual rows=`, strings.Join(fresh.did, "\n"))
				same := newWorld(t, in, running, "k").ask("k")
				require.Equal(t, fresh.answers, same.answers)
				require.Equal(t, fresh.did, same.did)
			})
		}
	}
}

func TestWaitForAnotherTenantsRowWouldShow(t *testing.T) {
	w := newWorld(t, (*stage).inTransaction, false, "k")
	tx, err := w.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	const lock = `select from firstseen.idempotency for update`
	_, err = tx.Exec(t.Context(), lock)
	require.NoError(t, err)
	_, err = w.pool.Exec(t.Context(), `set lock_timeout = '100ms'; `+lock)
	require.Error(t, err)
	require.Contains(t, w.did(), waited)
}

// world is a service whose tenant A has sent a key, and all that is written down of what Postgres does in it.
type world struct {
	*stage
	orders *service
	pool   *pgxpool.Pool

	mu  sync.Mutex
	log string
}

// waited is what Postgres says of a wait for a lock, after a millisecond.
const waited = "still waiting for"

func newWorld(t *testing.T, in func(*stage, http.HandlerFunc) *service, running bool, key string) *world {
	w := &world{stage: newStage(t)}
	w.pool = deduptest.OpenPool(t, w.db.DSN, w.writeDown)
	w.store = open(t, w.pool)
	w.cfg.Lease = time.Hour // no heartbeat in between
	started, finish := make(chan struct{}), make(chan struct{})
	w.orders = in(w.stage, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Tenant") == "a" && running {
			close(started)
			<-finish
		}
		w.lookAtLocks(r)
		w.create(rw, r)
	})
	first := make(chan error, 1)
	go func() {
		_, err := w.orders.try(key, "/orders", `{}`, "X-Tenant", "a")
		first <- err
	}()
	if running {
		<-started
		t.Cleanup(func() {
			close(finish)
			require.NoError(t, <-first)
		})
	} else {
		require.NoError(t, <-first)
	}
	w.did()
	return w
}

// writeDown has the server tell the client all that it does: statements, plans with the rows that they met, waits.
func (w *world) writeDown(c *pgxpool.Config) {
	for setting, value := range map[string]string{
		"client_min_messages": "log", "log_statement": "all", "log_parameter_max_length": "0",
		"log_lock_waits": "on", "deadlock_timeout": "1ms",
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0",
		"auto_explain.log_analyze": "on", "auto_explain.log_timing": "off",
		"auto_explain.log_nested_statements": "on", "auto_explain.log_parameter_max_length": "0",
	} {
		c.ConnConfig.RuntimeParams[setting] = value
	}
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.log += n.Message + "\n"
	}
}

// times are those of statements, and fences, which are made of the time.
var times = regexp.MustCompile(`duration: [0-9.]+ ms|'[0-9]{16}'::bigint`)

// did is what was written down since it was asked last.
func (w *world) did() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	w.log = ""
	return times.ReplaceAllString(log, "some time")
}

const locksSQL = `
select locktype || mode || coalesce(relation::regclass::text, '') from pg_locks where pid = $1 order by 1`

// lookAtLocks has the locks that a request's transaction holds written down, too.
func (w *world) lookAtLocks(r *http.Request) {
	tx := idempotency.Tx(r.Context())
	if tx == nil {
		return
	}
	rows, err := w.db.Pool.Query(r.Context(), locksSQL, tx.Conn().PgConn().PID())
	require.NoError(w.t, err)
	locks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log += strings.Join(locks, "\n")
}

// told is what a tenant can learn, and what was done for it, of a new request, the same again, and another one.
type told struct {
	answers []answer
	did     []string // line by line
}

// ask has tenant B send a key.
func (w *world) ask(key string) (all told) {
	w.t.Helper()
	for _, body := range []string{`{}`, `{}`, `{"other":1}`} {
		got := w.orders.post(key, body, "X-Tenant", "b", "X-Request-Id", "r")
		got.header.Del("Date")
		did := w.did()
		require.NotContains(w.t, did, waited)
		all.answers, all.did = append(all.answers, got), append(all.did, strings.Split(did, "\n")...)
	}
	require.Equal(w.t, []int{http.StatusCreated, http.StatusCreated, http.StatusConflict},
		[]int{all.answers[0].status, all.answers[1].status, all.answers[2].status})
	require.Equal(w.t, []bool{false, true}, []bool{all.answers[0].replayed(), all.answers[1].replayed()})
	return all
}
