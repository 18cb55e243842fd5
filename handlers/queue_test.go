package handlers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// queuer queues an effect for each message, what its value names, and a second effect.
type queuer struct{ calls map[int64]int }

func (q *queuer) Queue(b *pgx.Batch, m dedup.Message) error {
	q.calls[m.Offset]++
	effect := func() {
		b.Queue(`insert into effects (handler, message_id, key, "offset") values ('h', $1, $2, $3)`,
			m.ID, string(m.Key), m.Offset)
	}
	effect()
	switch what, arg, _ := strings.Cut(string(m.Value), ":"); {
	case what == "bad", what == "flaky" && q.calls[m.Offset] > 1:
		b.Queue(`select 1 / $1::int`, 0)
	case what == "deadlock" && fmt.Sprint(q.calls[m.Offset]) <= arg:
		b.Queue(`do $$ begin raise exception 'deadlock detected' using errcode = '40P01'; end $$`)
	case what == "error":
		return errTold
	case what == "panic":
		panic(errTold)
	case what == "type":
		b.Queue(`select $1::int`, "no number")
	case what == "sql":
		for sql := range strings.SplitSeq(arg, "; ") {
			b.Queue(sql)
		}
	}
	effect()
	return nil
}

// failApart has the first handler's failures have been so far apart lately; 0: none was.
func failApart(r *Registry, apart int) {
	if apart > 0 {
		r.all[0].pace.Failed(apart - 1)
	}
}

// queueing is a bench with a queuer whose failures were lately so far apart.
func queueing(t *testing.T, apart int, retry Retry) (*bench, *Processor, *queuer) {
	t.Helper()
	b, q := newBench(t), &queuer{map[int64]int{}}
	b.exec(family)
	p := b.processor(nil, Registration{Name: "h", Handler: Queue(q), Retry: retry})
	failApart(p.cfg.Handlers, apart)
	return b, p, q
}

// family has a constraint that is checked at the commit.
const family = `create table parent (id int primary key);
	create table child (parent int references parent deferrable initially deferred)`

var (
	later = Retry{Base: time.Hour, Cap: time.Hour}
	never = Retry{Base: time.Hour, Cap: time.Hour, MaxAttempts: 1}
)

// values makes messages of a key each that are all right, but for some at offsets counted from the first.
func (b *bench) values(n int, others map[int]string) []dedup.Message {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("k%d=ok", i)
		if value, ok := others[i]; ok {
			texts[i] = fmt.Sprintf("k%d=%s", i, value)
		}
	}
	return b.messages(texts...)
}

// requireEffects asserts that of n messages all but some took both their effects, once and in order.
func (b *bench) requireEffects(n int, but ...int) {
	b.t.Helper()
	left := map[int]bool{}
	for _, i := range but {
		left[i] = true
	}
	var want []string
	for i := range n {
		if !left[i] {
			want = append(want, fmt.Sprint(i), fmt.Sprint(i))
		}
	}
	require.Equal(b.t, strings.Join(want, " "),
		b.text(`select coalesce(string_agg("offset"::text, ' ' order by seq), '') from effects`))
}

func (b *bench) parked() string {
	b.t.Helper()
	return b.text(
		`select coalesce(string_agg("offset" || '/' || attempts, ' ' order by "offset"), '') from firstseen.parked`)
}

func TestAQueueHandlesAgainOnlyWhatLiesBetweenTheLastSavepointAndACulprit(t *testing.T) {
	for name, c := range map[string]struct {
		bad   []int
		calls string // of each message
	}{
		"the first of a stretch":     {[]int{4}, "111112222222"},
		"the last of a stretch":      {[]int{7}, "111122212222"},
		"two of a stretch":           {[]int{5, 6}, "111121233333"},
		"two on both sides of a gap": {[]int{3, 4}, "222123333333"},
		"the first of all":           {[]int{0}, "122222222222"},
		"the last of all":            {[]int{11}, "111111112221"},
	} {
		t.Run(name, func(t *testing.T) {
			b, p, q := queueing(t, 16, later) // four in a stretch
			bad := map[int]string{}
			for _, i := range c.bad {
				bad[i] = "bad"
			}
			require.Equal(t, Result{New: 12 - len(bad), Parked: len(bad)}, b.process(p, b.values(12, bad)))
			b.requireEffects(12, c.bad...)
			b.requireWhole(12)
			calls := ""
			for i := range int64(12) {
				calls += fmt.Sprint(q.calls[i])
			}
			require.Equal(t, c.calls, calls)
		})
	}
}

