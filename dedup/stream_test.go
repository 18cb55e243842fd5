package dedup_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// largeMessage is one of which each part is large.
func largeMessage(size int) dedup.Message {
	of := func(b byte) []byte { return bytes.Repeat([]byte{b, 0xff, 0}, size/9) }
	return dedup.Message{ID: uuid.New(), Topic: "orders", Timestamp: time.Unix(1e9, 0), Key: of('k'), Value: of('v'),
		Headers: []dedup.Header{{Key: "small", Value: []byte{1}}, {Key: "large", Value: of('h')}, {Key: "null"}}}
}

func (s *stage) one(m *dedup.Message, lane uuid.UUID) *dedup.Batch {
	return &dedup.Batch{Entries: []dedup.Entry{{Scope: s.scope, Message: m, Lane: lane}}}
}

// park parks a message and claims its lane.
func (s *stage) park(m *dedup.Message) []dedup.Claim {
	s.t.Helper()
	b := s.one(m, uuid.New())
	tx, err := s.store.Accept(s.t.Context(), b)
	require.NoError(s.t, err)
	b.Entries[0].Park(0)
	require.NoError(s.t, tx.Commit(s.t.Context()))
	claims, err := s.store.ClaimLanes(s.t.Context(), "h", 10, time.Hour)
	require.NoError(s.t, err)
	require.Len(s.t, claims, 1)
	return claims
}

// allocated is what a function allocates for each byte of size; the least of some calls, for others allocate too.
func allocated(t *testing.T, size int, f func()) (ratio float64) {
	t.Helper()
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if r := float64(after.TotalAlloc-before.TotalAlloc) / float64(size); ratio == 0 || r < ratio {
			ratio = r
		}
	}
	return ratio
}

const largeSize = 24 << 20

// requireLarge sees that a table has the large message three times.
func (s *stage) requireLarge(table string) {
	s.t.Helper()
	m := largeMessage(largeSize)
	require.Equal(s.t, 3, s.count(`select count(*) from `+table+` where key = $1 and payload = $2 and headers = $3`,
		m.Key, m.Value, dedup.AppendHeaders(nil, m.Headers)), table)
}

func TestLargeMessagesAreSentToPostgresWithoutACopy(t *testing.T) {
	s := newStage(t)
	for name, put := range map[string]func(*dedup.Entry){
		"parked":   func(e *dedup.Entry) { e.Park(time.Hour) },
		"buried":   func(e *dedup.Entry) { e.State, e.Reason = dedup.Dead, "handler" },
		"inserted": func(*dedup.Entry) {},
		"conflict": func(e *dedup.Entry) { e.Outcome = dedup.Conflict; e.Message.Fingerprint = make([]byte, 32) },
	} {
		t.Run(name, func(t *testing.T) {
			m := largeMessage(largeSize)
			ratio := allocated(t, largeSize, func() {
				m.ID = uuid.New()
				b := s.one(&m, uuid.New())
				tx, err := s.store.Accept(t.Context(), b)
				require.NoError(t, err)
				put(&b.Entries[0])
				require.NoError(t, tx.Commit(t.Context()))
			})
			require.Less(t, ratio, .5, "bytes allocated for each of the message: a copy is 1")
		})
	}
	for _, table := range []string{"parked", "dead_letters", "inbox", "conflicts"} {
		s.requireLarge(`firstseen.` + table)
	}
}

func TestLargeMessagesAreGivenToASQLFunctionWithoutACopy(t *testing.T) {
	s := newStage(t)
	s.exec(`create table got (id uuid, key bytea, payload bytea, headers bytea)`)
	insert := `insert into got select m.id, m.key, m.payload, m.headers from ` + dedup.UnnestColumns
	m := largeMessage(largeSize)
	ratio := allocated(t, largeSize, func() {
		tx, err := s.store.Accept(t.Context(), &dedup.Batch{})
		require.NoError(t, err)
		require.NoError(t, dedup.ExecColumns(t.Context(), tx.Handler(), insert, []dedup.Message{m, {ID: uuid.New()}}))
		require.NoError(t, tx.Commit(t.Context()))
	})
	require.Less(t, ratio, .5, "bytes allocated for each of the message: a copy is 1")
	s.requireLarge("got")
	require.Equal(t, 3, s.count(`select count(*) from got where num_nulls(key, payload, headers) = 3`))
}

