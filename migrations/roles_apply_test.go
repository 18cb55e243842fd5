package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/migrations"
)

// shop is a migrated database of a server without the roles, and the connection string of its owner, a login that may
// create roles.
func shop(t *testing.T) (server *pgserver.Server, owner string) {
	t.Helper()
	server = deduptest.StartServer(t, pgserver.Config{})
	admin := connect(t, server.DSN("postgres"))
	exec(t, admin, `create role keeper login createrole`)
	exec(t, admin, `create database shop owner keeper`)
	owner = deduptest.As(t, server.DSN("shop"), "keeper")
	_, err := migrations.Up(t.Context(), owner, migrations.Config{})
	require.NoError(t, err)
	return server, owner
}

func TestApplyRolesMakesWhatIsMissingAndMayBeRepeated(t *testing.T) {
	server, owner := shop(t)
	made, err := migrations.ApplyRoles(t.Context(), owner, migrations.Config{})
	require.NoError(t, err)
	require.Equal(t, []string{"firstseen_owner", "firstseen_consumer", "firstseen_operator", "firstseen_retention",
		"firstseen_sender"}, made)
	admin := connect(t, server.DSN("shop"))
	exec(t, admin, `create role payments login in role firstseen_consumer`)
	payments := deduptest.OpenPool(t, deduptest.As(t, server.DSN("shop"), "payments"), nil)
	requireWorks(t, payments, "")

	exec(t, admin, `revoke insert on firstseen.inbox from firstseen_consumer`)
	exec(t, admin, `drop owned by firstseen_sender; drop role firstseen_sender`)
	made, err = migrations.ApplyRoles(t.Context(), owner, migrations.Config{})
	require.NoError(t, err)
	require.Equal(t, []string{"firstseen_sender"}, made)
	requireWorks(t, payments, "")

	made, err = migrations.ApplyRoles(t.Context(), server.DSN("shop"), migrations.Config{})
	require.NoError(t, err, "by a superuser")
	require.Empty(t, made)
}

// Who deploys is a member of the owner, and neither creates roles nor has anything from the database itself.
func TestApplyRolesByAMemberOfTheOwner(t *testing.T) {
	server, owner := shop(t)
	_, err := migrations.ApplyRoles(t.Context(), owner, migrations.Config{})
	require.NoError(t, err)
	admin := connect(t, server.DSN("shop"))
	exec(t, admin, `create role deploy login in role firstseen_owner`)
	exec(t, admin, `create role deploy_as_owner login in role firstseen_owner; alter role deploy_as_owner set role firstseen_owner`)
	for _, login := range []string{"deploy", "deploy_as_owner"} {
		dsn := deduptest.As(t, server.DSN("shop"), login)
		exec(t, admin, `revoke insert on firstseen.inbox from firstseen_consumer`)
		_, err = migrations.Down(t.Context(), dsn, migrations.Config{}, 9)
		require.NoError(t, err)
		_, err = migrations.Up(t.Context(), dsn, migrations.Config{})
		require.NoError(t, err)
		_, err = migrations.ApplyRoles(t.Context(), dsn, migrations.Config{})
		require.NoError(t, err, login)
		var may bool
		require.NoError(t, admin.QueryRow(t.Context(),
			`select has_table_privilege('firstseen_consumer', 'firstseen.inbox', 'insert')`).Scan(&may))
		require.True(t, may)
	}

	exec(t, admin, `drop owned by firstseen_sender; drop role firstseen_sender`)
	_, err = migrations.ApplyRoles(t.Context(), deduptest.As(t, server.DSN("shop"), "deploy"), migrations.Config{})
	require.ErrorContains(t, err, `firstseen_sender is not there, and "deploy" may not create roles: `+
		"have a superuser run this once, or `alter role \"deploy\" createrole`")
}

func TestApplyRolesSaysWhatTheLoginLacksAndChangesNothing(t *testing.T) {
	server, _ := shop(t)
	admin := connect(t, server.DSN("shop"))
	exec(t, admin, `create role stranger login; create role maker login createrole`)
	apply := func(login string) error {
		_, err := migrations.ApplyRoles(t.Context(), deduptest.As(t, server.DSN("shop"), login), migrations.Config{})
		return err
	}
	exec(t, admin, `grant usage on schema firstseen to stranger, maker; grant select on firstseen.schema_version to stranger, maker`)
	require.ErrorContains(t, apply("stranger"), `"stranger" may not create roles`)
	require.ErrorContains(t, apply("maker"), "have a superuser `grant firstseen_owner to \"maker\"`")
	var roles int
	require.NoError(t, admin.QueryRow(t.Context(),
		`select count(*) from pg_roles where rolname like 'firstseen\_%'`).Scan(&roles))
	require.Zero(t, roles)
}

func TestApplyRolesWantsTheSchemaOfItsBuild(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	_, err := migrations.ApplyRoles(t.Context(), dsn, migrations.Config{})
	require.ErrorContains(t, err, "the schema is at version 0")
	require.ErrorContains(t, err, "run `firstseen migrate up` of this build first")
	_, err = migrations.Up(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	_, err = migrations.Down(t.Context(), dsn, migrations.Config{}, 9)
	require.NoError(t, err)
	_, err = migrations.ApplyRoles(t.Context(), dsn, migrations.Config{})
	require.ErrorContains(t, err, "the schema is at version 9")
}

func TestApplyRolesByManyAtOnce(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	_, err := migrations.Up(t.Context(), dsn, migrations.Config{})
	require.NoError(t, err)
	var group errgroup.Group
	for range 6 {
		group.Go(func() error {
			_, err := migrations.ApplyRoles(t.Context(), dsn, migrations.Config{})
			return err
		})
	}
	require.NoError(t, group.Wait())
}