func TestAQueuesFailuresKeepTheOrderOfTheirKeyAcrossStretches(t *testing.T) {
	texts := []string{"a=ok", "k=bad", "k=ok", "b=ok", "c=ok", "k=bad", "d=ok", "e=bad",
		"f=ok", "e=ok", "k=ok", "g=ok"}
	b, p, _ := queueing(t, 16, later)
	require.Equal(t, Result{New: 6, Parked: 6}, b.process(p, b.messages(texts...)))
	b.requireEffects(12, 1, 2, 5, 7, 9, 10)
	require.Equal(t, "1/1 2/0 5/0 7/1 9/0 10/0", b.parked())

	b, p, _ = queueing(t, 16, never) // what is dead keeps nobody waiting
	require.Equal(t, Result{New: 9, Dead: 3}, b.process(p, b.messages(texts...)))
	b.requireEffects(12, 1, 5, 7)
}

func TestACulpritWaitsWithoutAnAttemptBehindOneOfItsKeyThatFailedSince(t *testing.T) {
	b, p, _ := queueing(t, 16, later)
	require.Equal(t, Result{New: 3, Parked: 3}, b.process(p,
		b.messages("k=flaky", "a=ok", "k=bad", "b=ok", "k=ok", "c=ok")))
	b.requireEffects(6, 0, 2, 4)
	require.Equal(t, "0/1 2/0 4/0", b.parked())
}

// ofQueues is what a queue can fail by. What commits comes first: behind a rollback it would have committed what it
// found.
var ofQueues = []string{"sql:commit", "bad", "error", "panic", "type", "sql:select no_such_column",
	"sql:insert into effects (nothing) values (1)",
	"sql:savepoint firstseen_handler; select 1/0",
	"sql:savepoint sp_1; insert into effects default values; select 1/0",
	"sql:rollback", "sql:rollback; begin", "sql:rollback to savepoint sp_1", "sql:insert into child values (1)",
	"sql:do $$begin raise exception 'no' using errcode = 'AP001'; end$$"}

func TestWhateverAQueueFailsByIsHeldAgainstItsMessageOnly(t *testing.T) {
	for _, what := range ofQueues {
		for _, apart := range []int{0, 16} {
			t.Run(fmt.Sprint(what, apart), func(t *testing.T) {
				b, p, _ := queueing(t, apart, later)
				require.Equal(t, Result{New: 11, Parked: 1}, b.process(p, b.values(12, map[int]string{5: what})))
				b.requireEffects(12, 5)
				attempts := 1
				if strings.Contains(what, "no_such") || strings.Contains(what, "nothing") {
					attempts = 0 // for all one can know yet it is the deployment's
				}
				require.Equal(t, fmt.Sprint("5/", attempts), b.parked())
				b.requireWhole(12)
			})
		}
	}
}

// Others may call a queue from their own handler.
func TestAQueueWithinAHandlerFailsAlike(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"bad", "error", "type", "sql:rollback", "sql:insert into child values (1)"} {
		t.Run(what, func(t *testing.T) {
			b, within := newBench(t), Queue(&queuer{map[int64]int{}})
			b.exec(family)
			p := b.processor(nil, Registration{Name: "h", Retry: later,
				Handler: BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
					return within.HandleBatch(ctx, tx, ms)
				})})
			require.Equal(t, Result{New: 11, Parked: 1}, b.process(p, b.values(12, map[int]string{5: what})))
			b.requireEffects(12, 5)
			require.Equal(t, "5/1", b.parked())
		})
	}
}

func TestWhatAQueueHasDeferredIsFoundWithinOneTransactionMore(t *testing.T) {
	b, _, _ := queueing(t, 0, later)
	transactions := 0
	p := b.processor(func(c *Config) {
		c.Observe = func(s Stage) {
			if s == StageAccepted {
				transactions++
			}
		}
	}, Registration{Name: "h", Handler: Queue(&queuer{map[int64]int{}}), Retry: later})
	const deferred = "sql:insert into child values (1)"
	require.Equal(t, Result{New: 9, Parked: 3}, b.process(p,
		b.values(12, map[int]string{2: deferred, 5: "bad", 9: deferred})))
	b.requireEffects(12, 2, 5, 9)
	require.Equal(t, 2, transactions)
}

