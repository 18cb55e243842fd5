package operate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// ward is a processor whose handler fails on the messages that are sick, on a database of its own.
type ward struct {
	t         *testing.T
	pool      *pgxpool.Pool
	dsn       string
	store     *dedup.Store
	inbox     *operate.Inbox
	handler   *sickly
	retry     handlers.Retry
	processor *handlers.Processor
	positions map[int32]*dedup.Position
}

const shift = "shift" // the actor of the tests

var by = operate.By{Actor: shift, Why: "it is mended"}

func newWard(t *testing.T) *ward {
	t.Helper()
	db := deduptest.New(t)
	w := &ward{t: t, pool: db.Pool, dsn: db.DSN, handler: &sickly{sick: map[uuid.UUID]error{},
		given: map[uuid.UUID]dedup.Message{}},
		retry: handlers.Retry{MaxAttempts: 1}, positions: map[int32]*dedup.Position{}}
	w.exec(`create table effects (seq bigint generated always as identity, handler text, message_id uuid, "offset" bigint, value bytea)`)
	w.store = w.open()
	w.inbox = operate.Of(w.store)
	w.processor = w.newProcessor("book")
	return w
}

func (w *ward) open() *dedup.Store {
	w.t.Helper()
	store, err := dedup.Open(w.t.Context(), w.pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(w.t, err)
	return store
}

func (w *ward) newProcessor(names ...string) *handlers.Processor {
	w.t.Helper()
	registry := &handlers.Registry{}
	for _, name := range names {
		require.NoError(w.t, registry.Add(handlers.Registration{Name: name, Topics: []string{"orders"}, Retry: w.retry,
			Handler: handlers.Each(named{name, w.handler})}))
	}
	p, err := handlers.NewProcessor(handlers.Config{Store: w.store, Handlers: registry,
		LanePoll: 10 * time.Millisecond,
		Logger:   quiet()})
	require.NoError(w.t, err)
	return p
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// sickly leaves an effect for each message that is not sick.
type sickly struct {
	mu    sync.Mutex
	sick  map[uuid.UUID]error
	given map[uuid.UUID]dedup.Message
}

var errSick = errors.New("the ledger refused")

func (h *sickly) fails(ids ...uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		h.sick[id] = errSick
	}
}

func (h *sickly) mend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.sick)
}

type named struct {
	name string
	*sickly
}

func (h named) Handle(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	h.mu.Lock()
	err := h.sick[m.ID]
	h.given[m.ID] = m
	h.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into effects (handler, message_id, "offset", value) values ($1, $2, $3, $4)`,
		h.name, m.ID, m.Offset, m.Value)
	return err
}

// message is one of partition 0 under key k.
func message(offset int64, key string) dedup.Message {
	return dedup.Message{ID: uuid.New(), Topic: "orders", Offset: offset, Key: []byte(key),
		Value:     fmt.Appendf(nil, `{"n":%d}`, offset),
		Timestamp: time.Unix(1e9, 0)}
}

// process takes messages of one partition through one batch.
func (w *ward) process(ms ...dedup.Message) handlers.Result {
	w.t.Helper()
	return w.processWith(w.processor, ms...)
}

func (w *ward) processWith(p *handlers.Processor, ms ...dedup.Message) handlers.Result {
	w.t.Helper()
	position := w.position(ms[0].Partition)
	result, err := p.Process(w.t.Context(), handlers.Batch{Position: position, Next: ms[len(ms)-1].Offset + 1,
		Messages: ms})
	require.NoError(w.t, err)
	return result
}

func (w *ward) position(partition int32) *dedup.Position {
	w.t.Helper()
	if p := w.positions[partition]; p != nil {
		return p
	}
	p, err := w.store.Acquire(w.t.Context(), "group", "orders", partition, "host-1")
	require.NoError(w.t, err)
	if !p.Known {
		require.NoError(w.t, w.store.Reposition(w.t.Context(), p, 0, uuid.Nil, nil))
	}
	w.positions[partition] = p
	return p
}

// kill processes messages that all die.
func (w *ward) kill(ms ...dedup.Message) {
	w.t.Helper()
	for _, m := range ms {
		w.handler.fails(m.ID)
	}
	require.Equal(w.t, len(ms), w.process(ms...).Dead)
}

// runLanes has lanes worked on until the returned function is called.
func (w *ward) runLanes(p *handlers.Processor) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	workers.Go(func() { p.RunLanes(ctx) })
	stop = sync.OnceFunc(func() { cancel(); workers.Wait() })
	w.t.Cleanup(stop)
	return stop
}

// settle works on lanes until nothing is parked.
func (w *ward) settle() {
	w.t.Helper()
	stop := w.runLanes(w.processor)
	require.Eventually(w.t, func() bool { return w.count(`select count(*) from firstseen.parked`) == 0 },
		3*time.Minute, 10*time.Millisecond)
	stop()
}

func (w *ward) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

func (w *ward) count(sql string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func (w *ward) dead(f operate.Filter) []operate.Listed {
	w.t.Helper()
	letters, _, err := w.inbox.Messages(w.t.Context(),
		operate.Listing{Status: operate.StatusDead, Filter: f, Limit: 1000, Content: true})
	require.NoError(w.t, err)
	return letters
}

// page lists dead letters with their content.
func (w *ward) page(in *operate.Inbox, after operate.Cursor, limit int) ([]operate.Listed, operate.Cursor, error) {
	return in.Messages(w.t.Context(),
		operate.Listing{Status: operate.StatusDead, After: after, Limit: limit, Content: true})
}

func (w *ward) redrive(f operate.Filter) int {
	w.t.Helper()
	n, err := w.inbox.Redrive(w.t.Context(), f, by)
	require.NoError(w.t, err)
	return n
}

// awaitLock waits until a session of the database waits for a lock.
func (w *ward) awaitLock() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return w.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) > 0
	}, 3*time.Minute, 5*time.Millisecond)
}

// laneOf is the lane of a message under the default ordering.
func laneOf(m dedup.Message) uuid.UUID { return dedup.OrderByKey.Lane(&m) }
