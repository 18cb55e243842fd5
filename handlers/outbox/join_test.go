package outbox_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/online"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// addKeys is in docs/OUTBOX.md.
func addKeys(ctx context.Context, dsn string) error {
	outgoing, err := online.Open(ctx, dsn, "outgoing", online.Config{})
	if err != nil {
		return err
	}
	defer outgoing.Close()
	if err := outgoing.AddColumn(ctx, "idempotency_key", "text"); err != nil {
		return err
	}
	return outgoing.AddIndex(ctx, online.Index{Name: "outgoing_once", Unique: true, Columns: "idempotency_key",
		Where: "idempotency_key is not null"})
}

// joinPage is the SQL of docs/OUTBOX.md for a table of one's own, block by block.
func joinPage(t *testing.T) (table, functions, move, trigger string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/OUTBOX.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## An outbox of yours joins\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(section, -1)
	require.Len(t, blocks, 4)
	source, err := os.ReadFile("join_test.go")
	require.NoError(t, err)
	steps := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(section)
	require.NotNil(t, steps)
	require.Contains(t, string(source), steps[1], "the page has it as it is tested")
	table, later, found := strings.Cut(blocks[0][1], "    idempotency_key text, -- by step 1\n")
	require.True(t, found)
	return table + later, blocks[1][1], blocks[2][1], blocks[3][1]
}

// An outbox of somebody's own is taken over by relays while programs insert, as docs/OUTBOX.md says: no insert fails,
// nothing is lost, sent twice or out of its key's order.
func TestAnOutboxOfOnesOwnJoinsUnderLoad(t *testing.T) {
	table, functions, move, trigger := joinPage(t)
	p := newPlace(t)
	p.exec(table)
	l := &joining{place: p, pool: deduptest.OpenPool(t, p.DSN, func(c *pgxpool.Config) {
		c.MaxConns = 10
		c.ConnConfig.RuntimeParams["statement_timeout"] = "3min" // an insert that waits for ever fails
	})}
	l.many("old")
	ended := l.insert("a", func(ctx context.Context, q outbox.Tx, key string, n int) error {
		return l.one(ctx, q,
			`insert into outgoing (topic, key, payload) values ('t', $1, to_jsonb($2::int)) returning id`, key, n)
	})
	endDispatcher := l.dispatch()
	l.goOn()
	require.NoError(t, addKeys(t.Context(), p.DSN))
	endedKeyed := l.insert("b", func(ctx context.Context, q outbox.Tx, key string, n int) error {
		return l.one(ctx, q, `insert into outgoing (topic, key, payload, idempotency_key) values ('t', $1, to_jsonb($2::int),
			$1::text || '#' || $2::int) on conflict do nothing returning id`, key, n)
	})
	l.goOn()
	endDispatcher()
	l.many("left")

	p.exec(functions)
	p.relayTo(func(_ context.Context, m dedup.Message) error { return l.sent(string(m.Key), string(m.Value)) })
	l.breakOff(move)
	l.eventually("moves keep up with inserts", func() bool {
		var moved int
		return p.Pool.QueryRow(t.Context(), move).Scan(&moved) == nil && moved < 100
	})
	for {
		_, err := l.pool.Exec(t.Context(), trigger)
		if err == nil {
			break
		}
		require.Equal(t, failure.Locked, failure.Of(err), err)
		var moved int
		require.NoError(t, p.Pool.QueryRow(t.Context(), move).Scan(&moved))
	}
	l.goOn()
	ended()
	l.requireKeys()
	l.goOn()
	endedKeyed()
	endedDirect := l.insert("b", func(ctx context.Context, q outbox.Tx, key string, n int) error { // goes on where it was
		_, err := (&outbox.Writer{}).Add(ctx, q, outbox.Message{Topic: "t", Key: []byte(key), Value: fmt.Append(nil, n)})
		return err
	})
	l.goOn()
	endedDirect()
	p.settled()
	l.requireAll()
}

// joining is what inserts into a table of one's own, and what was sent of it.
type joining struct {
	*place
	pool     *pgxpool.Pool
	inserted atomic.Int64
	next     sync.Map // of each key, the next number to insert

	mu  sync.Mutex
	got map[string][]string // by key, in the order of sending
}

// manyRows are what many inserts.
const manyRows = 3000

func (l *joining) many(prefix string) {
	l.exec(`insert into outgoing (topic, key, payload)
		select 't', $1::text || i % 7, to_jsonb(i) from generate_series(1, $2::int) i`, prefix, manyRows)
}