func TestAQueuesDeadlockRunsAgainAndAfterThreeIsItsFailure(t *testing.T) {
	for value, want := range map[string]string{"deadlock:1": "", "deadlock:9": "5/1"} {
		b, p, _ := queueing(t, 16, later)
		b.process(p, b.values(12, map[int]string{5: value}))
		require.Equal(t, want, b.parked())
		b.requireWhole(12)
	}
}

func TestAQueuesStatementThatTakesTooLongIsFoundOut(t *testing.T) {
	const slow = "sql:select pg_sleep(30)"
	for _, apart := range []int{0, 16} {
		b, p, _ := queueing(t, apart, later)
		p.cfg.HandlerTimeout = 400 * time.Millisecond
		b.process(p, b.values(12, map[int]string{5: slow}))
		b.workUntil(p, "5/1")

		b, p, _ = queueing(t, apart, later)
		p.cfg.HandlerTimeout = 400 * time.Millisecond
		b.process(p, b.values(12, map[int]string{2: "bad", 5: slow}))
		b.workUntil(p, "2/1 5/1")
		require.Equal(t, 2*10, b.count(`select count(*) from effects`))
		require.Equal(t, 10, b.count(`select count(distinct "offset") from effects`))
	}
}

// workUntil works on lanes until these are the messages that are parked.
func (b *bench) workUntil(p *Processor, parked string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		_, err := p.workLanes(context.Background(), p.attached()[0])
		require.NoError(b.t, err)
		return b.parked() == parked
	}, 3*time.Minute, time.Millisecond)
}

func TestAMessagesOwnSavepointsAreNotTakenForOurs(t *testing.T) {
	b, p, _ := queueing(t, 16, later)
	ms := b.values(12, map[int]string{4: "sql:savepoint firstseen_handler", 5: "sql:savepoint sp_1; savepoint sp_2",
		6: "bad", 8: "sql:savepoint x; release x", 10: "bad"})
	require.Equal(t, Result{New: 10, Parked: 2}, b.process(p, ms))
	b.requireEffects(12, 6, 10)
}

// on has the bench work on a pool of another kind.
func (b *bench) on(t *testing.T, change func(*pgxpool.Config)) {
	t.Helper()
	var err error
	b.store, err = dedup.Open(t.Context(), deduptest.OpenPool(t, b.dsn, change), dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	b.position = b.acquire(0)
}

var modes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

// What is new to the connection can't be prepared in a transaction that has failed.
func TestAMessageIsNotBlamedForAFailureBeforeIt(t *testing.T) {
	t.Parallel()
	const call = 16 // messages at once, at this pace
	for _, mode := range modes {
		b := newBench(t)
		b.on(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		p := b.processor(nil, Registration{Name: "h", Handler: Queue(&queuer{map[int64]int{}}), Retry: later})
		p.cfg.Handlers.all[0].pace.Failed(8) // three in a stretch
		require.Equal(t, Result{New: call, Parked: 1},
			b.process(p, b.values(call+1, map[int]string{call - 1: "bad", call: "sql:select 'new'"})))
		b.requireEffects(call+1, call-1)
	}
}

func TestAQueueFailsAlikeInEveryModeOfExecution(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBench(t)
			b.exec(family)
			b.on(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			p := b.processor(nil, Registration{Name: "h", Handler: Queue(&queuer{map[int64]int{}}), Retry: later})
			others, failed := map[int]string{}, make([]int, len(ofQueues))
			for i, what := range ofQueues {
				failed[i] = 3*i + 2
				others[failed[i]] = what
			}
			n := 3 * len(ofQueues)
			require.Equal(t, Result{New: n - len(failed), Parked: len(failed)}, b.process(p, b.values(n, others)))
			b.requireEffects(n, failed...)
			b.requireWhole(n)
		})
	}
}

