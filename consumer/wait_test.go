package consumer

import (
	"testing"
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
