package deduptest

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

func TestServerOfTheEnvironmentIsUsedAndLeftClean(t *testing.T) {
	own := StartServer(t, pgserver.Config{})
	t.Setenv("FIRSTSEEN_TEST_POSTGRES", own.DSN("postgres"))
	s := &server{}

	admin, template, err := s.migrated()
	require.NoError(t, err)
	require.Equal(t, own.DSN("postgres"), admin)
	again, sameTemplate, err := s.migrated()
	require.NoError(t, err)
	require.Equal(t, admin, again)
	require.Equal(t, template, sameTemplate)
	require.Equal(t, []string{"postgres", template}, databases(t, admin))

	require.NoError(t, s.stop())
	require.Equal(t, []string{"postgres"}, databases(t, admin))
}

func TestFailedMigrationLeavesNoTemplate(t *testing.T) {
	own := StartServer(t, pgserver.Config{})
	t.Setenv("FIRSTSEEN_TEST_POSTGRES", own.DSN("postgres"))
	before := migrate
	defer func() { migrate = before }()
	migrate = func(context.Context, string) error { return context.Canceled }

	_, _, err := new(server).migrated()

	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"postgres"}, databases(t, own.DSN("postgres")))
}

func TestVersionOfTheEnvironmentIsStarted(t *testing.T) {
	t.Setenv("FIRSTSEEN_TEST_POSTGRES", "")
	t.Setenv("FIRSTSEEN_TEST_POSTGRES_VERSION", "12")
	_, err := new(server).get()
	require.ErrorContains(t, err, `version "12"`)
}

func TestDatabaseIsReplacedInBothKindsOfDSN(t *testing.T) {
	for _, dsn := range []string{
		"postgres://me:word@127.0.0.1:6000/postgres?sslmode=disable&application_name=a",
		"postgres://me:word@127.0.0.1:6000/?dbname=postgres&sslmode=disable&application_name=a",
		"host=127.0.0.1 port=6000 user=me password=word dbname=postgres sslmode=disable application_name=a",
	} {
		replaced, err := withDatabase(dsn, "other")
		require.NoError(t, err)
		config, err := pgx.ParseConfig(replaced)
		require.NoError(t, err)
		require.Equal(t, "other", config.Database, replaced)
		require.Equal(t, "127.0.0.1", config.Host)
		require.Equal(t, uint16(6000), config.Port)
		require.Equal(t, "word", config.Password)
		require.Equal(t, "a", config.RuntimeParams["application_name"])
	}
}

func TestMissingPgBouncerSkipsUnlessItIsRequired(t *testing.T) {
	before := pgbouncerPaths
	defer func() { pgbouncerPaths = before }()
	pgbouncerPaths = []string{"/no/such/pgbouncer"}

	t.Setenv("FIRSTSEEN_REQUIRE_PGBOUNCER", "")
	require.Equal(t, "skip: pgbouncer is not installed", verdict(t))
	t.Setenv("FIRSTSEEN_REQUIRE_PGBOUNCER", "1")
	require.Equal(t, "fail: deduptest: FIRSTSEEN_REQUIRE_PGBOUNCER is set and pgbouncer is not installed", verdict(t))
}

// verdict is how a test ends that asks for PgBouncer.
func verdict(t *testing.T) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		PgBouncer(r, "postgres://127.0.0.1:1/none")
	}()
	<-done
	return r.said
}

// recorder keeps the word that ended a test.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Skipf(format string, args ...any) { r.end("skip: "+format, args...) }

func (r *recorder) Fatalf(format string, args ...any) { r.end("fail: "+format, args...) }

func (r *recorder) end(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func databases(t *testing.T, dsn string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(),
		"select datname from pg_database where not datistemplate order by datname desc")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}
