package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPausesBetweenAttemptsGrowToSeconds(t *testing.T) {
	const random = 1.5 // a pause is up to half as long again
	retry := newBackoff()
	require.LessOrEqual(t, retry.next(), time.Duration(random*float64(100*time.Millisecond)))
	longest := time.Duration(0)
	for range 1000 {
		longest = max(longest, retry.next())
	}
	require.LessOrEqual(t, longest, time.Duration(random*float64(5*time.Second)))
	require.Greater(t, longest, 5*time.Second)
}

func TestASleepEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.True(t, sleep(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		require.False(t, sleep(ctx, time.Hour))
		require.Equal(t, time.Minute, time.Since(began))

		began = time.Now()
		newBackoff().wait(t.Context())
		require.Positive(t, time.Since(began))
	})
}

func TestSlotsAreWaitedForUntilOneIsGivenOrTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := make(slots, 1)
		require.True(t, s.take(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.False(t, s.take(ctx))
		time.AfterFunc(time.Minute, s.give)
		require.True(t, s.take(t.Context()))
	})
}
