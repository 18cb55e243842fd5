package httpjson

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBucketLetsSoManyThroughASecond(t *testing.T) {
	var b Bucket
	now := time.Now()
	for range 5 {
		_, ok := b.Take(5, now)
		require.True(t, ok)
	}
	wait, ok := b.Take(5, now)
	require.False(t, ok)
	require.Equal(t, 200*time.Millisecond, wait)
	_, ok = b.Take(5, now.Add(wait-time.Millisecond))
	require.False(t, ok)
	_, ok = b.Take(5, now.Add(wait))
	require.True(t, ok)
	for range 5 {
		_, ok = b.Take(5, now.Add(time.Hour))
		require.True(t, ok)
	}
	_, ok = b.Take(5, now.Add(time.Hour))
	require.False(t, ok)
}

func TestBucketOfNothingLetsOneThroughASecond(t *testing.T) {
	for _, rate := range []int{0, 1} {
		var b Bucket
		now := time.Now()
		_, ok := b.Take(rate, now)
		require.True(t, ok)
		wait, ok := b.Take(rate, now)
		require.False(t, ok)
		require.Equal(t, time.Second, wait)
	}
}