func TestLargeMessagesAreLoadedOnce(t *testing.T) {
	s := newStage(t)
	m := largeMessage(largeSize)
	claims := s.park(&m)
	ratio := allocated(t, largeSize, func() {
		tx, batch, err := s.store.LoadLanes(t.Context(), claims, 1, 0)
		require.NoError(t, err)
		defer tx.Rollback(t.Context())
		got := batch.Entries[0].Message
		require.Nil(t, got.Value, "it is large")
		var taken taker
		require.NoError(t, tx.LoadRest(t.Context(), taken.take))
		require.Greater(t, int(taken), largeSize-1<<10)
		require.True(t, bytes.Equal(m.Key, got.Key) && bytes.Equal(m.Value, got.Value))
		require.True(t, bytes.Equal(m.Headers[1].Value, got.Headers[1].Value))
		require.NoError(t, tx.LoadRest(t.Context(), func(int) error { return errors.New("again") }))
	})
	require.Less(t, ratio, 1.5, "bytes allocated for each of the message: a second copy is 2")
	tx, batch, err := s.store.LockLanes(t.Context(), claims)
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	require.Equal(t, m.ID, batch.Entries[0].Message.ID)
	require.Zero(t, batch.Entries[0].Message.Size(), "contents stay where they are")
}

// taker counts the memory that is asked for.
type taker int

func (t *taker) take(n int) error { *t += taker(n); return nil }

// A header that says nothing is 8 bytes where it is kept, and five times that in memory.
func TestHeadersAreLoadedWithinTheMemoryThatIsAskedFor(t *testing.T) {
	const most = 12 << 20
	s := newStage(t)
	claims := s.park(&dedup.Message{ID: uuid.New(), Topic: "orders", Headers: make([]dedup.Header, 200_000)})
	s.exec(`insert into firstseen.parked (scope_id, lane, "offset", message_id, topic, "partition", headers)
		select scope_id, lane, "offset" + 1, gen_random_uuid(), topic, "partition", headers from firstseen.parked`)
	ratio := allocated(t, most, func() {
		tx, batch, err := s.store.LoadLanes(t.Context(), claims, 2, most)
		require.NoError(t, err)
		defer tx.Rollback(t.Context())
		require.Len(t, batch.Entries, 1, "two take more")
		var taken taker
		require.NoError(t, tx.LoadRest(t.Context(), taken.take))
		require.Len(t, batch.Entries[0].Message.Headers, 200_000)
		require.EqualValues(t, 200_000*(8+40), taken)
	})
	require.Less(t, ratio, 1.0)
}

// What can go wrong on the way of a large statement leaves the connection usable, or closed.
func TestLargeStatementsFailAsOthersDo(t *testing.T) {
	s := oneConnection(t)
	m := largeMessage(4 << 20)
	exec := func(ctx context.Context, tx *dedup.Tx, sql string) error {
		return dedup.ExecColumns(ctx, tx.Handler(), sql, []dedup.Message{m})
	}
	for name, c := range map[string]struct {
		sql, says string
		within    time.Duration
		lost      bool
	}{
		"unknown": {sql: `insert into nowhere select m.id from ` + dedup.UnnestColumns, says: "42P01"},
		"refused": {sql: `select 1 / (length(m.topic) - 6) from ` + dedup.UnnestColumns, says: "22012"},
		"ended": {sql: `select pg_terminate_backend(pg_backend_pid()) from ` + dedup.UnnestColumns,
			says: "57P01", lost: true},
		"never ends": {sql: `select pg_sleep(60) from ` + dedup.UnnestColumns,
			says: "deadline exceeded", within: time.Second, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := s.store.Accept(t.Context(), &dedup.Batch{})
			require.NoError(t, err)
			ctx := t.Context()
			if c.within > 0 {
				limited, cancel := context.WithTimeout(ctx, c.within)
				defer cancel()
				ctx = limited
			}
			require.ErrorContains(t, exec(ctx, tx, c.sql), c.says)
			require.Equal(t, c.lost, tx.Lost())
			if !c.lost {
				require.ErrorIs(t, tx.Check(), dedup.ErrAborted)
				require.NoError(t, tx.Undo(t.Context()))
				require.NoError(t, exec(ctx, tx, `select m.id from `+dedup.UnnestColumns))
				require.NoError(t, tx.Commit(t.Context()))
				require.ErrorContains(t, exec(ctx, tx, `select`), "closed")
			}
			tx.Rollback(t.Context())
		})
	}
}

func TestLargeStatementsWorkInAllQueryModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			db := deduptest.New(t)
			pool := deduptest.OpenPool(t, db.DSN+"&default_query_exec_mode="+mode,
				func(c *pgxpool.Config) { c.MaxConns = 2 })
			s := stageOn(t, db, pool, dedup.Config{})
			m := largeMessage(6 << 20)
			tx, batch, err := s.store.LoadLanes(t.Context(), s.park(&m), 1, 0)
			require.NoError(t, err)
			defer tx.Rollback(t.Context())
			require.NoError(t, tx.LoadRest(t.Context(), new(taker).take))
			got := batch.Entries[0].Message
			require.True(t, bytes.Equal(m.Key, got.Key) && bytes.Equal(m.Value, got.Value))
			require.Equal(t, m.Headers, got.Headers)
		})
	}
}
