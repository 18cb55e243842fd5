package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/migrations"
)

// After a migration, what it made is nobody's but the owner's until roles.sql is run again.
func TestConsumerWithoutTheRolesOfTheUpgradeIsRefusedAtTheStartAndTold(t *testing.T) {
	db := withRoles(t, "")
	ctx, config := t.Context(), dedup.Config{Inbox: "test"}
	store, err := dedup.Open(ctx, db.consumer, config)
	require.NoError(t, err)
	const again = "run `firstseen migrate roles`, again after each upgrade"
	for right, change := range map[string][2]string{
		"select on pauses": {`revoke select on firstseen.pauses from firstseen_consumer`,
			`grant select on firstseen.pauses to firstseen_consumer`},
		"delete on parked": {`revoke delete on firstseen.parked from firstseen_consumer`,
			`grant delete on firstseen.parked to firstseen_consumer`},
		"update of published_at on dead_letters": {
			`revoke update (published_at) on firstseen.dead_letters from firstseen_consumer`,
			`grant update (published_at) on firstseen.dead_letters to firstseen_consumer`},
		"usage of the sequence message_seq": {
			`revoke usage on sequence firstseen.message_seq from firstseen_consumer`,
			`grant usage on sequence firstseen.message_seq to firstseen_consumer`},
		"execute of claim_lanes": {
			`revoke execute on function firstseen.claim_lanes from firstseen_consumer`,
			`grant execute on function firstseen.claim_lanes to firstseen_consumer`},
		"execute of make_partitions": {
			`revoke execute on function firstseen.make_partitions from firstseen_consumer`,
			`grant execute on function firstseen.make_partitions to firstseen_consumer`},
		"read version of schema": {`revoke usage on schema firstseen from firstseen_consumer`,
			`grant usage on schema firstseen to firstseen_consumer`},
	} {
		makeRoles(t, db.DB, change[0])
		_, err := dedup.Open(ctx, db.consumer, config)
		require.ErrorContains(t, err, right)
		require.ErrorContains(t, err, again)
		if right == "select on pauses" {
			_, err := store.Pauses(ctx)
			require.Equal(t, denied, code(err), "%v", err)
			require.ErrorContains(t, err, again)
		}
		makeRoles(t, db.DB, change[1])
	}
	_, err = dedup.Open(ctx, db.consumer, config)
	require.NoError(t, err)
}

// The build before goes on beside the new schema, with the rights that it had.
func TestConsumerKeepsTheRightToAcceptWhileItsFunctionIsReplaced(t *testing.T) {
	db := withRoles(t, "")
	may := func(role string) (may bool) {
		t.Helper()
		require.NoError(t, db.Pool.QueryRow(t.Context(),
			`select has_function_privilege($1, p.oid, 'execute') from pg_proc p where p.oid = to_regproc('firstseen.accept')`, role).Scan(&may))
		return may
	}
	for _, version := range []int64{9, 10} { // with the rights of a new function, then with those of roles.sql
		_, err := migrations.Down(t.Context(), db.DSN, migrations.Config{}, 9)
		require.NoError(t, err)
		if version == 10 {
			makeRoles(t, db.DB, `revoke execute on function firstseen.accept from public; grant execute on function firstseen.accept to firstseen_consumer`)
		}
		_, err = migrations.Up(t.Context(), db.DSN, migrations.Config{})
		require.NoError(t, err)
		require.True(t, may("firstseen_consumer"))
		require.Equal(t, version == 9, may("firstseen_operator"))
	}
}
