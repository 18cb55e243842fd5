package operate_test

import (
	"context"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childDSN); dsn != "" {
		os.Exit(runChild(dsn))
	}
	goleak.VerifyTestMain(deduptest.Wrap(m))
}

// stage is an inbox on a database of its own, with one scope.
type stage struct {
	t     testing.TB
	dsn   string
	admin *pgxpool.Pool // the superuser's, with the server's defaults
	pool  *pgxpool.Pool // the store's
	store *dedup.Store
	inbox *operate.Inbox
	scope int32
}

func newStage(t testing.TB) *stage {
	t.Helper()
	db := deduptest.New(t)
	return stageOn(t, db, db.Pool)
}

func stageOn(t testing.TB, db *deduptest.DB, pool *pgxpool.Pool) *stage {
	t.Helper()
	store, err := dedup.Open(context.Background(), pool, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	s := &stage{t: t, dsn: db.DSN, admin: db.Pool, pool: pool, store: store, inbox: operate.Of(store)}
	s.scope = s.scopes(dedup.ScopeKey{Handler: "h"})[0]
	return s
}

func (s *stage) scopes(keys ...dedup.ScopeKey) []int32 {
	s.t.Helper()
	scopes, err := s.store.Scopes(context.Background(), keys)
	require.NoError(s.t, err)
	return scopes.IDs
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.admin.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err)
}

func (s *stage) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.admin.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// position acquires a partition's position and sets it to 0 if it has none.
func (s *stage) position(partition int32) *dedup.Position {
	s.t.Helper()
	p, err := s.store.Acquire(context.Background(), "consumer", "orders", partition, "owner")
	require.NoError(s.t, err)
	if !p.Known {
		require.NoError(s.t, s.store.Reposition(context.Background(), p, 0, uuid.Nil, nil))
	}
	return p
}

// accept accepts and commits.
func (s *stage) accept(b *dedup.Batch) {
	s.t.Helper()
	tx, err := s.store.Accept(context.Background(), b)
	require.NoError(s.t, err)
	require.NoError(s.t, tx.Commit(context.Background()))
}
