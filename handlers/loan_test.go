package handlers

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/memory"
)

// large has the messages' values take so many bytes each.
func large(ms []dedup.Message, size int) []dedup.Message {
	for i := range ms {
		ms[i].Value = append(ms[i].Value, make([]byte, size)...)
	}
	return ms
}

func TestParkedMessagesAreLoadedWithinTheMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	account := memory.New(8 << 20)
	fail, calls := true, 0
	p := b.processor(nil, Registration{Name: "h", Retry: Retry{Base: time.Hour, Cap: time.Hour},
		Handler: BatchHandlerFunc(func(_ context.Context, _ pgx.Tx, ms []dedup.Message) error {
			if fail {
				return errTold
			}
			size := 0
			for i := range ms {
				size += ms[i].Size()
			}
			require.True(t, len(ms) == 1 || size <= account.Limit()/8, "%d messages of %d bytes", len(ms), size)
			require.GreaterOrEqual(t, account.Used(), size)
			require.Less(t, account.Used(), max(account.Limit()/8, size)+64<<10)
			calls += len(ms)
			return nil
		})})
	p.Draw(account)
	b.process(p, large(b.messages("k=", "k=", "k=", "k=", "j=", "j="), 400<<10))
	b.process(p, large(b.messages("l=", "k="), 12<<20))
	fail = false
	b.exec(`update firstseen.lanes set due_at = now()`)
	b.drain(p)
	require.Equal(t, 8, calls)
	require.Zero(t, account.Used())
}

func TestCallsUnderWayCountOnTheMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	account := memory.New(8 << 20)
	release := make(chan struct{})
	p := b.processor(nil, Registration{Name: "h", Concurrency: 4,
		Detached: DetachedFunc(func(context.Context, dedup.Message) error { <-release; return nil })})
	p.Draw(account)
	b.process(p, large(b.messages("a=", "b=", "c="), 700<<10))
	stop := runLanes(p)
	defer stop()
	require.Eventually(t, func() bool { return account.Used() >= 3*700<<10 && account.Used() < 3*700<<10+64<<10 },
		3*time.Minute, 10*time.Millisecond)
	close(release)
	require.Eventually(t, func() bool { return b.count(`select count(*) from firstseen.parked`) == 0 }, 3*time.Minute,
		10*time.Millisecond)
	require.Eventually(t, func() bool { return account.Used() == 0 }, 3*time.Minute, 10*time.Millisecond)
}

// requireLaneGivenBack parks a message with headers, and finds that its lane is given back while so much of the memory
// is taken.
func requireLaneGivenBack(t *testing.T, limit, taken int, headers ...dedup.Header) {
	t.Helper()
	b := newBench(t)
	account := memory.New(limit)
	h := newObedient("h")
	p := b.processor(nil, Registration{Name: "h", Handler: Each(h)})
	p.Draw(account)
	ms := b.messages("k=fail:1")
	ms[0].Headers = headers
	b.process(p, ms)
	require.True(t, account.Try(taken))
	b.exec(`update firstseen.lanes set due_at = now()`)
	_, err := p.workLanes(t.Context(), p.attached()[0])
	require.ErrorContains(t, err, "all memory for messages is in use")
	require.Zero(t, b.count(`select claims from firstseen.lanes`), "the process lived")
	require.Equal(t, taken, account.Used())
	account.Give(taken)
	b.drain(p)
	b.requireOnce(1)
	require.Zero(t, account.Used())
}

func TestLanesWaitForMemoryAndGiveTheirLanesBack(t *testing.T) {
	t.Parallel()
	requireLaneGivenBack(t, 1<<20, 1<<20)
}

func TestLargeParkedMessagesAreNotLoadedBeforeThereIsMemory(t *testing.T) {
	t.Parallel()
	requireLaneGivenBack(t, 8<<20, 6<<20, dedup.Header{Key: "large", Value: make([]byte, 3<<20)})
}
