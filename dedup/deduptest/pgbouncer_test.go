package deduptest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

func TestPgBouncerPoolsPerTransaction(t *testing.T) {
	b := deduptest.PgBouncer(t, deduptest.NewDatabase(t))
	one, other := connectThrough(t, b), connectThrough(t, b)

	first := serverPID(t, one)
	tx, err := one.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "select 1")
	require.NoError(t, err)
	require.NotEqual(t, first, serverPID(t, other), "a transaction keeps its server connection")

	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, serverPID(t, one), serverPID(t, other), "outside of one two clients share it")
}

func TestPgBouncerRestartCutsItsClients(t *testing.T) {
	b := deduptest.PgBouncer(t, deduptest.NewDatabase(t))
	cut := connectThrough(t, b)

	b.Restart()

	require.Error(t, cut.Ping(t.Context()))
	require.NotZero(t, serverPID(t, connectThrough(t, b)))
}

func TestPgBouncerKnowsThePassword(t *testing.T) {
	s := deduptest.StartServer(t, pgserver.Config{Password: `se"cret`})
	b := deduptest.PgBouncer(t, s.DSN("postgres"))
	require.NotZero(t, serverPID(t, connectThrough(t, b)))
}

// connectThrough uses no prepared statements: PgBouncer before 1.21 cannot carry them from one server
// connection to the next.
func connectThrough(t *testing.T, b *deduptest.Bouncer) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(b.DSN)
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func serverPID(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid))
	return pid
}
