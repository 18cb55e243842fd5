package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
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
	"github.com/firstseen/firstseen/dedup/wait"
)

// bench is a database with a place for effects, and one partition's position.
type bench struct {
	t        testing.TB
	dsn      string
	pool     *pgxpool.Pool
	store    *dedup.Store
	position *dedup.Position
}

const benchTopic = "orders"

// newBench makes a database whose effects have no unique key: a second effect must show.
func newBench(t testing.TB) *bench {
	t.Helper()
	db := deduptest.New(t)
	b := &bench{t: t, dsn: db.DSN, pool: db.Pool}
	b.exec(`create table effects (seq bigint generated always as identity, handler text, message_id uuid, key text, "offset" bigint)`)
	store, err := dedup.Open(context.Background(), db.Pool, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	b.store = store
	b.position = b.acquire(0)
	return b
}

func (b *bench) acquire(partition int32) *dedup.Position {
	b.t.Helper()
	p, err := b.store.Acquire(context.Background(), "group", benchTopic, partition, "test")
	require.NoError(b.t, err)
	if !p.Known {
		require.NoError(b.t, b.store.Reposition(context.Background(), p, 0, uuid.Nil, nil))
	}
	return p
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(context.Background(), sql, args...)
	require.NoError(b.t, err)
}

func (b *bench) count(sql string, args ...any) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func (b *bench) text(sql string, args ...any) (s string) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(context.Background(), sql, args...).Scan(&s))
	return s
}

// processor makes one with quick retries, unless a registration sets its own.
func (b *bench) processor(change func(*Config), regs ...Registration) *Processor {
	b.t.Helper()
	cfg := Config{Store: b.store, Handlers: &Registry{}, Logger: quiet(), LanePoll: 5 * time.Millisecond}
	for _, reg := range regs {
		if reg.Topics == nil {
			reg.Topics = []string{benchTopic}
		}
		if reg.Retry == (Retry{}) {
			reg.Retry = Retry{Base: time.Microsecond, Cap: time.Microsecond}
		}
		require.NoError(b.t, cfg.Handlers.Add(reg))
	}
	if change != nil {
		change(&cfg)
	}
	p, err := NewProcessor(cfg)
	require.NoError(b.t, err)
	return p
}

func quiet() *slog.Logger {
	out := io.Discard
	if os.Getenv("FIRSTSEEN_TEST_LOG") != "" {
		out = os.Stderr
	}
	return slog.New(slog.NewTextHandler(out, nil))
}

// messages makes messages from "key=value", at the offsets from the position on.
func (b *bench) messages(texts ...string) []dedup.Message {
	ms := make([]dedup.Message, len(texts))
	for i, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		ms[i] = dedup.Message{ID: uuid.New(), Topic: benchTopic, Partition: b.position.Partition,
			Offset: b.position.Next + int64(i), Value: []byte(value)}
		if key != "" {
			ms[i].Key = []byte(key)
		}
	}
	return ms
}

// process takes a batch through, which must succeed.
func (b *bench) process(p *Processor, ms []dedup.Message) Result {
	b.t.Helper()
	result, err := p.Process(context.Background(), b.batch(ms))
	require.NoError(b.t, err)
	return result
}

func (b *bench) batch(ms []dedup.Message) Batch {
	return Batch{Position: b.position, Next: b.position.Next + int64(len(ms)), Messages: ms}
}

// drain works on lanes until none is left.
func (b *bench) drain(p *Processor) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		worked := 0
		for _, target := range p.attached() {
			n, err := p.workLanes(context.Background(), target)
			require.NoError(b.t, err)
			worked += n
		}
		if worked == 0 && b.count(`select count(*) from firstseen.lanes`) == 0 {
			return
		}
		if !wait.Sleep(ctx, time.Millisecond) {
			b.t.Fatalf("the lanes did not drain: %s",
				b.text(`select string_agg(l::text, E'\n') from firstseen.lanes l`))
		}
	}
}

// due waits until each lane's time has come.
func (b *bench) due() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return b.count(`select count(*) from firstseen.lanes where due_at > now()`) == 0
	}, 3*time.Minute, time.Millisecond)
}