// countedConn counts what is written to a connection: a round trip each.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func TestAFailureCostsAQueueOneRoundTrip(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var writes atomic.Int64
	b.on(t, func(c *pgxpool.Config) {
		c.MaxConns = 1
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return countedConn{conn, &writes}, err
		}
	})
	p := b.processor(nil, Registration{Name: "h", Handler: Queue(&queuer{map[int64]int{}}), Retry: never})
	trips := func(others map[int]string) int {
		p.cfg.Handlers.all[0].pace.Failed(15)
		before := writes.Load()
		require.Equal(t, Result{New: 12 - len(others), Dead: len(others)}, b.process(p, b.values(12, others)))
		return int(writes.Load() - before)
	}
	trips(map[int]string{5: "bad", 6: "error"}) // has the statements prepared
	good := trips(nil)
	const bury = 1
	require.Equal(t, good+1+bury, trips(map[int]string{5: "bad"}))
	require.Equal(t, good+3+bury, trips(map[int]string{0: "bad", 5: "bad", 6: "bad"}))
	require.Equal(t, good+1+bury, trips(map[int]string{5: "error"}))
	require.Equal(t, good+2+bury, trips(map[int]string{4: "error", 9: "panic"}))
	require.Equal(t, good+1+bury, trips(map[int]string{11: "bad"}))
	require.Equal(t, good+3+1+bury, trips(map[int]string{8: "bad", 9: "bad", 10: "bad", 11: "bad"}),
		"the last one is taken back by itself")
}

// asking is a queue whose statements' results are looked at: of messages that say so they are refused.
func asking(b *pgx.Batch, m dedup.Message) error {
	insert := func(note string) *pgx.QueuedQuery {
		return b.Queue(
			`insert into effects (handler, message_id, key, "offset") values ('h', $1, $2, $3) returning seq`,
			m.ID, note, m.Offset)
	}
	look := func(seq int64) error {
		switch {
		case seq == 0:
			return errors.New("no result")
		case string(m.Value) == "refused":
			return errTold
		case string(m.Value) == "panic":
			panic(errTold)
		}
		return nil
	}
	switch m.Offset % 3 {
	case 0:
		insert("").QueryRow(func(row pgx.Row) (err error) {
			var seq int64
			if err := row.Scan(&seq); err != nil {
				return err
			}
			return look(seq)
		})
	case 1:
		insert("").Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := look(1); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	case 2:
		insert("").Exec(func(tag pgconn.CommandTag) error { return look(tag.RowsAffected()) })
	}
	if string(m.Value) == "sql" {
		b.Queue(`select 1 / $1::int`, 0).QueryRow(func(row pgx.Row) error { return row.Scan(new(int)) })
	}
	insert("")
	return nil
}

func TestResultsOfQueuedStatementsAreLookedAtAndRefusedForTheirMessageOnly(t *testing.T) {
	t.Parallel()
	for _, apart := range []int{0, 4, 16} {
		for name, others := range map[string]map[int]string{
			"none":               {},
			"one":                {5: "refused"},
			"each way":           {3: "refused", 4: "refused", 5: "refused"},
			"first and last":     {0: "refused", 11: "refused"},
			"among those of SQL": {1: "sql", 2: "refused", 3: "sql", 7: "refused", 8: "sql"},
			"panic":              {6: "panic"},
			"all": {0: "refused", 1: "refused", 2: "refused", 3: "sql", 4: "refused", 5: "refused", 6: "panic",
				7: "refused", 8: "sql", 9: "refused", 10: "refused", 11: "refused"},
		} {
			t.Run(fmt.Sprint(name, apart), func(t *testing.T) {
				b := newBench(t)
				p := b.processor(nil, Registration{Name: "h", Handler: Queue(QueuedFunc(asking)), Retry: later})
				failApart(p.cfg.Handlers, apart)
				require.Equal(t, Result{New: 12 - len(others), Parked: len(others)},
					b.process(p, b.values(12, others)))
				b.requireEffects(12, slices.Collect(maps.Keys(others))...)
				b.requireWhole(12)
				require.Equal(t, len(others), b.count(`select coalesce(sum(attempts), 0) from firstseen.parked`))
			})
		}
	}
}

func TestAQueueWithinAHandlerLooksAtItsResults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Retry: later,
		Handler: BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
			return Queue(QueuedFunc(asking)).HandleBatch(ctx, tx, ms)
		})})
	require.Equal(t, Result{New: 10, Parked: 2}, b.process(p, b.values(12, map[int]string{4: "refused", 5: "panic"})))
	b.requireEffects(12, 4, 5)
}

// The lanes' messages fail more often, which must not slow new ones down.
func TestParkedMessagesHaveAPaceOfTheirOwn(t *testing.T) {
	b, p, _ := queueing(t, 0, Retry{Base: 1, Cap: 1, MaxAttempts: 2})
	b.process(p, b.values(12, map[int]string{5: "bad"}))
	h := p.cfg.Handlers.all[0]
	before := h.pace.Distance()
	b.drain(p)
	require.Equal(t, before, h.pace.Distance())
	require.NotZero(t, h.lanePace.Distance())
}
