package migrations

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFunctionsThatAMigrationDropsAreGone(t *testing.T) {
	made := map[string]Function{}
	readFunctions(`
create function s.kept(p int) returns int language sql as $$ select 1 $$;
create or replace function s.dropped(p_a int, p_b text)
returns int
language sql
security definer
set search_path = s, pg_temp
set timezone to 'UTC'
as $body$ select $$x$$ $body$;
create function s.old() returns int language sql as $$ select 1 $$;
create or replace function s.old() returns int language sql as $$ select 2 $$;
`, "s", made)
	require.Len(t, made, 3)
	require.Contains(t, made, "dropped(p_a int, p_b text")
	require.Equal(t, Function{Name: "dropped", Body: " select $$x$$ ",
		Settings: []string{"search_path=s, pg_temp", "timezone=UTC"}, Definer: true},
		made["dropped(p_a int, p_b text"])
	require.Equal(t, " select 2 ", made["old("].Body)
	readFunctions("drop function if exists s.dropped(int, text), s.old;\n", "s", made)
	require.Len(t, made, 1)
	require.Equal(t, "kept", made["kept(p int"].Name)
}