// requireWhole asserts that every message is in exactly one place, and no lane stands alone.
func (b *bench) requireWhole(messages int) {
	b.t.Helper()
	require.Equal(b.t, messages, b.count(`select count(*) from firstseen.message_dedup`), "IDs")
	require.Equal(b.t, messages, b.count(`select count(distinct (scope_id, message_id)) from (
		select scope_id, message_id from firstseen.inbox union all select scope_id, message_id from firstseen.parked
		union all select scope_id, message_id from firstseen.dead_letters) m`), "messages that are somewhere")
	require.Equal(b.t, messages,
		b.count(`select (select count(*) from firstseen.inbox) + (select count(*) from firstseen.parked)
		+ (select count(*) from firstseen.dead_letters)`), "places that messages are in")
	require.Zero(b.t, b.count(`select count(*) from firstseen.parked p
		where not exists (select from firstseen.lanes l where l.scope_id = p.scope_id and l.lane = p.lane)`),
		"parked messages without a lane")
	require.Zero(b.t, b.count(`select count(*) from firstseen.unsealed`))
}

// requireOnce asserts that n messages took effect, each once, and each key's in their order.
func (b *bench) requireOnce(n int) {
	b.t.Helper()
	require.Equal(b.t, n, b.count(`select count(distinct (handler, message_id)) from effects`),
		"messages that took effect")
	require.Equal(b.t, n, b.count(`select count(*) from effects`), "effects")
	require.Zero(b.t, b.count(`select count(*) from (
		select "offset" < lag("offset") over (partition by handler, key order by seq) as back from effects where key <> '') e where back`),
		"effects out of order within their key")
}

// obedient does what a message's value says, on its first k tries where that is given: fail:k, panic:k, unavailable:k,
// permanent, sql (an error that it drops), nul (JSON that jsonb does not take), exit (Goexit), end (it ends the
// transaction), rows (left open), busy (a second statement meanwhile), eof; anything else is a success.
type obedient struct {
	name  string
	mu    sync.Mutex
	tries map[uuid.UUID]int
}

func newObedient(name string) *obedient { return &obedient{name: name, tries: map[uuid.UUID]int{}} }

func (o *obedient) try(id uuid.UUID) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tries[id]++
	return o.tries[id]
}

var errTold = errors.New("told to fail")

func (o *obedient) Handle(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	try := o.try(m.ID)
	what, times, _ := strings.Cut(string(m.Value), ":")
	k, _ := strconv.Atoi(times)
	if _, err := tx.Exec(ctx, `insert into effects (handler, message_id, key, "offset") values ($1, $2, $3, $4)`,
		o.name, m.ID, string(m.Key), m.Offset); err != nil {
		return err
	}
	switch {
	case what == "fail" && try <= k:
		return fmt.Errorf("%w, try %d", errTold, try)
	case what == "panic" && try <= k:
		panic("told to")
	case what == "unavailable" && try <= k:
		return Unavailable(errTold)
	case what == "permanent":
		return Permanent(errTold)
	}
	return o.misbehave(ctx, tx, what)
}

func (o *obedient) misbehave(ctx context.Context, tx pgx.Tx, what string) error {
	var err error
	switch what {
	case "sql":
		_, _ = tx.Exec(ctx, `select 1/0`)
	case "nul":
		_, err = tx.Exec(ctx, `select $1::text::jsonb`, `{"a":"x\u0000y"}`)
	case "rows":
		_, err = tx.Query(ctx, `select generate_series(1, 1000)`)
	case "busy":
		if _, err = tx.Query(ctx, `select generate_series(1, 1000)`); err == nil {
			_, err = tx.Exec(ctx, `select 1`)
		}
	case "end":
		_, _ = tx.Exec(ctx, `rollback`)
	case "begin":
		_, _ = tx.Exec(ctx, `rollback`)
		_, _ = tx.Exec(ctx, `begin`)
	case "eof":
		err = io.ErrUnexpectedEOF
	case "dial":
		err = dial(ctx)
	case "defer":
		_, err = tx.Exec(ctx, `insert into child values (1)`)
	case "hide": // the connection is gone, and the error does not say so
		_ = tx.Conn().PgConn().Conn().Close()
		_, _ = tx.Exec(ctx, `select 1`)
		err = errTold
	}
	return err
}

