package handlers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/handlers"
)

func TestWindowForgetsWhatIsOlderThanItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled, failed, length atomic.Int64
		length.Store(int64(time.Minute))
		w := handlers.NewWindow(func() time.Duration { return time.Duration(length.Load()) },
			func() handlers.Totals { return handlers.Totals{Handled: handled.Load(), Failed: failed.Load()} })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx)
		require.Zero(t, w.Rates())
		handled.Store(30)
		failed.Store(10)
		time.Sleep(10 * time.Second)
		require.Equal(t, handlers.Rates{Over: 10 * time.Second, Handled: 30, Failed: 10, Throughput: 3,
			FailureRatio: 0.25}, w.Rates())
		time.Sleep(100 * time.Second)
		synctest.Wait()
		handled.Add(120)
		require.Equal(t, handlers.Rates{Over: time.Minute, Handled: 120, Throughput: 2}, w.Rates())

		length.Store(int64(2 * time.Minute)) // as after a reload: the longer window fills up
		time.Sleep(90 * time.Second)
		require.InDelta(t, 2*time.Minute, w.Rates().Over, float64(3*time.Second))
	})
}
