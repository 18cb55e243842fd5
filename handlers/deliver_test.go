package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
)

// lanes runs a processor's lane workers until the returned function is called, which waits for their end.
func lanes(t testing.TB, p *Processor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.RunLanes(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

// delivered waits until nothing is parked any more.
func (b *bench) delivered(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.count(`select count(*) from firstseen.parked`) == 0 },
		3*time.Minute, 5*time.Millisecond)
	require.Equal(b.t, n, b.count(`select count(*) from firstseen.inbox`))
	require.Zero(b.t, b.count(`select count(*) from firstseen.lanes`))
}

// calls is what a detached handler was given, in order.
type calls struct {
	mu   sync.Mutex
	seen []dedup.Message
	busy map[string]bool
	most int
}

func (c *calls) begin(m dedup.Message) (overlap bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == nil {
		c.busy = map[string]bool{}
	}
	overlap = c.busy[string(m.Key)]
	c.busy[string(m.Key)] = true
	c.seen = append(c.seen, m)
	c.most = max(c.most, len(c.busy))
	return overlap
}

func (c *calls) end(m dedup.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, string(m.Key))
}

// of gives the values that were delivered for a key.
func (c *calls) of(key string) (values []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.seen {
		if string(m.Key) == key {
			values = append(values, string(m.Value))
		}
	}
	return values
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// noting is a handler that notes its calls and then does what act says.
func (c *calls) noting(act func(ctx context.Context, m dedup.Message) error) DetachedFunc {
	return func(ctx context.Context, m dedup.Message) error {
		if c.begin(m) {
			return Permanent(errors.New("two calls of one key at once"))
		}
		defer c.end(m)
		return act(ctx, m)
	}
}

func TestASlowCallHoldsUpOnlyItsOwnKey(t *testing.T) {
	t.Parallel()
	b, c, slow := newBench(t), &calls{}, make(chan struct{})
	p := b.processor(nil, Registration{Name: "hook", Concurrency: 2,
		Detached: c.noting(func(_ context.Context, m dedup.Message) error {
			if string(m.Value) == "slow" {
				<-slow
			}
			return nil
		})})
	lanes(t, p)
	texts := []string{"k=slow", "k=next"}
	for i := range 20 {
		texts = append(texts, fmt.Sprintf("other-%d=x", i))
	}
	result := b.process(p, b.messages(texts...))
	require.Equal(t, Result{Parked: 22}, result)
	require.Eventually(t, func() bool { return b.count(`select count(*) from firstseen.inbox`) == 20 }, 3*time.Minute,
		5*time.Millisecond)
	require.Equal(t, []string{"slow"}, c.of("k"))
	close(slow)
	b.delivered(22)
	require.Equal(t, []string{"slow", "next"}, c.of("k"))
	require.Equal(t, 22, c.count())
}

// What can't be read back as it was stored is delivered again and again.
func TestAWebhookIsCalledOnceForEachRecordWhateverItsTimestamp(t *testing.T) {
	t.Parallel()
	numbers := []int64{-1, 0, 1764300000123, 1764300000000123, 1764300000000000123, -210866803200001, 253402300800000,
		math.MinInt64, math.MaxInt64}
	var mu sync.Mutex
	called := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		called[r.Header.Get("Idempotency-Key")]++
	}))
	t.Cleanup(server.Close)
	hook, err := NewWebhook(WebhookConfig{URL: server.URL, AllowPrivate: true})
	require.NoError(t, err)
	t.Cleanup(hook.CloseIdleConnections)
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "hook", Detached: hook})
	ms := b.messages(slices.Repeat([]string{"=v"}, len(numbers))...)
	for i, number := range numbers {
		ms[i].Stamp(number)
	}
	require.Equal(t, Result{Parked: len(ms)}, b.process(p, ms))
	lanes(t, p)
	b.delivered(len(ms))
	require.Len(t, called, len(ms))
	for id, times := range called {
		require.Equal(t, 1, times, id)
	}
	require.Equal(t, []int64{math.MinInt64, -210866803200001, 253402300800000, 1764300000000123, 1764300000000000123,
		math.MaxInt64}, b.numbers(`select raw_timestamp from firstseen.inbox where raw_timestamp is not null order by 1`))
}

func (b *bench) numbers(sql string) []int64 {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), sql)
	require.NoError(b.t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(b.t, err)
	return found
}

func TestEachKeyIsDeliveredInItsOrderAlsoAcrossFailures(t *testing.T) {
	t.Parallel()
	b, c := newBench(t), &calls{}
	tries := sync.Map{}
	p := b.processor(nil, Registration{Name: "hook", Concurrency: 4,
		Detached: c.noting(func(_ context.Context, m dedup.Message) error {
			n, _ := tries.LoadOrStore(m.ID, new(atomic.Int32))
			if int64(n.(*atomic.Int32).Add(1)) <= m.Offset%3 {
				return errors.New("not yet")
			}
			return nil
		})})
	lanes(t, p)
	want := map[string][]string{}
	for batch := range 4 {
		var texts []string
		for i := range 25 {
			key, value := fmt.Sprint("k", i%7), fmt.Sprintf("%d-%02d", batch, i)
			texts = append(texts, key+"="+value)
			for range 1 + (batch*25+i)%3 {
				want[key] = append(want[key], value)
			}
		}
		b.process(p, b.messages(texts...))
	}
	b.delivered(100)
	for key, values := range want {
		require.Equal(t, values, c.of(key))
	}
	require.LessOrEqual(t, c.most, 4)
}

