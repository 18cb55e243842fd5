package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/migrations"
)

const denied = "42501" // insufficient_privilege

func TestConsumerRoleConsumes(t *testing.T) {
	db := withRoles(t, "")
	_, err := db.Pool.Exec(t.Context(), `create table effects (id uuid); grant insert on effects to `+db.login)
	require.NoError(t, err)
	ctx, pool := t.Context(), db.consumer
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "test", EvictAfter: 100 * time.Millisecond})
	require.NoError(t, err)
	p, err := store.Acquire(ctx, "c", "orders", 0, "old")
	require.NoError(t, err)
	require.NoError(t, store.Reposition(ctx, p, 0, uuid.Nil, nil))
	var registry handlers.Registry
	require.NoError(t, registry.Register("h", insertEffect(), "orders"))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	require.NoError(t, err)
	id := uuid.New()
	result, err := processor.Process(ctx, handlers.Batch{Position: p, Next: 2, Messages: []dedup.Message{
		{ID: id, Topic: "orders", Offset: 0}, {ID: id, Topic: "orders", Offset: 1}}})
	require.NoError(t, err)
	require.Equal(t, handlers.Result{New: 1, Duplicates: 1}, result)

	hung, err := store.Accept(ctx, &dedup.Batch{Position: p, Next: 3})
	require.NoError(t, err)
	defer hung.Rollback(ctx)
	p, err = store.Acquire(ctx, "c", "orders", 0, "new")
	require.NoError(t, err)
	require.Equal(t, 1, p.Evicted)
	require.EqualValues(t, 2, p.Next)

	tx, err := store.Accept(ctx, &dedup.Batch{})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx), "a batch without a position")
	require.NoError(t, store.Recall(ctx, p))
	require.NoError(t, store.Excuse(ctx, p))
	server, err := store.Server(ctx)
	require.NoError(t, err)
	require.True(t, server.Writable)

	_, err = db.Pool.Exec(ctx, `drop table firstseen.inbox_`+time.Now().UTC().Format("20060102"))
	require.NoError(t, err)
	made, err := store.MakePartitions(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, made, "as its owner, though the consumer may not make tables")
}

func insertEffect() handlers.BatchHandler {
	return handlers.Queue(handlers.QueuedFunc(func(b *pgx.Batch, m dedup.Message) error {
		b.Queue(`insert into effects values ($1)`, m.ID)
		return nil
	}))
}

