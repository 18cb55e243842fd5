package migrations_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestRetentionRoleReachesNoYoungDayByAYearBeforeChrist(t *testing.T) {
	db := withRoles(t, "")
	withOldID(t, db)
	retention := login(t, db.DB, "firstseen_retention")
	for _, day := range []string{time.Now().UTC().Format(time.DateOnly) + " BC", "-infinity", "infinity"} {
		_, err := retention.Exec(t.Context(),
			`select firstseen.drop_inbox_day('test', $1::text::date, 'me', 'x')`, day)
		require.Equal(t, "FS004", code(err), "%s: %v", day, err)
	}
	var notes int
	require.NoError(t, db.Pool.QueryRow(t.Context(), `select count(*) from firstseen.audit`).Scan(&notes))
	require.Zero(t, notes)
}

func TestOperatorRoleResetsNoPositionToWhatIsNoOffset(t *testing.T) {
	db := withRoles(t, "")
	operator := login(t, db.DB, "firstseen_operator")
	for _, places := range []string{`'{0}', '{-1}'`, `'{-1}', '{0}'`, `'{0}', '{null}'`, `'{0,1}', '{5}'`} {
		_, err := operator.Exec(t.Context(),
			`select firstseen.reset_position('test', 'shop', 'orders', null, `+places+`, 'me', 'x')`)
		require.ErrorContains(t, err, "begin at 0", places)
	}
}

// After a migration the roles have what roles.sql gave them before it, and everybody what functions give by default.
func TestWhatRunsAsTheOwnerIsNotEverybodysBeforeTheRolesAreMade(t *testing.T) {
	db := deduptest.New(t)
	var open []string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `
		select array_agg(p.proname::text order by p.proname) from pg_proc p
		where p.pronamespace = 'firstseen'::regnamespace and p.prosecdef and has_function_privilege('public', p.oid, 'execute')`).Scan(&open))
	require.Equal(t, []string{"discard", "make_partitions", "redrive", "wake_lanes"}, open,
		"those of the first versions; a migration has to revoke others")
}

func TestAuditKeepsTheLoginAndTakesNoEmptyActorOrReason(t *testing.T) {
	db := withRoles(t, "")
	operator := login(t, db.DB, "firstseen_operator")
	ctx := t.Context()
	for _, said := range []string{`'', 'x'`, `'me', ''`, "E' \\t\\n', 'x'", `'me', '  '`} {
		for _, change := range []string{`pause('test', 'topic', 'orders', -1, `,
			`reset_position('test', 'shop', 'orders', null, '{0}', '{0}', `} {
			_, err := operator.Exec(ctx, `select firstseen.`+change+said+`)`)
			require.Equal(t, "23514", code(err), "%s%s: %v", change, said, err) // check_violation
			require.ErrorContains(t, err, "actor_and_why_are_said")
		}
	}
	var paused bool
	require.NoError(t, db.Pool.QueryRow(ctx, `select exists (select from firstseen.pauses)`).Scan(&paused))
	require.False(t, paused)

	_, err := operator.Exec(ctx, `select firstseen.pause('test', 'topic', 'orders', -1, 'somebody else', 'x')`)
	require.NoError(t, err)
	store, err := dedup.Attach(ctx, operator, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	records, _, err := operate.Of(store).Audit(ctx, operate.AuditFilter{}, "", 10)
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, "somebody else", records[0].Actor)
	require.Equal(t, operator.Config().ConnConfig.User, records[0].Login, "the login, and not the function's owner")
}