func TestSoManyCallsAtOnceAsTheHandlerAllows(t *testing.T) {
	t.Parallel()
	b, c, release := newBench(t), &calls{}, make(chan struct{})
	p := b.processor(nil, Registration{Name: "hook", Concurrency: 3, Ordering: dedup.Unordered,
		Detached: c.noting(func(context.Context, dedup.Message) error { <-release; return nil })})
	lanes(t, p)
	b.process(p, b.messages("1=", "2=", "3=", "4=", "5=", "6="))
	require.Eventually(t, func() bool { return c.count() == 3 }, 3*time.Minute, time.Millisecond)
	time.Sleep(20 * p.cfg.LanePoll) // a fourth would have come by now
	require.Equal(t, 3, c.count())
	close(release)
	b.delivered(6)
}

func TestNoTransactionIsOpenDuringACall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	closed := false
	p := b.processor(nil, Registration{Name: "hook", Detached: DetachedFunc(func(ctx context.Context,
		_ dedup.Message) error {
		for !closed && wait.Sleep(ctx, time.Millisecond) {
			closed = b.count(`select count(*) from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid() and xact_start < now()`) == 0
		}
		return nil
	})})
	lanes(t, p)
	b.process(p, b.messages("k=v"))
	b.delivered(1)
	require.True(t, closed)
}

func TestWhatIsParkedWakesEveryHandlerOfItsTopicAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var wg sync.WaitGroup
	wg.Add(3)
	hook := DetachedFunc(func(context.Context, dedup.Message) error { wg.Done(); return nil })
	p := b.processor(func(cfg *Config) { cfg.LanePoll = time.Hour },
		Registration{Name: "one", Detached: hook}, Registration{Name: "two", Detached: hook},
		Registration{Name: "three", Detached: hook})
	lanes(t, p)
	time.Sleep(20 * time.Millisecond) // they have looked, and found nothing
	b.process(p, b.messages("k=v"))
	woken := make(chan struct{})
	go func() { wg.Wait(); close(woken) }()
	select {
	case <-woken:
	case <-time.After(time.Minute):
		t.Fatal("a handler was not woken")
	}
	b.delivered(3)
}

func TestABatchOfWhichNothingIsParkedWakesNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h"))})
	b.process(p, b.messages("k=v"))
	require.Empty(t, p.wakes.attached)
	b.process(p, b.messages("k=fail:1"))
	require.Len(t, p.wakes.attached, 1)
}

func TestBigMessagesAreWrittenDownInPortions(t *testing.T) {
	t.Parallel()
	b, c, all := newBench(t), &calls{}, make(chan struct{})
	p := b.processor(nil, Registration{Name: "hook",
		Detached: c.noting(func(_ context.Context, m dedup.Message) error { <-all; return nil })})
	ms := b.messages("a=", "b=", "c=", "d=", "e=")
	for i := range ms {
		ms[i].Value = bytes.Repeat([]byte("x"), 5<<20)
	}
	lanes(t, p)
	b.process(p, ms)
	time.AfterFunc(300*time.Millisecond, func() { close(all) })
	b.delivered(5)
	require.Equal(t, 5, c.count())
}

func TestALaneIsSettledWhateverTheOrderingIsByNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var tries atomic.Int32
	p := b.processor(nil, Registration{Name: "hook", Ordering: dedup.OrderByPartition, Detached: DetachedFunc(nil)})
	b.process(p, b.messages("a=1"))
	p = b.processor(nil, Registration{Name: "hook", Ordering: dedup.Unordered,
		Detached: DetachedFunc(func(context.Context, dedup.Message) error {
			if tries.Add(1) < 3 {
				return errors.New("not yet")
			}
			return nil
		})})
	lanes(t, p)
	b.delivered(1)
	require.Equal(t, 2, b.count(`select attempts from firstseen.inbox`))
}

func TestAnOutcomeIsNeverAnotherMessages(t *testing.T) {
	t.Parallel()
	b, c, release := newBench(t), &calls{}, make(chan struct{})
	p := b.processor(nil, Registration{Name: "hook",
		Detached: c.noting(func(context.Context, dedup.Message) error { <-release; return nil })})
	lanes(t, p)
	b.process(p, b.messages("k=late"))
	require.Eventually(t, func() bool { return c.count() == 1 }, 3*time.Minute, time.Millisecond)
	b.exec(`insert into firstseen.parked (scope_id, lane, message_id, topic, "partition", "offset", key, payload)
		select scope_id, lane, gen_random_uuid(), topic, "partition", -1, key, 'early' from firstseen.parked`)
	close(release)
	b.delivered(2)
	require.Equal(t, []string{"late", "early", "late"}, c.of("k"), "what can't be written down is delivered again")
}

// Nobody else may take a lane while its call goes on, for as long as it may.
func TestALeaseOutlastsItsCall(t *testing.T) {
	t.Parallel()
	b, c, release := newBench(t), &calls{}, make(chan struct{})
	p := b.processor(func(cfg *Config) { cfg.HandlerTimeout = 3 * time.Hour }, Registration{Name: "hook",
		Detached: c.noting(func(context.Context, dedup.Message) error { <-release; return nil })})
	lanes(t, p)
	b.process(p, b.messages("a=1"))
	require.Eventually(t, func() bool { return c.count() == 1 }, 3*time.Minute, time.Millisecond)
	require.Equal(t, 1, b.count(`select count(*) from firstseen.lanes where due_at > now() + interval '2 h 50 min'`))
	close(release)
	b.delivered(1)
	require.Greater(t, newDispatcher(p, p.cfg.Handlers.all[0]).lease, p.cfg.HandlerTimeout+p.cfg.AbandonAfter)
}