func TestConsumerRoleWorksOnLanes(t *testing.T) {
	db := withRoles(t, "")
	ctx := t.Context()
	store, err := dedup.Open(ctx, db.consumer, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	p, err := store.Acquire(ctx, "c", "orders", 0, "me")
	require.NoError(t, err)
	require.NoError(t, store.Reposition(ctx, p, 0, uuid.Nil, nil))
	var mended atomic.Bool
	var registry handlers.Registry
	require.NoError(t, registry.Add(handlers.Registration{Name: "h", Topics: []string{"orders"},
		Retry: handlers.Retry{Base: time.Millisecond, Cap: time.Millisecond, MaxAttempts: 1 << 20},
		Handler: handlers.Each(handlers.HandlerFunc(func(_ context.Context, _ pgx.Tx, m dedup.Message) error {
			switch {
			case string(m.Value) == "hopeless", string(m.Value) == "hopeless later" && mended.Load():
				return handlers.Permanent(errors.New("hopeless"))
			case mended.Load():
				return nil
			}
			return errors.New("not yet")
		}))}))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry,
		LanePoll: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	process := func(want handlers.Result, values ...string) {
		t.Helper()
		ms := make([]dedup.Message, len(values))
		for i, value := range values {
			ms[i] = dedup.Message{ID: uuid.NewSHA1(uuid.Nil, []byte(value)), Topic: "orders",
				Offset: p.Next + int64(i), Key: []byte(value), Value: []byte(value)}
		}
		ms[0].Fingerprint = fmt.Appendf(nil, "%032d", p.Next)
		got, err := processor.Process(ctx, handlers.Batch{Position: p, Next: p.Next + int64(len(ms)), Messages: ms})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	process(handlers.Result{Parked: 2, Dead: 1}, "in time", "hopeless later", "hopeless")
	process(handlers.Result{Conflicts: 1, Buried: 1}, "in time", "hopeless")
	claims, err := store.ClaimLanes(ctx, "h", 1, time.Minute)
	require.NoError(t, err)
	require.Len(t, claims, 1)
	attempt := uuid.New()
	_, _, _, err = store.Announce(ctx, claims[0], attempt, time.Minute, 10, false)
	require.NoError(t, err)
	require.NoError(t, store.CancelAttempt(ctx, claims[0], attempt))
	require.NoError(t, store.ReleaseLanes(ctx, claims, 0))
	n, err := store.Unfinished(ctx, "orders", 0, 10)
	require.NoError(t, err)
	require.Equal(t, 2, n)

	mended.Store(true)
	working, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	workers.Go(func() { processor.RunLanes(working) })
	defer func() { stop(); workers.Wait() }()
	count := func(table string) (n int) {
		require.NoError(t, db.Pool.QueryRow(ctx, `select count(*) from firstseen.`+table).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return count("parked")+count("lanes") == 0 }, 3*time.Minute, time.Millisecond)
	require.Equal(t, []int{1, 2, 1}, []int{count("inbox"), count("dead_letters"), count("conflicts")})
}

func TestConsumerRoleCanNeitherForgetNorChangeTheSchema(t *testing.T) {
	db := withRoles(t, "")
	requireWorks(t, db.consumer, "")
	for _, sql := range []string{
		`delete from firstseen.message_dedup`,
		`update firstseen.message_dedup set first_seen_at = now()`,
		`truncate firstseen.message_dedup`,
		`delete from firstseen.dead_letters`,
		`update firstseen.dead_letters set payload = null`,
		`delete from firstseen.conflicts`,
		`delete from firstseen.inbox`,
		`update firstseen.inbox set payload = null`,
		`delete from firstseen.positions`,
		`update firstseen.scopes set handler = 'x'`,
		`delete from firstseen.scopes`,
		`update firstseen.schema_version set version_id = 99`,
		`create table firstseen.mine ()`,
		`drop table firstseen.positions`,
		`alter table firstseen.positions disable trigger all`,
		`create or replace function firstseen.seal() returns void language sql as ''`,
	} {
		_, err := db.consumer.Exec(t.Context(), sql)
		require.Equal(t, denied, code(err), "%s: %v", sql, err)
	}
}

func TestPublicCanCallNothing(t *testing.T) {
	db := withRoles(t, "")
	_, err := db.Pool.Exec(t.Context(), `grant usage on schema firstseen to public`)
	require.NoError(t, err)
	stranger := login(t, db.DB, "")
	for _, sql := range []string{
		`select firstseen.make_partitions(1)`, `select firstseen.seal()`,
		`select firstseen.acquire('c', 't', 0, 'me', '1s')`,
		`select firstseen.accept(null, null, null, null, null, '{}', '{}', null)`, `select * from firstseen.inbox`,
	} {
		_, err := stranger.Exec(t.Context(), sql)
		require.Equal(t, denied, code(err), "%s: %v", sql, err)
	}
}

func TestRolesMayBeRunAgainAndForAnotherSchema(t *testing.T) {
	for _, schema := range []string{"firstseen", "other"} {
		db := withRoles(t, schema)
		sql, err := migrations.Roles(migrations.Config{Schema: schema})
		require.NoError(t, err)
		_, err = db.Pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		requireWorks(t, db.consumer, schema)
	}
}

func TestOwnerRoleMigrates(t *testing.T) {
	db := withRoles(t, "")
	deploy := loginDSN(t, db.DB, "firstseen_owner")
	_, err := migrations.Down(t.Context(), deploy, migrations.Config{}, 0)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), deploy, migrations.Config{})
	require.NoError(t, err)
}

