package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPaceFollowsTheDistanceOfFailures(t *testing.T) {
	var p pace
	require.Equal(t, unlimited, p.call(), "nothing has failed")
	require.Equal(t, unlimited, p.stretch())
	p.handled(90)
	p.failed(9)
	require.Equal(t, 100, p.distance())
	for range 20 {
		p.failed(9)
	}
	require.Less(t, p.distance(), 13)
	require.Equal(t, leastCall, p.call())
	require.LessOrEqual(t, p.stretch(), 5)
	p.handled(1000)
	require.Equal(t, 1000, p.distance(), "it is at least what was handled since")
	require.Equal(t, 32, p.stretch())
	p.handled(forgetAfter)
	require.Equal(t, unlimited, p.call(), "forgotten")
}

func TestRareFailuresAreReckonedWithForABoundedTime(t *testing.T) {
	var p pace
	p.handled(1 << 30)
	p.failed(0)
	require.Equal(t, forgetAfter, p.distance())
	p.handled(forgetAfter + 1)
	require.Equal(t, unlimited, p.stretch())
}

// The lanes' messages fail more often, which must not slow new ones down.
func TestParkedMessagesHaveAPaceOfTheirOwn(t *testing.T) {
	b, p, _ := queueing(t, 0, Retry{Base: 1, Cap: 1, MaxAttempts: 2})
	b.process(p, b.values(12, map[int]string{5: "bad"}))
	h := p.cfg.Handlers.all[0]
	h.pace = pace{}
	b.drain(p)
	require.Zero(t, h.pace.distance())
	require.NotZero(t, h.lanePace.distance())
}
