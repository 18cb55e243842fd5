package bench

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentileIsTheLeastThatTheShareDoesNotExceed(t *testing.T) {
	var all []time.Duration
	for i := range 1000 {
		all = append(all, time.Duration(1000-i)*time.Millisecond)
	}
	require.Equal(t, 500*time.Millisecond, percentile(all, 0.5))
	require.Equal(t, 990*time.Millisecond, percentile(all, 0.99))
	require.Equal(t, 999*time.Millisecond, percentile(all, 0.999))
	require.Equal(t, time.Second, percentile(all, 1))
	require.Equal(t, time.Millisecond, percentile(all[:1], 0.001))
}

func TestLatencyLeavesOutTheWarmUp(t *testing.T) {
	start := time.Now()
	tr := &traffic{}
	for i := range 5 {
		tr.sent = append(tr.sent, start.Add(time.Duration(i)*time.Second))
		tr.committed = append(tr.committed, tr.sent[i].Add(time.Duration(i)*time.Millisecond))
	}
	require.Equal(t,
		[]time.Duration{2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond}, tr.latencies(2))
	require.InDelta(t, 1, tr.rate(), 1e-9)
}

func TestPaceIsEven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, n = 2500, 5000
		start, next := time.Now(), 0
		pace(t.Context(), rate, n, func(i int) {
			require.Equal(t, next, i)
			due := time.Duration(i) * time.Second / rate
			require.InDelta(t, due, time.Since(start), float64(time.Millisecond))
			next++
		})
		require.Equal(t, n, next)
	})
}

func TestPaceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sent := 0
	pace(ctx, 1, 1000, func(int) {
		sent++
		cancel()
	})
	require.Equal(t, 1, sent)
}

func TestEveryTriesAtEachTickUntilDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		require.NoError(t, every(t.Context(), time.Second, func() (bool, error) {
			tries++
			return tries == 4, nil
		}))
		require.Equal(t, 4, tries)
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestEveryEndsWithTheFirstCause(t *testing.T) {
	broken, stopped := errors.New("broken"), errors.New("stopped")
	require.ErrorIs(t, every(t.Context(), time.Millisecond, func() (bool, error) { return false, broken }), broken)
	ctx, cancel := context.WithCancelCause(t.Context())
	err := every(ctx, time.Millisecond, func() (bool, error) {
		cancel(stopped)
		return false, ctx.Err() // what a driver gives
	})
	require.Equal(t, stopped, err)
}