// opaque is a BatchHandler that does not say which message it failed on.
func opaque(h Handler) BatchHandler {
	return BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		for _, m := range ms {
			if err := h.Handle(ctx, tx, m); err != nil {
				return fmt.Errorf("batch: %w", err)
			}
		}
		return nil
	})
}

func TestWhateverAHandlerDoesOnlyItsMessageAndThoseBehindItWait(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"fail:99", "panic:99", "unavailable:99", "permanent", "sql", "nul", "rows", "busy",
		"end", "begin", "eof", "dial", "defer"} {
		for kind, wrap := range map[string]func(Handler) BatchHandler{"each": Each, "opaque": opaque} {
			t.Run(what+"/"+kind, func(t *testing.T) {
				b := newBench(t)
				b.exec(`create table parent (id int primary key);
					create table child (parent int references parent deferrable initially deferred)`)
				h := newObedient("h")
				p := b.processor(nil,
					Registration{Name: "h", Handler: wrap(h), Retry: Retry{Base: time.Hour, Cap: time.Hour}})
				ms := b.messages("a=ok", "b=ok", "k="+what, "c=ok", "k=ok", "d=ok", "=ok", "k=ok")
				result := b.process(p, ms)
				b.requireWhole(8)
				dead := 0
				if what == "permanent" {
					dead = 1
					require.Equal(t, Result{New: 7, Dead: 1}, result)
					require.Equal(t, "permanent 1",
						b.text(`select reason || ' ' || attempts from firstseen.dead_letters`))
				} else {
					require.Equal(t, Result{New: 5, Parked: 3}, result)
					attempts := 1
					if strings.HasPrefix(what, "unavailable") || what == "dial" {
						attempts = 0
					}
					require.Equal(t, fmt.Sprint("2/", attempts, " 4/0 7/0"),
						b.text(
							`select string_agg("offset" || '/' || attempts, ' ' order by "offset") from firstseen.parked`))
					require.Equal(t, 1, b.count(`select count(*) from firstseen.lanes where due_at > now()`))
				}
				b.requireOnce(7 - b.count(`select 2 * count(*) from firstseen.lanes`))
				require.Equal(t, dead, b.count(`select count(*) from firstseen.dead_letters`))
			})
		}
	}
}

func TestGoexitIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if string(m.Value) == "exit" {
			t := &testing.T{}
			t.FailNow()
		}
		return newObedient("h").Handle(ctx, tx, m)
	})
	p := b.processor(nil, Registration{Name: "h", Handler: Each(h), Retry: Retry{Base: time.Hour, Cap: time.Hour}})
	require.Equal(t, Result{New: 4, Parked: 1}, b.process(p, b.messages("a=ok", "b=ok", "c=exit", "d=ok", "e=ok")))
	b.requireOnce(4)
}

func TestQueuedStatementThatFailsIsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := 0
	h := QueuedFunc(func(q *pgx.Batch, m dedup.Message) error {
		calls++
		q.Queue(`insert into effects (handler, message_id, key, "offset") values ('h', $1, $2, $3)`,
			m.ID, string(m.Key), m.Offset)
		q.Queue(`select 1 / $1::int`, len(m.Value))
		return nil
	})
	p := b.processor(nil, Registration{Name: "h", Handler: Queue(h), Retry: Retry{Base: time.Hour, Cap: time.Hour}})
	require.Equal(t, Result{New: 4, Parked: 2}, b.process(p, b.messages("a=1", "b=1", "c=", "d=1", "c=1", "e=1")))
	b.requireOnce(4)
	require.Equal(t, 6+2+2, calls, "one failed call, those before the culprit again, those after it")
	require.Contains(t, b.text(`select error from firstseen.parked where attempts = 1`), "division by zero")
}

func TestEachHandlesAgainOnlyWhatLiesBetweenTheLastSavepointAndACulprit(t *testing.T) {
	t.Parallel()
	b, calls := newBench(t), make([]int, 12)
	h := newObedient("h")
	p := b.processor(nil, Registration{Name: "h", Retry: later,
		Handler: Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			calls[m.Offset]++
			return h.Handle(ctx, tx, m)
		}))})
	p.cfg.Handlers.all[0].pace.Failed(15) // a savepoint after four
	require.Equal(t, Result{New: 11, Parked: 1}, b.process(p, b.values(12, map[int]string{6: "fail:9"})))
	b.requireOnce(11)
	require.Equal(t, []int{1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1}, calls)
}