// one runs an insert that has to insert one row.
func (l *joining) one(ctx context.Context, q outbox.Tx, sql string, key string, n int) error {
	var id int64
	return q.QueryRow(ctx, sql, key, n).Scan(&id)
}

// betweenInserts keeps four programs well below the 3,000 rows in a second that a move takes.
const betweenInserts = 10 * time.Millisecond

// insert has two programs insert, each with its key, in transactions of two rows, until they are ended.
func (l *joining) insert(prefix string, insert func(context.Context, outbox.Tx, string, int) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range 2 {
		key := fmt.Sprint(prefix, i)
		first, _ := l.next.LoadOrStore(key, 0)
		running.Go(func() {
			n := first.(int)
			for ; ctx.Err() == nil; n += 2 {
				// no context: an insert that is under way is finished
				err := pgx.BeginFunc(context.Background(), l.pool, func(tx pgx.Tx) error {
					if err := insert(context.Background(), tx, key, n); err != nil {
						return err
					}
					return insert(context.Background(), tx, key, n+1)
				})
				if err != nil {
					l.t.Errorf("an insert failed: %v", err)
					return
				}
				l.inserted.Add(1)
				time.Sleep(betweenInserts)
			}
			l.next.Store(key, n)
		})
	}
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	l.t.Cleanup(end)
	return end
}

// dispatch is somebody's own dispatcher, until it is ended.
func (l *joining) dispatch() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			err := pgx.BeginFunc(context.Background(), l.pool, func(tx pgx.Tx) error {
				rows, err := tx.Query(context.Background(), `select id, coalesce(key, ''), payload::text from outgoing
					where processed_at is null order by id limit 100 for update`)
				if err != nil {
					return err
				}
				var ids []int64
				var id int64
				var key, payload string
				if _, err = pgx.ForEachRow(rows, []any{&id, &key, &payload}, func() error {
					ids = append(ids, id)
					return l.sent(key, payload)
				}); err != nil {
					return err
				}
				_, err = tx.Exec(context.Background(), `update outgoing set processed_at = now() where id = any ($1)`, ids)
				return err
			})
			if err != nil {
				l.t.Errorf("the dispatcher failed: %v", err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	l.t.Cleanup(end)
	return end
}

func (l *joining) sent(key, value string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.got == nil {
		l.got = map[string][]string{}
	}
	l.got[key] = append(l.got[key], value)
	return nil
}

// goOn waits until the load has gone on.
func (l *joining) goOn() {
	l.t.Helper()
	before := l.inserted.Load()
	l.eventually("programs insert", func() bool { return l.inserted.Load() > before+40 })
}

// breakOff has a move die before its end: it has moved nothing.
func (l *joining) breakOff(move string) {
	l.t.Helper()
	before := l.count(`select count(*) from outgoing where processed_at is null and key like 'left%'`)
	tx, err := l.pool.Begin(l.t.Context())
	require.NoError(l.t, err)
	var moved int
	require.NoError(l.t, tx.QueryRow(l.t.Context(), move).Scan(&moved))
	require.Positive(l.t, moved)
	require.NoError(l.t, tx.Rollback(l.t.Context()))
	require.Equal(l.t, before, l.count(`select count(*) from outgoing where processed_at is null and key like 'left%'`))
}

// requireKeys gives old rows their keys, and has new ones need one.
func (l *joining) requireKeys() {
	l.t.Helper()
	outgoing, err := online.Open(l.t.Context(), l.DSN, "outgoing", online.Config{})
	require.NoError(l.t, err)
	defer outgoing.Close()
	keys := online.Backfill{Column: "idempotency_key", Value: "'outgoing/' || id"}
	require.NoError(l.t, outgoing.Backfill(l.t.Context(), keys))
	require.NoError(l.t, outgoing.SetNotNull(l.t.Context(), keys))
	require.Zero(l.t, l.count(`select count(*) from outgoing where idempotency_key is null`))
}

// requireAll requires that of each key all was sent that was inserted, once and in its order.
func (l *joining) requireAll() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	want := map[string][]string{}
	for i := 1; i <= manyRows; i++ {
		for _, prefix := range []string{"old", "left"} {
			key := fmt.Sprint(prefix, i%7)
			want[key] = append(want[key], fmt.Sprint(i))
		}
	}
	l.next.Range(func(key, n any) bool {
		for i := range n.(int) {
			want[key.(string)] = append(want[key.(string)], fmt.Sprint(i))
		}
		return true
	})
	require.Len(l.t, l.got, len(want))
	for key := range want {
		require.True(l.t, slices.Equal(want[key], l.got[key]), "key %s: %d were inserted and %d sent", key, len(want[key]),
			len(l.got[key]))
	}
}
