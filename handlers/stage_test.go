package handlers_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

// stage is a processor on a database of its own. Its pool has one connection, so that one which is not given back
// shows at once.
type stage struct {
	t        testing.TB
	dsn      string
	admin    *pgxpool.Pool
	pool     *pgxpool.Pool
	store    *dedup.Store
	registry handlers.Registry
	cfg      handlers.Config
}

func newStage(t testing.TB) *stage {
	t.Helper()
	db := deduptest.New(t)
	return newStageOn(t, db, db.DSN)
}

func newStageOn(t testing.TB, db *deduptest.DB, dsn string) *stage {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := dedup.Open(context.Background(), pool, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	s := &stage{t: t, dsn: dsn, admin: db.Pool, pool: pool, store: store}
	s.cfg = handlers.Config{Store: store, Handlers: &s.registry, AbandonAfter: 100 * time.Millisecond}
	s.exec(`create table effects (seq bigint generated always as identity, handler text, message_id uuid, "offset" bigint)`)
	return s
}

func (s *stage) register(name string, h handlers.BatchHandler, topics ...string) {
	s.t.Helper()
	if len(topics) == 0 {
		topics = []string{"orders"}
	}
	require.NoError(s.t, s.registry.Register(name, h, topics...))
}

func (s *stage) processor() *handlers.Processor {
	s.t.Helper()
	p, err := handlers.NewProcessor(s.cfg)
	require.NoError(s.t, err)
	return p
}

func (s *stage) position(topic string) *dedup.Position {
	s.t.Helper()
	p, err := s.store.Acquire(context.Background(), "consumer", topic, 0, "owner")
	require.NoError(s.t, err)
	if !p.Known {
		require.NoError(s.t, s.store.Reposition(context.Background(), p, 0, uuid.Nil))
	}
	return p
}

// messages has one message of the topic for each ID, from the position's offset on.
func messages(p *dedup.Position, ids ...uuid.UUID) []dedup.Message {
	ms := make([]dedup.Message, len(ids))
	for i, id := range ids {
		ms[i] = dedup.Message{ID: id, Topic: p.Topic, Offset: p.Next + int64(i), Key: []byte("k"), Value: []byte("v")}
	}
	return ms
}

// process takes messages through a fresh processor.
func (s *stage) process(p *dedup.Position, ms ...dedup.Message) (handlers.Result, error) {
	s.t.Helper()
	return s.processor().Process(context.Background(),
		handlers.Batch{Position: p, Next: p.Next + int64(len(ms)), Messages: ms})
}

func (s *stage) requireResult(want handlers.Result, p *dedup.Position, ms ...dedup.Message) {
	s.t.Helper()
	got, err := s.process(p, ms...)
	require.NoError(s.t, err)
	require.Equal(s.t, want, got)
}

// effect is a handler that leaves one row in effects for each message.
func effect(name string) handlers.BatchHandler {
	return handlers.Queue(handlers.QueuedFunc(func(b *pgx.Batch, m dedup.Message) error {
		b.Queue(`insert into effects (handler, message_id, "offset") values ($1, $2, $3)`, name, m.ID, m.Offset)
		return nil
	}))
}

// leaveEffect is an effect from within another handler.
func leaveEffect(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	_, err := tx.Exec(ctx, `insert into effects (handler, message_id, "offset") values ('h', $1, $2)`, m.ID, m.Offset)
	return err
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

func (s *stage) effects(handler string) int {
	s.t.Helper()
	return s.count(`select count(*) from effects where handler = $1`, handler)
}

// requireNothing checks that no trace of a batch is left, and that the pool's one connection is there for the next.
func (s *stage) requireNothing(p *dedup.Position) {
	s.t.Helper()
	require.Zero(s.t, s.count(`select count(*) from effects`))
	require.Zero(s.t, s.count(`select count(*) from firstseen.message_dedup`))
	require.Zero(s.t, s.count(`select count(*) from firstseen.inbox`))
	require.Zero(s.t, s.count(`select next_offset from firstseen.positions`))
	require.Zero(s.t, p.Next)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := s.pool.Exec(ctx, `select 1`)
	require.NoError(s.t, err)
}

func newIDs(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}
