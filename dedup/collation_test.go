package dedup_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// In another one a consumer would stand before the first text that the encoding does not have.
func TestAnInboxIsNotOpenedInADatabaseThatIsNotInUTF8(t *testing.T) {
	admin := deduptest.New(t).Pool
	name := admin.Config().ConnConfig.Database + "_other"
	for _, encoding := range []string{"EUC_JP", "SQL_ASCII", "LATIN1"} {
		_, err := admin.Exec(t.Context(),
			`create database `+name+` encoding '`+encoding+`' locale 'C' template template0`)
		require.NoError(t, err)
		pool := deduptest.OpenPool(t, admin.Config().ConnString()+"&dbname="+name, nil)
		_, err = dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test"})
		require.ErrorContains(t, err, "the database's encoding is "+encoding+", and firstseen needs UTF8: "+
			"create another one")
		_, err = admin.Exec(t.Context(), `drop database `+name+` with (force)`)
		require.NoError(t, err)
	}
}

// An upgrade of ICU or libc changes the order of texts under the indexes that were built in the one before. Here the
// database is told another locale, which sorts numbers by their value.
func TestScopesAndPositionsAreFoundAfterTheCollationHasChanged(t *testing.T) {
	server := deduptest.StartServer(t, pgserver.Config{})
	admin := deduptest.OpenPool(t, server.DSN("postgres"), nil)
	column := "datlocale"
	var version int
	require.NoError(t, admin.QueryRow(t.Context(), `select current_setting('server_version_num')::int`).Scan(&version))
	if version < 150000 {
		t.Skip("Postgres 14 has no locale of a database that sorts otherwise than by bytes on every machine")
	}
	if version < 170000 {
		column = "daticulocale"
	}
	_, err := admin.Exec(t.Context(),
		`create database shop locale_provider icu icu_locale 'en' locale 'C' template template0`)
	require.NoError(t, err)
	db := deduptest.Migrated(t, server.DSN("shop"))
	s := stageOn(t, db, deduptest.OpenPool(t, db.DSN, nil), dedup.Config{})
	var keys []dedup.ScopeKey
	for n := range 2000 {
		keys = append(keys, dedup.ScopeKey{Handler: "h", Tenant: fmt.Sprintf("tenant %d", n)})
	}
	before := s.scopes(keys...)
	s.position(0)
	_, err = db.Pool.Exec(t.Context(), `analyze`)
	require.NoError(t, err)

	_, err = admin.Exec(t.Context(), `update pg_database set `+column+` = 'en-u-kn-true' where datname = 'shop'`)
	require.NoError(t, err)
	after := stageOn(t, db, deduptest.OpenPool(t, db.DSN, nil), dedup.Config{})
	var order []string
	rows, err := after.pool.Query(t.Context(), `select x from unnest(array['10', '9']) x order by x collate "default"`)
	require.NoError(t, err)
	order, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"9", "10"}, order, "the order has changed")
	for n := 0; n < len(keys); n += 10 {
		require.Equal(t, before[n], after.scopes(keys[n])[0],
			"a scope that was not found is a new one, without its message IDs: %s", keys[n].Tenant)
	}
	p, err := after.store.Acquire(t.Context(), "consumer", "orders", 0, "owner")
	require.NoError(t, err)
	require.True(t, p.Known)
	require.Equal(t, repeat(isNew, 1), after.accept(after.batch(p, uuid.New())))
}
