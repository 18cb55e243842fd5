package migrations_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

const goldenFile = "testdata/schema.golden"

// With FIRSTSEEN_UPDATE_GOLDEN set the file is written anew.
func TestSchemaIsTheOneInTheGoldenFile(t *testing.T) {
	got := dump(t, deduptest.New(t).DSN)
	if os.Getenv("FIRSTSEEN_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(goldenFile, []byte(got), 0o644))
	}
	want, err := os.ReadFile(goldenFile)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// dumpSQL describes a schema in a few words that are the same in all versions of Postgres. The inbox's partitions
// for days are left out.
const dumpSQL = `
with ours as (select oid from pg_namespace where nspname = 'firstseen')
select line from (
    select 1 as part, c.relname as name, a.attnum::int as nth,
           format('column %s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
               case when a.attnotnull then ' not null' else '' end,
               coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid),
                   case when a.attidentity <> '' then ' identity' end, '')) as line
    from pg_class c
    join ours on ours.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    where c.relkind in ('r', 'p', 'c', 'v') and c.relname !~ '^inbox_\d+$'
    union all
    select 2, c.relname, 0, format('table %s persistence %s options %s', c.relname, c.relpersistence, c.reloptions)
    from pg_class c join ours on ours.oid = c.relnamespace
    where c.relkind in ('r', 'p') and c.relname !~ '^inbox_\d+$'
    union all
    select 3, indexname, 0, indexdef from pg_indexes
    where schemaname = 'firstseen' and tablename !~ '^inbox_\d+$'
    union all
    select 4, tgname, 0, pg_get_triggerdef(t.oid)
    from pg_trigger t join pg_class c on c.oid = t.tgrelid join ours on ours.oid = c.relnamespace
    where not tgisinternal
    union all
    select 5, t.typname, e.enumsortorder::int, format('enum %s %s', t.typname, e.enumlabel)
    from pg_enum e join pg_type t on t.oid = e.enumtypid join ours on ours.oid = t.typnamespace
    union all
    select 6, p.proname, 0, format('function %s(%s) returns %s, %s, security %s, set %s', p.proname,
        pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
        case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
        case when p.prosecdef then 'definer' else 'invoker' end, array_to_string(p.proconfig, '; '))
    from pg_proc p join ours on ours.oid = p.pronamespace
) lines
order by part, name collate "C", nth, line collate "C"`

func dump(t *testing.T, dsn string) string {
	t.Helper()
	return strings.Join(texts(t, dsn, dumpSQL), "\n") + "\n"
}

func texts(t *testing.T, dsn, sql string, args ...any) []string {
	t.Helper()
	rows, err := connect(t, dsn).Query(t.Context(), sql, args...)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}

func relations(t *testing.T, dsn, schema string) []string {
	t.Helper()
	return texts(t, dsn, `select relname::text from pg_class
		where relnamespace = $1::regnamespace and relkind in ('r', 'p', 'c', 'v') order by 1`, schema)
}

func functions(t *testing.T, dsn, schema string) []string {
	t.Helper()
	return texts(t, dsn, `select proname::text from pg_proc where pronamespace = $1::regnamespace order by 1`, schema)
}

func schemaExists(t *testing.T, dsn, schema string) bool {
	t.Helper()
	return len(texts(t, dsn, `select nspname::text from pg_namespace where nspname = $1`, schema)) == 1
}
