package online_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/online"
)

// stage is a database with a table of orders.
type stage struct {
	t  testing.TB
	db *deduptest.DB
}

func newStage(t testing.TB) *stage {
	s := &stage{t, deduptest.New(t)}
	s.exec(`create table orders (
		id bigint generated always as identity primary key, tenant text not null, item text not null)`)
	return s
}

// open opens the table, impatiently.
func (s *stage) open(wait time.Duration) *online.Table {
	s.t.Helper()
	t, err := online.Open(s.t.Context(), s.db.DSN, "orders",
		online.Config{LockTimeout: 20 * time.Millisecond, Wait: wait})
	require.NoError(s.t, err)
	s.t.Cleanup(t.Close)
	return t
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.db.Pool.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err)
}

func (s *stage) count(where string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t,
		s.db.Pool.QueryRow(context.Background(), `select count(*) from orders where `+where, args...).Scan(&n))
	return n
}

// hold runs a statement in a transaction that is open until release is called.
func (s *stage) hold(sql string) (release func()) {
	s.t.Helper()
	tx, err := s.db.Pool.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(s.t, err)
	_, err = tx.Exec(context.Background(), sql)
	require.NoError(s.t, err)
	release = func() { _ = tx.Rollback(context.Background()) }
	s.t.Cleanup(release)
	return release
}

// await waits until a query says true.
func (s *stage) await(sql string, args ...any) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var is bool
		err := s.db.Pool.QueryRow(context.Background(), sql, args...).Scan(&is)
		return err == nil && is
	}, 3*time.Minute, 5*time.Millisecond, sql)
}

const (
	waitsSQL = `select exists (select from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock' and query ~* $1)`
	buildsSQL = `select exists (select from pg_stat_progress_create_index
		where datname = current_database() and phase = 'waiting for old snapshots')`
	killSQL = `select pg_terminate_backend(pid) from pg_stat_progress_create_index where datname = current_database()`
)

// killDuringBuild ends the session that builds an index, in the midst of that.
func (s *stage) killDuringBuild(build func() error) {
	s.t.Helper()
	release := s.hold(`select 1`) // its snapshot has to be outlasted
	built := make(chan error, 1)
	go func() { built <- build() }()
	s.await(buildsSQL)
	s.exec(killSQL)
	require.Error(s.t, <-built)
	release()
}

// index is what there is of the index.
func (s *stage) index() (is string) {
	s.t.Helper()
	require.NoError(s.t, s.db.Pool.QueryRow(s.t.Context(), `
		select coalesce((select case when indisvalid then 'valid' else 'invalid' end
			from pg_index where indexrelid = to_regclass('orders_once')), 'absent')`).Scan(&is))
	return is
}
