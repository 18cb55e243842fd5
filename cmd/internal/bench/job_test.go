package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSteadyRateLeavesTheStartOut(t *testing.T) {
	o := outcome{Seconds: 3, Messages: 1100, FirstSeconds: 1, FirstMessages: 100}
	require.EqualValues(t, 500, o.steady())
	o.FirstMessages = 1100
	require.Equal(t, o.rate(), o.steady(), "all was through before anybody looked")
}

func TestLooksComeCloserTowardsTheEnd(t *testing.T) {
	look := func(done int) time.Duration {
		o := outcome{Seconds: 1, Messages: done}
		return o.nextLook(1000)
	}
	require.Equal(t, 5*time.Millisecond, look(0))
	require.Equal(t, 50*time.Millisecond, look(100))
	require.InDelta(t, 22*time.Millisecond, look(900), float64(time.Millisecond))
	require.Equal(t, 2*time.Millisecond, look(999))
}
