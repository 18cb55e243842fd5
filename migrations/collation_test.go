package migrations_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/migrations"
)

// An index under another collation misses rows once libc or ICU has changed its mind about the order.
func TestEveryIndexOnTextComparesBytes(t *testing.T) {
	dsn := deduptest.New(t).DSN
	const sql = `
		select format('%s (%s, column %s)', i.indrelid::regclass, i.indexrelid::regclass, a.attname)
		from pg_index i
		join pg_class c on c.oid = i.indexrelid
		cross join lateral unnest(i.indcollation) with ordinality k (collate_id, nth)
		join pg_attribute a on a.attrelid = i.indexrelid and a.attnum = k.nth
		where c.relnamespace = 'firstseen'::regnamespace and k.collate_id <> 0 and (k.collate_id = '"C"'::regcollation) = $1
		order by 1`
	require.Empty(t, texts(t, dsn, sql, false), `write: text collate "C"`)
	require.Contains(t, texts(t, dsn, sql, true),
		"firstseen.scopes (firstseen.scopes_inbox_handler_tenant_key, column tenant)",
		"the question finds what it asks for")
}

func TestKeysAreMigratedWhileABatchIsOpenWithoutHoldingOthersUp(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	_, err := migrations.Up(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	_, err = migrations.Down(t.Context(), dsn, migrations.Config{}, 6)
	require.NoError(t, err)
	batch, other := connect(t, dsn), connect(t, dsn)
	exec(t, batch, `begin`)
	exec(t, batch, `insert into firstseen.positions (consumer, topic, "partition") values ('c', 't', 0)`)

	migrated := make(chan error, 1)
	go func() {
		_, err := migrations.Up(t.Context(), dsn, migrations.Config{})
		migrated <- err
	}()
	awaitRows(t, dsn, `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
	exec(t, other, `set statement_timeout = '20s'`)
	for range 5 { // the migration waits all the while, and lets others through
		exec(t, other,
			`insert into firstseen.scopes (inbox, handler, tenant) values ('i', 'h', gen_random_uuid()::text)`)
		exec(t, other, `update firstseen.positions set updated_at = now() where consumer = 'none'`)
	}
	select {
	case err := <-migrated:
		require.Fail(t, "it did not wait for the batch", err)
	default:
	}
	exec(t, batch, `commit`)
	require.NoError(t, <-migrated)
}

func awaitRows(t *testing.T, dsn, sql string) {
	t.Helper()
	conn := connect(t, dsn)
	require.Eventually(t, func() bool {
		tag, err := conn.Exec(t.Context(), sql)
		return err == nil && tag.RowsAffected() > 0
	}, 3*time.Minute, 5*time.Millisecond)
}

func TestDatabaseThatIsNotInUTF8IsRefused(t *testing.T) {
	admin := connect(t, deduptest.NewDatabase(t))
	for _, encoding := range []string{"EUC_JP", "SQL_ASCII", "LATIN1"} {
		t.Run(encoding, func(t *testing.T) {
			name := admin.Config().Database + "_other"
			exec(t, admin, `create database `+name+` encoding '`+encoding+`' locale 'C' template template0`)
			defer exec(t, admin, `drop database `+name+` with (force)`)
			dsn := admin.Config().ConnString() + "&dbname=" + name
			_, err := migrations.Up(t.Context(), dsn, migrations.Config{})
			require.ErrorContains(t, err, "the database's encoding is "+encoding+", and firstseen needs UTF8")
			require.False(t, schemaExists(t, dsn, "firstseen"))
		})
	}
}

func TestReadOnlyDefaultIsObeyedByMigrations(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	setDefault(t, dsn, "default_transaction_read_only", "on")
	_, err := migrations.Up(t.Context(), dsn, migrations.Config{})
	require.ErrorContains(t, err, "read-only transaction")
	_, err = migrations.Up(t.Context(), dsn+"&default_transaction_read_only=off", migrations.Config{})
	require.NoError(t, err, "the connection string says otherwise")
}

// Whoever may log in can hold an advisory lock: a function that waits for one could be stopped by anybody. One that
// only tries, as claim_request does, says at once that the key is being worked on.
func TestNoFunctionWaitsAtALockThatAnyLoginMayHold(t *testing.T) {
	require.Empty(t, texts(t, deduptest.New(t).DSN, `select proname::text from pg_proc
		where pronamespace = 'firstseen'::regnamespace and prosrc ~ 'pg_advisory_(xact_)?lock' order by 1`),
		"lock rows or tables instead")
}
