package migrations_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/migrations"
)

func TestReplicasStartedTogetherOnAnEmptyDatabaseAllComeUp(t *testing.T) {
	const rounds, replicas = 6, 8
	for range rounds {
		dsn := deduptest.NewDatabase(t)
		var group errgroup.Group
		for range replicas {
			group.Go(func() error {
				_, err := migrations.Up(t.Context(), dsn, migrations.Config{})
				return err
			})
		}
		require.NoError(t, group.Wait())
		requireWorks(t, open(t, dsn), "")
	}
}

func TestLockOfAKilledReplicaIsFree(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	holder := connect(t, dsn)
	exec(t, holder, `select pg_advisory_lock($1)`, lock.DefaultLockID)

	_, err := migrations.Up(t.Context(), dsn, migrations.Config{LockTimeout: 300 * time.Millisecond})
	require.ErrorContains(t, err, "has held the migration lock for 300ms",
		"a replica that is alive keeps others waiting")
	require.ErrorContains(t, err, fmt.Sprintf("session %d of postgres", holder.PgConn().PID()))

	exec(t, holder, `select pg_advisory_unlock_all(), pg_advisory_lock($1)`, lock.DefaultLockID+1)
	_, err = migrations.Up(t.Context(), dsn, migrations.Config{LockTimeout: 300 * time.Millisecond})
	require.ErrorContains(t, err, fmt.Sprintf("session %d of postgres", holder.PgConn().PID()),
		"the lock that the schema is made under")

	exec(t, connect(t, dsn), `select pg_terminate_backend($1)`, holder.PgConn().PID())
	begin := time.Now()
	_, err = migrations.Up(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	require.Less(t, time.Since(begin), time.Minute)
}

func TestUpTellsWhatItDidAndDoesItOnce(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	before, err := migrations.Status(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	require.Equal(t, migrations.Latest(), before[len(before)-1].Version)
	require.True(t, before[0].AppliedAt.IsZero())
	require.False(t, schemaExists(t, dsn, "firstseen"), "a look changes nothing")

	steps, err := migrations.Up(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	require.Len(t, steps, len(before))
	require.Equal(t, "00001_inbox", steps[0].Name)

	again, err := migrations.Up(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	require.Empty(t, again)

	after, err := migrations.Status(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	for i, s := range after {
		require.Equal(t, before[i].Version, s.Version)
		require.WithinDuration(t, time.Now(), s.AppliedAt, time.Minute, "whatever the server's time zone")
	}
}

func TestTimesAreRightWhateverTheTimeZone(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	setDefault(t, dsn, "timezone", "Asia/Tokyo")
	_, err := migrations.Up(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	steps, err := migrations.Status(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), steps[0].AppliedAt, time.Minute)
}

func TestUpIsNotHurtByDefaultsOfTheDatabase(t *testing.T) {
	for setting, value := range map[string]string{
		"default_transaction_isolation": "serializable",
		"statement_timeout":             "1",
		"search_path":                   "pg_catalog",
	} {
		t.Run(setting, func(t *testing.T) {
			dsn := deduptest.NewDatabase(t)
			setDefault(t, dsn, setting, value)
			_, err := migrations.Up(t.Context(), dsn, migrations.Config{})
			require.NoError(t, err)
		})
	}
}

func TestDownToNothingAndUpAgain(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	steps, err := migrations.Down(t.Context(), dsn, migrations.Config{}, 0)
	require.NoError(t, err)
	require.Empty(t, steps, "nothing there, nothing done")

	for range 2 {
		up, err := migrations.Up(t.Context(), dsn, migrations.Config{})
		require.NoError(t, err)
		requireWorks(t, open(t, dsn), "")
		steps, err = migrations.Down(t.Context(), dsn, migrations.Config{}, 0)
		require.NoError(t, err)
		require.Len(t, steps, len(up))
		require.Equal(t, []string{"schema_version"}, relations(t, dsn, "firstseen"))
		require.Empty(t, functions(t, dsn, "firstseen"))
	}
}

func TestEachStepGoesDownAlone(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	_, there, err := migrations.Version(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	require.False(t, there)
	require.False(t, schemaExists(t, dsn, "firstseen"), "to ask makes nothing")
	steps, err := migrations.Status(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	for i := len(steps) - 1; i >= 0; i-- {
		version := int64(0)
		if i > 0 {
			version = steps[i-1].Version
		}
		_, err := migrations.Up(t.Context(), dsn, migrations.Config{})
		require.NoError(t, err)
		_, err = migrations.Down(t.Context(), dsn, migrations.Config{}, version)
		require.NoError(t, err)
		found, there, err := migrations.Version(t.Context(), dsn, migrations.Config{})
		require.NoError(t, err)
		require.True(t, there)
		require.Equal(t, version, found)
	}
}

func TestTwoSchemasInOneDatabaseShareNothing(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	for _, schema := range []string{"", "other_1"} {
		_, err := migrations.Up(t.Context(), dsn, migrations.Config{Schema: schema})
		require.NoError(t, err)
	}
	pool := open(t, dsn)
	id := uuid.New()
	for _, schema := range []string{"", "other_1"} {
		require.Equal(t, dedup.New, acceptOne(t, pool, schema, id))
		require.Equal(t, dedup.Duplicate, acceptOne(t, pool, schema, id))
	}
	_, err := migrations.Down(t.Context(), dsn, migrations.Config{Schema: "other_1"}, 0)
	require.NoError(t, err)
	require.Equal(t, dedup.Duplicate, acceptOne(t, pool, "", id))
}

func TestNothingInAnotherSchemaNamesTheDefaultOne(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	_, err := migrations.Up(t.Context(), dsn, migrations.Config{Schema: "other"})
	require.NoError(t, err)
	require.False(t, schemaExists(t, dsn, "firstseen"))

	text, err := migrations.Print(migrations.Config{Schema: "other"})
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "--")
		require.NotRegexp(t, `\bfirstseen\b`, code)
	}
}

func TestNamesThatAreNoSchemaOfOurOwnAreRefused(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	for _, name := range []string{
		"Upper", "with space", "1st", "pg_mine", "a.b", `a"b`, "a;drop table x", "ünicode", strings.Repeat("x", 64),
		"public", "information_schema", "order", "user",
	} {
		_, err := migrations.Up(t.Context(), dsn, migrations.Config{Schema: name})
		require.ErrorContains(t, err, "schema", name)
		require.ErrorContains(t, err, strconv.Quote(name))
	}
	_, err := migrations.Print(migrations.Config{Schema: "a b"})
	require.Error(t, err)
	_, err = migrations.Roles(migrations.Config{Schema: "a b"})
	require.Error(t, err)
}

func TestPrintedSQLIsAppliedWithoutOurTools(t *testing.T) {
	for _, schema := range []string{"", "other"} {
		dsn := deduptest.NewDatabase(t)
		text, err := migrations.Print(migrations.Config{Schema: schema})
		require.NoError(t, err)
		_, err = connect(t, dsn).PgConn().Exec(t.Context(), text).ReadAll() // one simple query: one transaction
		require.NoError(t, err)

		requireWorks(t, open(t, dsn), schema)
		steps, err := migrations.Up(t.Context(), dsn, migrations.Config{Schema: schema})
		require.NoError(t, err)
		require.Empty(t, steps, "Up knows what was applied")
	}
}

func TestPrintedSchemaIsTheMigratedOne(t *testing.T) {
	migrated, printed := deduptest.NewDatabase(t), deduptest.NewDatabase(t)
	_, err := migrations.Up(t.Context(), migrated, migrations.Config{})
	require.NoError(t, err)
	text, err := migrations.Print(migrations.Config{})
	require.NoError(t, err)
	_, err = connect(t, printed).Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	require.Equal(t, dump(t, migrated), dump(t, printed))
}

func open(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	return deduptest.OpenPool(t, dsn, nil)
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// setDefault sets a default of the database, for connections made later.
func setDefault(t *testing.T, dsn, setting, value string) {
	t.Helper()
	conn := connect(t, dsn)
	exec(t, conn, `alter database `+conn.Config().Database+` set `+setting+` = '`+value+`'`)
}

// requireWorks takes a message through the schema, once and again.
func requireWorks(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	id := uuid.New()
	require.Equal(t, dedup.New, acceptOne(t, pool, schema, id))
	require.Equal(t, dedup.Duplicate, acceptOne(t, pool, schema, id))
}

func acceptOne(t *testing.T, pool *pgxpool.Pool, schema string, id uuid.UUID) dedup.Outcome {
	t.Helper()
	ctx := t.Context()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "test", Schema: schema})
	require.NoError(t, err)
	scopes, err := store.Scopes(ctx, []dedup.ScopeKey{{Handler: "h"}})
	require.NoError(t, err)
	p, err := store.Acquire(ctx, "c", "orders", 0, "me")
	require.NoError(t, err)
	require.NoError(t, store.Reposition(ctx, p, 10, uuid.Nil, nil))
	b := &dedup.Batch{Position: p, Next: 11, Entries: []dedup.Entry{{Scope: scopes.IDs[0], Message: &dedup.Message{
		ID: id, Topic: "orders", Offset: 10, Value: []byte("v")}}}}
	tx, err := store.Accept(ctx, b)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
	return b.Entries[0].Outcome
}
