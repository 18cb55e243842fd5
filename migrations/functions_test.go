package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/migrations"
)

// Postgres tells what the migrations made, to the byte; what is read from their text has to be the same.
func TestFunctionsAreThoseThatPostgresHas(t *testing.T) {
	rows, err := connect(t, deduptest.New(t).DSN).Query(t.Context(), `
		select proname::text, prosrc,
			array(select lower(split_part(c, '=', 1)) || '=' || split_part(c, '=', 2) from unnest(proconfig) c order by 1), prosecdef
		from pg_proc where pronamespace = 'firstseen'::regnamespace order by proname::text || ' ' || prosrc collate "C"`)
	require.NoError(t, err)
	want, err := pgx.CollectRows(rows, pgx.RowToStructByPos[migrations.Function])
	require.NoError(t, err)
	require.NotEmpty(t, want)
	for i := range want {
		if len(want[i].Settings) == 0 {
			want[i].Settings = nil
		}
	}
	got, err := migrations.Functions(migrations.Config{})
	require.NoError(t, err)
	require.Equal(t, want, got)

	named, err := migrations.Functions(migrations.Config{Schema: "app"})
	require.NoError(t, err)
	require.Len(t, named, len(got))
	require.Contains(t, named[0].Settings, "search_path=app, pg_temp")
	_, err = migrations.Functions(migrations.Config{Schema: "public"})
	require.Error(t, err)
}
