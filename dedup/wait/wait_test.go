package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPausesBetweenAttemptsGrowToSeconds(t *testing.T) {
	const random = 1.5 // a pause is up to half as long again
	retry := NewBackoff()
	require.LessOrEqual(t, retry.Next(), time.Duration(random*float64(100*time.Millisecond)))
	longest := time.Duration(0)
	for range 1000 {
		longest = max(longest, retry.Next())
	}
	require.LessOrEqual(t, longest, time.Duration(random*float64(5*time.Second)))
	require.Greater(t, longest, 5*time.Second)
}

func TestASleepEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.True(t, Sleep(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		require.False(t, Sleep(ctx, time.Hour))
		require.Equal(t, time.Minute, time.Since(began))

		began = time.Now()
		NewBackoff().Wait(t.Context())
		require.Positive(t, time.Since(began))
	})
}

func TestSlotsAreWaitedForUntilOneIsGivenOrTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := make(Slots, 1)
		require.True(t, s.Take(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.False(t, s.Take(ctx))
		time.AfterFunc(time.Minute, s.Give)
		require.True(t, s.Take(t.Context()))
	})
}
