package dedup

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimestampsReachToPostgresOwnBounds(t *testing.T) {
	first := time.Date(-4713, 11, 24, 0, 0, 0, 0, time.UTC) // 4714 BC
	require.EqualValues(t, -211813488000000000, postgresMicros(first))
	require.EqualValues(t, math.MinInt64, postgresMicros(first.Add(-1)))
	end := time.Date(294277, 1, 1, 0, 0, 0, 0, time.UTC)
	require.EqualValues(t, 9223371331200000000-1, postgresMicros(end.Add(-1)))
	require.EqualValues(t, math.MaxInt64, postgresMicros(end))
}
