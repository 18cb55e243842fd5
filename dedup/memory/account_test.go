package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/memory"
)

// taking takes in a goroutine of its own; what it returns says whether that is through.
func taking(ctx context.Context, a *memory.Account, n, item int) (through func() bool) {
	done := make(chan struct{})
	go func() {
		if a.Take(ctx, n, item) == nil {
			close(done)
		}
	}()
	synctest.Wait()
	return func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

func TestWhoeverCameFirstGetsMemoryFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memory.New(100)
		require.True(t, a.Try(80))
		most := taking(t.Context(), a, 40, 0)
		least := taking(t.Context(), a, 10, 0)
		require.True(t, a.Short())
		require.False(t, a.Try(1), "others wait")
		require.False(t, least(), "it came later")
		time.Sleep(time.Second)
		require.Equal(t, 2*time.Second, a.Waited())
		a.Give(20)
		require.True(t, most())
		require.False(t, least())
		a.Give(60)
		require.True(t, least())
		require.Equal(t, 50, a.Used())
		require.False(t, a.Short())
	})
}

func TestOneLargeItemAtATimeExceedsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memory.New(100)
		require.True(t, a.Try(90))
		first := taking(t.Context(), a, 505, 500)
		require.True(t, first())
		require.Equal(t, 595, a.Used())
		second := taking(t.Context(), a, 120, 120)
		require.False(t, second())
		small := taking(t.Context(), a, 5, 0)
		require.True(t, small(), "it fits beside the first, and waits for no other")
		a.Give(90)
		require.False(t, second(), "the first is still there")
		a.Give(505)
		require.True(t, second())
		require.Equal(t, 125, a.Used())
	})
}

func TestWhatIsLargerThanTheLimitGetsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memory.New(100)
		require.True(t, a.Try(10))
		require.True(t, taking(t.Context(), a, 300, 0)(), "it is taken for an item")
		a.Give(310)
		require.True(t, a.Try(60))
		both := taking(t.Context(), a, 1000, 500) // two items
		require.False(t, both())
		a.Give(10)
		require.True(t, both(), "all but half of the limit goes over it")
	})
}

func TestWhoGivesUpWaitingHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memory.New(100)
		require.True(t, a.Try(90))
		ctx, cancel := context.WithCancel(t.Context())
		first := taking(ctx, a, 50, 0)
		second := taking(t.Context(), a, 10, 0)
		require.False(t, second())
		cancel()
		require.True(t, second())
		require.False(t, first())
		require.Equal(t, 100, a.Used())
	})
}

func TestWhoeverWatchesHearsOfMemoryThatIsGivenBack(t *testing.T) {
	a := memory.New(100)
	heard := 0
	stop := a.Watch(func() { heard++ })
	require.True(t, a.Try(80))
	require.Zero(t, heard)
	a.Give(10)
	a.Give(0)
	require.Equal(t, 1, heard)
	stop()
	a.Give(70)
	require.Equal(t, 1, heard)
}
