package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/migrations"
)

func TestMigrateUpStatusAndDown(t *testing.T) {
	t.Chdir(t.TempDir())
	dsn := deduptest.NewDatabase(t)
	migrate := func(code int, args ...string) (string, string) {
		t.Helper()
		stdout, stderr, got := command(t, append([]string{"migrate", "--dsn", dsn, "--schema", "seen"}, args...)...)
		require.Equal(t, code, got, stdout+stderr)
		return stdout, stderr
	}
	_, stderr := migrate(exitOtherVersion, "status")
	require.Contains(t, stderr, "schema seen is not there")
	require.False(t, hasSchema(t, dsn, "seen"), "status changed the database")
	_, stderr = migrate(exitFailure, "down", "--to", "1")
	require.Contains(t, stderr, "nothing to take back")

	stdout, _ := migrate(exitOK, "up")
	require.Contains(t, stdout, "applied 00001_inbox\n")
	require.Contains(t, stdout, "schema seen is at version")
	stdout, _ = migrate(exitOK, "up")
	require.NotContains(t, stdout, "applied")
	stdout, _ = migrate(exitOK, "status")
	require.Regexp(t, `(?m)^VERSION +STEP +APPLIED\n1 +00001_inbox +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$`, stdout)

	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(t.Context(), `insert into seen.audit (actor, action, why, inbox, subject) values ('eve', 'pause', 'night', 'shop', 'topic orders')`)
	require.NoError(t, err)
	migrate(exitOK, "down", "--to", "4")
	stdout, stderr = migrate(exitUsage, "down", "--to", "1")
	require.Empty(t, stdout)
	require.Contains(t, stderr, "version 1 can't keep 1 of the audit's entries")
	stdout, _ = migrate(exitOK, "down", "--to", "1", "--yes")
	require.Contains(t, stdout, "taken back 00002_functions\nschema seen is at version 1\n")
	stdout, stderr = migrate(exitOtherVersion, "status")
	require.Regexp(t, `(?m)^2 +00002_functions +pending$`, stdout)
	require.Contains(t, stderr, "is at version 1, and this build needs")
	migrate(exitFailure, "down", "--to", "1")
	_, stderr = migrate(exitUsage, "down", "--to", "0")
	require.Contains(t, stderr, "0 message IDs, all that were ever seen, would be lost")
	migrate(exitOK, "down", "--to", "0", "--yes")
	_, stderr = migrate(exitOtherVersion, "status")
	require.Contains(t, stderr, "schema seen is not there")
}

// It asks below the step that makes message_dedup.
func TestFirstStepIsTheOneThatKeepsTheMessageIDs(t *testing.T) {
	for version := range migrations.Latest() + 1 {
		steps, err := migrations.PrintFrom(migrations.Config{}, version)
		require.NoError(t, err)
		require.Equal(t, version < firstKept, strings.Contains(steps, "create table firstseen.message_dedup"))
	}
}

func TestPrintedSQLMakesTheSchemaThatRunWants(t *testing.T) {
	t.Chdir(t.TempDir())
	sql, _, code := command(t, "migrate", "print", "--schema", "seen")
	require.Equal(t, exitOK, code)
	dsn := deduptest.NewDatabase(t)
	execute := func(sql string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		defer func() { _ = conn.Close(t.Context()) }()
		_, err = conn.PgConn().Exec(t.Context(), sql).ReadAll()
		require.NoError(t, err)
	}
	execute(sql)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	_, err = dedup.Open(t.Context(), pool, dedup.Config{Inbox: "x", Schema: "seen"})
	require.NoError(t, err)
	stdout, stderr, code := command(t, "migrate", "up", "--dsn", dsn, "--schema", "seen")
	require.Equal(t, exitOK, code, stderr)
	require.NotContains(t, stdout, "applied")
	var rows, versions int64
	require.NoError(t, pool.QueryRow(t.Context(),
		`select count(*), count(distinct version_id) from seen.schema_version`).Scan(&rows, &versions))
	steps, err := migrations.Status(t.Context(), dsn, migrations.Config{Schema: "seen"})
	require.NoError(t, err)
	require.Equal(t, []int64{int64(len(steps)) + 1, int64(len(steps)) + 1}, []int64{rows, versions},
		"each version is noted once")

	roles, _, code := command(t, "migrate", "print", "--roles", "--schema", "seen")
	require.Equal(t, exitOK, code)
	require.Contains(t, roles, "grant usage on schema seen to firstseen_consumer, firstseen_operator")
	rest, _, code := command(t, "migrate", "print", "--from", "1")
	require.Equal(t, exitOK, code)
	require.NotContains(t, rest, "create table firstseen.inbox")
	require.NotContains(t, rest, "create table firstseen.schema_version")
	require.NotContains(t, rest, "values (1, true)")
	require.Contains(t, rest, "values (2, true)")
}

func TestMigrateUpAndRoles(t *testing.T) {
	t.Chdir(t.TempDir())
	dsn := deduptest.NewDatabase(t)
	_, stderr, code := command(t, "migrate", "roles", "--dsn", dsn)
	require.Equal(t, exitFailure, code)
	require.Contains(t, stderr, "run `firstseen migrate up` of this build first")
	stdout, stderr, code := command(t, "migrate", "up", "--roles", "--dsn", dsn, "--schema", "seen")
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, "applied 00001_inbox\n")
	require.Regexp(t, `(?m)^schema seen is at version \d+\n(made role firstseen_\w+\n)*the roles have their rights in schema seen\n$`, stdout)

	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	may := func() (may bool) {
		require.NoError(t, conn.QueryRow(t.Context(),
			`select has_table_privilege('firstseen_consumer', 'seen.inbox', 'insert')`).Scan(&may))
		return may
	}
	require.True(t, may())
	_, err = conn.Exec(t.Context(), `revoke insert on seen.inbox from firstseen_consumer`)
	require.NoError(t, err)
	stdout, stderr, code = command(t, "migrate", "roles", "--dsn", dsn, "--schema", "seen")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "the roles have their rights in schema seen\n", stdout)
	require.True(t, may())
}

func hasSchema(t *testing.T, dsn, schema string) (there bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	require.NoError(t, conn.QueryRow(t.Context(),
		`select exists (select from pg_namespace where nspname = $1)`, schema).Scan(&there))
	return there
}

func TestMigratePrintRefusesAVersionThatThereIsNot(t *testing.T) {
	newest := strconv.FormatInt(migrations.Latest(), 10)
	for _, from := range []string{"99", "-1"} {
		stdout, stderr, code := command(t, "migrate", "print", "--from", from)
		require.Equal(t, exitUsage, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr,
			"--from "+from+" is no version of the schema: the newest that this build knows is "+newest)
	}
	_, stderr, code := command(t, "migrate", "print", "--from", newest)
	require.Equal(t, exitOK, code, stderr)
}