func TestABatchIsHalvedOnlyWhereACulpritIsLeft(t *testing.T) {
	t.Parallel()
	for bad := range 16 {
		b, handed := newBench(t), 0
		h := opaque(newObedient("h"))
		p := b.processor(nil, Registration{Name: "h", Retry: later,
			Handler: BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
				handed += len(ms)
				return h.HandleBatch(ctx, tx, ms)
			})})
		require.Equal(t, Result{New: 15, Parked: 1}, b.process(p, b.values(16, map[int]string{bad: "fail:99"})))
		b.requireOnce(15)
		require.Equal(t, fmt.Sprint(bad, "/1"), b.parked())
		require.LessOrEqual(t, handed, 16+16+15, "all, halves, and the rest")
	}
}

func TestTheEchoOfADroppedErrorIsNotHeldAgainstTheMessageThatItComesUpWith(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := newObedient("h")
	p := b.processor(nil, Registration{Name: "h", Retry: Retry{Base: time.Hour, Cap: time.Hour, MaxAttempts: 1},
		Handler: BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
			for i := range ms {
				if err := h.Handle(ctx, tx, ms[i]); err != nil {
					return messageError(&ms[i], err)
				}
			}
			return nil
		})})
	require.Equal(t, Result{New: 3, Dead: 1}, b.process(p, b.messages("a=ok", "b=sql", "c=ok", "d=ok")))
	require.Equal(t, "1", b.text(`select "offset"::text from firstseen.dead_letters`))
	b.requireOnce(3)
}

func TestFunctionInPostgresIsHalvedUntilOnlyTheBadMessageIsLeft(t *testing.T) {
	t.Parallel()
	for _, argument := range []string{"m firstseen.message", "batch firstseen.message[]"} {
		t.Run(argument, func(t *testing.T) {
			b := newBench(t)
			from := `(select (m).*)`
			if strings.HasPrefix(argument, "batch") {
				from = `unnest(batch)`
			}
			b.exec(`create function on_order(` + argument + `) returns void language sql begin atomic
				insert into effects (handler, message_id, key, "offset")
				select 'h', u.id, convert_from(u.key, 'UTF8'), u."offset" from ` + from + ` u
				where (convert_from(u.payload, 'UTF8')::jsonb) is not null; end`)
			h, err := NewSQL(context.Background(), b.pool, "", "on_order")
			require.NoError(t, err)
			p := b.processor(nil, Registration{Name: "h", Handler: h, Retry: Retry{Base: time.Hour, Cap: time.Hour}})
			ms := b.messages("a={}", "b={}", `c={"a":"x\u0000y"}`, "d={}", "e={}", `f={"a":"x\u0000y"}`, "c={}")
			require.Equal(t, Result{New: 4, Parked: 3}, b.process(p, ms))
			b.requireOnce(4)
			require.Equal(t, "2 5", b.text(
				`select string_agg("offset"::text, ' ' order by "offset") from firstseen.parked where attempts = 1`))
			require.Equal(t, `{"a":"x\u0000y"}`,
				b.text(`select convert_from(payload, 'UTF8') from firstseen.parked where "offset" = 2`))
		})
	}
}

func TestAMessageThatOneHandlerFailsOnIsNotHeldAgainstAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	slow := BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		for i := range ms {
			if string(ms[i].Value) == "end" {
				_, _ = tx.Exec(ctx, `rollback`) // costs the transaction
				return messageError(&ms[i], errTold)
			}
		}
		return nil
	})
	good := HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		_, err := tx.Exec(ctx, `insert into effects (handler, message_id, key, "offset") values ('good', $1, $2, $3)`,
			m.ID, string(m.Key), m.Offset)
		return err
	})
	long := Retry{Base: time.Hour, Cap: time.Hour}
	p := b.processor(nil, Registration{Name: "bad", Handler: slow, Retry: long},
		Registration{Name: "good", Handler: Each(good), Retry: long})
	require.Equal(t, Result{New: 5, Parked: 1}, b.process(p, b.messages("a=ok", "b=end", "c=ok")))
	b.requireOnce(3)
	b.requireWhole(6)
}

func TestTwinsConflictsAndTenantsBesideAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h")),
		Retry: Retry{Base: time.Hour, Cap: time.Hour}})
	ms := b.messages("k=fail:9", "k=fail:9", "k=other", "j=ok", "k=ok", "k=ok")
	ms[1].ID, ms[2].ID = ms[0].ID, ms[0].ID
	for i := range ms {
		ms[i].Fingerprint = []byte(string(ms[i].Value))
	}
	ms[5].Tenant = "other" // has a lane of its own
	require.Equal(t, Result{New: 2, Parked: 2, Duplicates: 1, Conflicts: 1}, b.process(p, ms))
	b.requireWhole(4)
	require.Equal(t, 1, b.count(`select count(*) from firstseen.conflicts`))
}

func TestOrderings(t *testing.T) {
	t.Parallel()
	for ordering, want := range map[dedup.Ordering]Result{
		dedup.OrderByKey:       {New: 2, Parked: 2},
		dedup.OrderByPartition: {New: 1, Parked: 3},
		dedup.Unordered:        {New: 3, Parked: 1},
	} {
		t.Run(string(ordering), func(t *testing.T) {
			b := newBench(t)
			p := b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h")), Ordering: ordering})
			require.Equal(t, want, b.process(p, b.messages("a=ok", "k=fail:3", "b=ok", "k=ok")))
			b.drain(p)
			require.Equal(t, 4, b.count(`select count(*) from effects`))
			b.requireWhole(4)
		})
	}
}

func TestDeadlockRunsAgainAndAfterThreeIsTheHandlersFailure(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]Result{"1": {New: 3}, "99": {New: 2, Parked: 1}} {
		b := newBench(t)
		h := newObedient("h")
		most, _ := strconv.Atoi(code)
		locked := HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			if string(m.Value) == "deadlock" && h.try(m.ID) <= most {
				_, err := tx.Exec(ctx,
					`do $$ begin raise exception 'deadlock detected' using errcode = '40P01'; end $$`)
				return fmt.Errorf("wrapped: %w", err)
			}
			return h.Handle(ctx, tx, m)
		})
		p := b.processor(nil,
			Registration{Name: "h", Handler: Each(locked), Retry: Retry{Base: time.Hour, Cap: time.Hour}})
		require.Equal(t, want, b.process(p, b.messages("a=ok", "b=deadlock", "c=ok")))
		b.requireOnce(want.New)
	}
}

func TestHandlerTimeouts(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	for name, sleep := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"obeys": func(ctx context.Context, _ pgx.Tx) error { <-ctx.Done(); return ctx.Err() },
		"in sql": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `select pg_sleep(30)`)
			return err
		},
		"ignores it": func(context.Context, pgx.Tx) error { <-release; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			h := newObedient("h")
			slow := HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
				if string(m.Value) == "sleep" {
					return sleep(ctx, tx)
				}
				return h.Handle(ctx, tx, m)
			})
			p := b.processor(
				func(c *Config) { c.HandlerTimeout, c.AbandonAfter = 300*time.Millisecond, 100*time.Millisecond },
				Registration{Name: "h", Handler: Each(slow), Retry: Retry{Base: time.Hour, Cap: time.Hour}})
			require.Equal(t, Result{New: 4, Parked: 1},
				b.process(p, b.messages("a=ok", "b=ok", "c=sleep", "d=ok", "e=ok")))
			b.requireOnce(4)
			require.Equal(t, "2 1", b.text(`select "offset" || ' ' || attempts from firstseen.parked`))
		})
	}
}

func TestABatchThatIsTooSlowAltogetherCostsNobodyAnAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := newObedient("h")
	slow := HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		time.Sleep(150 * time.Millisecond) // 16 take longer than a call may, and one does not
		return h.Handle(ctx, tx, m)
	})
	p := b.processor(func(c *Config) { c.HandlerTimeout = 2 * time.Second },
		Registration{Name: "h", Handler: Each(slow)})
	texts := make([]string, 16)
	for i := range texts {
		texts[i] = fmt.Sprint(i, "=ok")
	}
	require.Equal(t, Result{New: 16}, b.process(p, b.messages(texts...)))
	b.requireOnce(16)
}
