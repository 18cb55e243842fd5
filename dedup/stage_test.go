package dedup_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// stage is a store on a database of its own, with one scope.
type stage struct {
	t     testing.TB
	dsn   string
	admin *pgxpool.Pool // the superuser's, with the server's defaults
	pool  *pgxpool.Pool // the store's
	store *dedup.Store
	scope int32
}

func newStage(t testing.TB) *stage {
	t.Helper()
	db := deduptest.New(t)
	return stageOn(t, db, db.Pool, dedup.Config{})
}

func stageOn(t testing.TB, db *deduptest.DB, pool *pgxpool.Pool, cfg dedup.Config) *stage {
	t.Helper()
	cfg.Inbox = "test"
	store, err := dedup.Open(context.Background(), pool, cfg)
	require.NoError(t, err)
	s := &stage{t: t, dsn: db.DSN, admin: db.Pool, pool: pool, store: store}
	s.scope = s.scopes(dedup.ScopeKey{Handler: "h"})[0]
	return s
}

func (s *stage) scopes(keys ...dedup.ScopeKey) []int32 {
	s.t.Helper()
	scopes, err := s.store.Scopes(context.Background(), keys)
	require.NoError(s.t, err)
	return scopes.IDs
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

// batch has one message of the default scope for each ID.
func (s *stage) batch(p *dedup.Position, ids ...uuid.UUID) *dedup.Batch {
	b := &dedup.Batch{Position: p}
	for i, id := range ids {
		b.Entries = append(b.Entries, dedup.Entry{Scope: s.scope, Message: &dedup.Message{
			ID: id, Topic: "orders", Offset: int64(i), Value: []byte("v"), Timestamp: time.Unix(1e9, 0)}})
	}
	if p != nil {
		b.Next = p.Next + int64(len(ids))
	}
	return b
}

// accept accepts and commits, and gives the outcomes.
func (s *stage) accept(b *dedup.Batch) []dedup.Outcome {
	s.t.Helper()
	require.NoError(s.t, s.tryAccept(b))
	return outcomes(b)
}

func (s *stage) tryAccept(b *dedup.Batch) error {
	tx, err := s.store.Accept(context.Background(), b)
	if err != nil {
		return err
	}
	return tx.Commit(context.Background())
}

func outcomes(b *dedup.Batch) []dedup.Outcome {
	out := make([]dedup.Outcome, len(b.Entries))
	for i := range b.Entries {
		out[i] = b.Entries[i].Outcome
	}
	return out
}

func newIDs(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}

func repeat(o dedup.Outcome, n int) []dedup.Outcome { return slices.Repeat([]dedup.Outcome{o}, n) }

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

// requireRows checks how many IDs and inbox rows there are, and that nothing else was left.
func (s *stage) requireRows(n int) {
	s.t.Helper()
	require.Equal(s.t, n, s.count(`select count(*) from firstseen.message_dedup`), "message IDs")
	require.Equal(s.t, n, s.count(`select count(*) from firstseen.inbox`), "inbox rows")
	require.Zero(s.t, s.count(`select count(*) from firstseen.unsealed`))
	require.Zero(s.t, s.pool.Stat().AcquiredConns())
}

// setDefault sets a default of the stage's database, for connections made later.
func setDefault(t testing.TB, db *deduptest.DB, setting, value string) {
	t.Helper()
	name := pgx.Identifier{db.Pool.Config().ConnConfig.Database}.Sanitize()
	_, err := db.Pool.Exec(context.Background(), `alter database `+name+` set `+setting+` = '`+value+`'`)
	require.NoError(t, err)
}
