package deduptest_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestNewGivesAMigratedDatabase(t *testing.T) {
	db := deduptest.New(t)
	var rows int
	err := db.Pool.QueryRow(t.Context(), "select count(*) from firstseen.message_dedup").Scan(&rows)
	require.NoError(t, err)
	require.Zero(t, rows)
	require.Equal(t, "firstseen", db.Schema)
}

func TestDatabasesOfTwoTestsShareNothing(t *testing.T) {
	one, other := deduptest.New(t), deduptest.New(t)
	_, err := one.Pool.Exec(t.Context(), "create table firstseen.only_here ()")
	require.NoError(t, err)
	_, err = other.Pool.Exec(t.Context(), "select from firstseen.only_here")
	require.ErrorContains(t, err, "does not exist")
}

func TestDatabasesAreMadeInParallel(t *testing.T) {
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			require.NoError(t, deduptest.New(t).Pool.Ping(t.Context()))
		})
	}
}

func TestNewDatabaseIsEmpty(t *testing.T) {
	conn := connect(t, deduptest.NewDatabase(t))
	var schemas int
	err := conn.QueryRow(t.Context(),
		"select count(*) from pg_namespace where nspname = 'firstseen'").Scan(&schemas)
	require.NoError(t, err)
	require.Zero(t, schemas)
}

func TestDatabaseIsDroppedAlthoughAConnectionIsLeft(t *testing.T) {
	var dsn string
	var left *pgx.Conn
	t.Run("inner", func(inner *testing.T) {
		dsn = deduptest.NewDatabase(inner)
		left = connect(t, dsn)
	})
	_, err := pgx.Connect(t.Context(), dsn)
	require.ErrorContains(t, err, "does not exist")
	require.Error(t, left.Ping(t.Context()))
}

func TestNewDatabasesAreCheap(t *testing.T) {
	deduptest.New(t) // starts the server and migrates the template
	begin := time.Now()
	for range 5 {
		deduptest.New(t)
	}
	t.Logf("%s each", time.Since(begin)/5)
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}