func TestRolesNeedNoSuperuser(t *testing.T) {
	db := withRoles(t, "").DB // only the roles: on a server without any, its superuser need not make them
	name := "admin_" + uuid.NewString()[:8]
	database := db.Pool.Config().ConnConfig.Database
	_, err := db.Pool.Exec(t.Context(),
		`create role `+name+` login createrole; alter database `+database+` owner to `+name)
	require.NoError(t, err)
	t.Cleanup(func() { dropRole(t, db, name) })
	dsn := deduptest.As(t, db.DSN, name)
	_, err = migrations.Up(t.Context(), dsn, migrations.Config{Schema: "own"})
	require.NoError(t, err)
	makeRoles(t, db, `grant firstseen_owner, firstseen_consumer to `+name+` with admin option`)

	sql, err := migrations.Roles(migrations.Config{Schema: "own"})
	require.NoError(t, err)
	_, err = connect(t, dsn).Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	requireWorks(t, login(t, db, "firstseen_consumer"), "own")
}

// roleDB is a migrated database with the four roles, and a pool of a login with the consumer's.
type roleDB struct {
	*deduptest.DB
	login    string
	consumer *pgxpool.Pool
}

func withRoles(t *testing.T, schema string) roleDB {
	t.Helper()
	db := deduptest.New(t)
	if schema != "" {
		_, err := migrations.Up(t.Context(), db.DSN, migrations.Config{Schema: schema})
		require.NoError(t, err)
	}
	sql, err := migrations.Roles(migrations.Config{Schema: schema})
	require.NoError(t, err)
	makeRoles(t, db, sql)
	pool := login(t, db, "firstseen_consumer")
	return roleDB{db, pool.Config().ConnConfig.User, pool}
}

// makeRoles runs SQL over the four roles, which all databases of the server share.
func makeRoles(t *testing.T, db *deduptest.DB, sql string) {
	t.Helper()
	_, err := db.Pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
}

func login(t *testing.T, db *deduptest.DB, member string) *pgxpool.Pool {
	t.Helper()
	return deduptest.OpenPool(t, loginDSN(t, db, member), nil)
}

func loginDSN(t *testing.T, db *deduptest.DB, member string) string {
	t.Helper()
	name := "login_" + uuid.NewString()[:8]
	sql := `create role ` + name + ` login`
	if member != "" {
		sql += ` in role ` + member
	}
	if member == "firstseen_owner" {
		sql += `; alter role ` + name + ` set role ` + member
	}
	_, err := db.Pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	t.Cleanup(func() { dropRole(t, db, name) })
	return deduptest.As(t, db.DSN, name)
}

func dropRole(t *testing.T, db *deduptest.DB, name string) {
	_, err := db.Pool.Exec(context.Background(), `reassign owned by `+name+` to current_user; drop owned by `+name+
		`; drop role `+name, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
}

func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// Roles are the cluster's: two databases may get theirs at the same time.
func TestRolesAreMadeForManyDatabasesAtOnce(t *testing.T) {
	server := deduptest.StartServer(t, pgserver.Config{})
	text, err := migrations.Roles(migrations.Config{})
	require.NoError(t, err)
	var group errgroup.Group
	for i := range 6 {
		admin := connect(t, server.DSN("postgres"))
		exec(t, admin, fmt.Sprintf(`create database shop%d`, i))
		_, err := migrations.Up(t.Context(), server.DSN(fmt.Sprintf("shop%d", i)), migrations.Config{})
		require.NoError(t, err)
		shop := connect(t, server.DSN(fmt.Sprintf("shop%d", i)))
		group.Go(func() error {
			_, err := shop.Exec(t.Context(), text)
			return err
		})
	}
	require.NoError(t, group.Wait())
}
