package isolate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPaceFollowsTheDistanceOfFailures(t *testing.T) {
	var p Pace
	require.Equal(t, Unlimited, p.call(), "nothing has failed")
	require.Equal(t, Unlimited, p.stretch())
	p.Handled(90)
	p.Failed(9)
	require.Equal(t, 100, p.Distance())
	for range 20 {
		p.Failed(9)
	}
	require.Less(t, p.Distance(), 13)
	require.Equal(t, leastCall, p.call())
	require.LessOrEqual(t, p.stretch(), 5)
	p.Handled(1000)
	require.Equal(t, 1000, p.Distance(), "it is at least what was handled since")
	require.Equal(t, 32, p.stretch())
	p.Handled(forgetAfter)
	require.Equal(t, Unlimited, p.call(), "forgotten")
}

func TestRareFailuresAreReckonedWithForABoundedTime(t *testing.T) {
	var p Pace
	p.Handled(1 << 30)
	p.Failed(0)
	require.Equal(t, forgetAfter, p.Distance())
	p.Handled(forgetAfter + 1)
	require.Equal(t, Unlimited, p.stretch())
}
