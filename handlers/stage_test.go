package handlers_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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
	retry    handlers.Retry
	cfg      handlers.Config
	log      *log
}

// log keeps what was logged.
type log struct{ deduptest.Log }

func (l *log) lines(level slog.Level) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, " level="+level.String()+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

func newStage(t testing.TB) *stage {
	t.Helper()
	db := deduptest.New(t)
	return newStageOn(t, db, db.DSN)
}

func newStageOn(t testing.TB, db *deduptest.DB, dsn string) *stage {
	t.Helper()
	pool := deduptest.OpenPool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
	store, err := dedup.Open(context.Background(), pool, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	s := &stage{t: t, dsn: dsn, admin: db.Pool, pool: pool, store: store, log: &log{}}
	s.cfg = handlers.Config{Store: store, Handlers: &s.registry, AbandonAfter: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(s.log, nil))}
	s.exec(`create table effects (seq bigint generated always as identity, handler text, message_id uuid, "offset" bigint)`)
	return s
}

func (s *stage) register(name string, h handlers.BatchHandler, topics ...string) {
	s.t.Helper()
	if len(topics) == 0 {
		topics = []string{"orders"}
	}
	require.NoError(s.t, s.registry.Add(handlers.Registration{Name: name, Handler: h, Topics: topics, Retry: s.retry}))
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
		require.NoError(s.t, s.store.Reposition(context.Background(), p, 0, uuid.Nil, nil))
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

// keyed gives each message a key of its own, so that none waits for another.
func keyed(ms []dedup.Message) []dedup.Message {
	for i := range ms {
		ms[i].Key = fmt.Appendf(nil, "k%d", ms[i].Offset)
	}
	return ms
}

// requireIsolated takes three messages through a handler that leaves an effect for each and fails on the one at offset
// 1: that one is parked, after one attempt and with a line in the log, and nothing of it is kept; the others take
// effect once. It gives the failure's text.
func (s *stage) requireIsolated(h handlers.BatchHandler) string {
	s.t.Helper()
	s.register("h", h)
	p := s.position("orders")
	ms := keyed(messages(p, newIDs(3)...))
	s.requireResult(handlers.Result{New: 2, Parked: 1}, p, ms...)
	s.requireEffects(0, 2)
	require.Equal(s.t, 3, s.count(`select count(*) from firstseen.message_dedup`))
	require.Equal(s.t, 2, s.count(`select count(*) from firstseen.inbox where "offset" in (0, 2) and attempts = 0`))
	require.Equal(s.t, 2, s.count(`select count(*) from firstseen.inbox`))
	require.Equal(s.t, 3, s.count(`select next_offset from firstseen.positions`))
	require.EqualValues(s.t, 3, p.Next)
	text := s.parkedError(ms[1])
	require.Len(s.t, s.log.lines(slog.LevelWarn), 1)
	for _, part := range []string{"handler failed", "handler=h", "attempts=1", "message=orders/0@1"} {
		require.Contains(s.t, s.log.lines(slog.LevelWarn)[0], part)
	}
	s.requireConnection()
	return text
}

// requireSetApart is requireIsolated for a handler that takes all of its time: its messages are parked, and handled
// one at a time.
func (s *stage) requireSetApart(h handlers.BatchHandler) string {
	s.t.Helper()
	s.register("h", h)
	position := s.position("orders")
	ms := keyed(messages(position, newIDs(3)...))
	p := s.processor()
	result, err := p.Process(context.Background(), handlers.Batch{Position: position, Next: 3, Messages: ms})
	require.NoError(s.t, err)
	require.Equal(s.t, handlers.Result{Parked: 3}, result)
	require.Zero(s.t, s.count(`select sum(attempts) from firstseen.parked`))
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { p.RunLanes(ctx) })
	require.Eventually(s.t, func() bool {
		return s.count(`select count(*) from firstseen.parked`) == 1 &&
			s.count(`select count(*) from firstseen.parked where reason = 'failed'`) == 1
	}, 3*time.Minute, 10*time.Millisecond)
	stop()
	working.Wait()
	s.requireEffects(0, 2)
	require.Equal(s.t, 2, s.count(`select count(*) from firstseen.inbox where "offset" in (0, 2) and attempts = 0`))
	require.Equal(s.t, 1, s.count(`select count(*) from firstseen.lanes where claims = 1`),
		"its next attempt is by itself too")
	return s.parkedError(ms[1])
}

// requireEffects checks that handler h left one effect at each of these offsets, and no other.
func (s *stage) requireEffects(want ...int64) {
	s.t.Helper()
	rows, err := s.admin.Query(context.Background(), `select "offset" from effects where handler = 'h' order by 1`)
	require.NoError(s.t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(s.t, err)
	require.Equal(s.t, want, got)
}

// parkedError checks that one message is parked, after one attempt and byte for byte, and gives what was its failure.
func (s *stage) parkedError(want dedup.Message) (text string) {
	s.t.Helper()
	var got dedup.Message
	var attempts int
	var reason string
	require.NoError(s.t, s.admin.QueryRow(context.Background(),
		`select message_id, topic, "partition", "offset", key, payload,
		attempts, reason, error from firstseen.parked`).
		Scan(&got.ID, &got.Topic, &got.Partition, &got.Offset, &got.Key, &got.Value, &attempts, &reason, &text))
	want.Headers = nil
	require.Equal(s.t, want, got)
	require.Equal(s.t, 1, attempts)
	require.Equal(s.t, "failed", reason)
	require.Equal(s.t, 1,
		s.count(`select count(*) from firstseen.parked p join firstseen.lanes l using (scope_id, lane)`))
	return text
}

// requireConnection checks that the pool's one connection is there for the next batch.
func (s *stage) requireConnection() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
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
