package dedup_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/migrations"
)

func TestLoginWithoutRightsCanLockNothingThatAConsumerWaitsFor(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	s := stageOn(t, db, deduptest.OpenPool(t, db.DSN, nil),
		dedup.Config{EvictAfter: 200 * time.Millisecond, AnswerTimeout: 20 * time.Second})
	lockEverythingThatCanBeGuessed(t, s)

	begun, err := s.store.Begin(t.Context(), "consumer", "orders", uuid.Nil, map[int32]int64{0: 0, 1: 0}, nil)
	require.NoError(t, err)
	require.True(t, begun)
	p := s.position(0)
	require.Zero(t, p.Evicted)
	require.Equal(t, repeat(isNew, 2), s.accept(s.batch(p, uuid.New(), uuid.New())))
	_, err = s.store.MakePartitions(t.Context())
	require.NoError(t, err)
	require.NoError(t, operate.Of(s.store).Exclusively(t.Context(), func(ctx context.Context) error {
		_, err := operate.Of(s.store).ForgetIDs(ctx, map[string]time.Time{"h": time.Now().Add(-24 * time.Hour)},
			operate.By{Actor: "a", Why: "w"})
		return err
	}))
	by := operate.By{Actor: "a", Why: "w"}
	require.NoError(t, operate.Of(s.store).ResetPositions(t.Context(), "consumer", "orders", uuid.Nil,
		map[int32]int64{1: 5}, by))
}

// lockEverythingThatCanBeGuessed has a login that may do nothing hold advisory locks: on each table's number with the
// numbers of positions, and with those that are derived from names.
func lockEverythingThatCanBeGuessed(t *testing.T, s *stage) {
	t.Helper()
	login := "stranger_" + s.admin.Config().ConnConfig.Database
	_, err := s.admin.Exec(t.Context(), fmt.Sprintf(`create role %s login`, login))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = s.admin.Exec(context.Background(), fmt.Sprintf(`drop role %s`, login))
	})
	stranger, err := pgx.Connect(t.Context(), deduptest.As(t, s.dsn, login))
	require.NoError(t, err)
	t.Cleanup(func() { _ = stranger.Close(context.Background()) })
	_, err = stranger.Exec(t.Context(), `
		select pg_advisory_lock(c.oid::int, k)
		from pg_class c
		cross join (select generate_series(0, 100) union select hashtext('consumer orders')) k (k)
		where c.relnamespace = (select oid from pg_namespace where nspname = 'firstseen') and c.relkind in ('r', 'p')`)
	require.NoError(t, err)
}

// consumerOf is a pool that logs in as a consumer, and no more.
func consumerOf(t *testing.T, db *deduptest.DB) *pgxpool.Pool {
	t.Helper()
	roles, err := migrations.Roles(migrations.Config{})
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), roles)
	require.NoError(t, err)
	login := "consumer_" + db.Pool.Config().ConnConfig.Database
	_, err = db.Pool.Exec(t.Context(), fmt.Sprintf(`create role %s login in role firstseen_consumer`, login))
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.Pool.Exec(context.Background(), fmt.Sprintf(`drop role %s`, login)) })
	return deduptest.OpenPool(t, deduptest.As(t, db.DSN, login), nil)
}

// byHand has somebody who may work on the positions lock one, and leave it so.
func byHand(t *testing.T, db *deduptest.DB) (session string, end func()) {
	t.Helper()
	config := db.Pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "repair by hand"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `begin; update firstseen.positions set owner = 'me'`)
	require.NoError(t, err)
	session = fmt.Sprintf(`session %d of %s (application "repair by hand"`, conn.PgConn().PID(), config.User)
	return session, func() {
		_, err := conn.Exec(t.Context(), `rollback`)
		require.NoError(t, err, "the session was left alone")
	}
}

func TestAcquireNamesWhoHasLockedThePositionAndEndsNoStranger(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	s := stageOn(t, db, consumerOf(t, db), dedup.Config{EvictAfter: 100 * time.Millisecond})
	s.position(0)
	session, end := byHand(t, db)
	_, err := s.store.Acquire(t.Context(), "consumer", "orders", 0, "next")
	require.ErrorIs(t, err, dedup.ErrLocked)
	require.ErrorContains(t, err, session)
	end()
	_, err = s.store.Acquire(t.Context(), "consumer", "orders", 0, "next")
	require.NoError(t, err)
}

func TestAcceptNamesWhoHasLockedThePosition(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	s := stageOn(t, db, consumerOf(t, db), dedup.Config{AnswerTimeout: 2 * time.Second})
	p := s.position(0)
	session, end := byHand(t, db)
	_, err := s.store.Accept(t.Context(), s.batch(p, uuid.New()))
	require.ErrorIs(t, err, dedup.ErrLocked)
	require.ErrorIs(t, err, dedup.ErrNoAnswer)
	require.ErrorContains(t, err, session)
	end()
	require.Equal(t, repeat(isNew, 1), s.accept(s.batch(p, uuid.New())))
}

func TestReadOnlyDefaultIsObeyed(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	pool := deduptest.OpenPool(t, db.DSN, nil)
	s := stageOn(t, db, pool, dedup.Config{})
	p := s.position(0)
	setDefault(t, db, "default_transaction_read_only", "on")
	pool.Reset()
	_, err := s.store.Accept(t.Context(), s.batch(p, uuid.New()))
	require.True(t, failure.Of(err) == failure.ReadOnly, "%v", err)
	_, err = s.store.Acquire(t.Context(), "consumer", "orders", 0, "owner")
	require.True(t, failure.Of(err) == failure.ReadOnly, "%v", err)
	setDefault(t, db, "default_transaction_read_only", "off")
	pool.Reset()
	require.Equal(t, repeat(isNew, 1), s.accept(s.batch(p, uuid.New())))
}
