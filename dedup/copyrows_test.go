package dedup

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestATimestampIsATimeOrElseTheNumberThatCame(t *testing.T) {
	for number, isTime := range map[int64]bool{
		noTimestamp: false, zeroTimestamp - 1: false, zeroTimestamp: false, zeroTimestamp + 1: true,
		noTimestamp - 1: true, 0: true,
		endTimestamp - 1: true, endTimestamp: false, math.MinInt64: false,
		math.MaxInt64: false, math.MinInt64 + 1: false,
	} {
		var m Message
		m.Stamp(number)
		at, kept := m.stored()
		require.Equal(t, !isTime, at.IsZero(), "%d", number)
		switch {
		case isTime:
			require.Equal(t, number, at.UnixMilli())
			require.Zero(t, kept)
			require.Equal(t, number*1000, postgresMicros(at)+postgresEpoch.UnixMicro())
		case number == noTimestamp:
			require.Zero(t, kept)
		default:
			require.Equal(t, number, kept)
		}
	}
}

func TestATimeOutOfBoundsIsStoredAsANumber(t *testing.T) {
	for _, c := range []struct {
		at   time.Time
		want int64
	}{
		{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), endTimestamp},
		{time.Date(0, 12, 31, 23, 59, 59, 999e6, time.UTC), zeroTimestamp - 1},
		{time.UnixMilli(math.MaxInt64), math.MaxInt64},
		{time.UnixMilli(math.MinInt64), math.MinInt64},
		{time.Unix(math.MaxInt64/100, 0), math.MaxInt64},
		{time.Unix(math.MinInt64/100, 0), math.MinInt64},
	} {
		at, number := (&Message{Timestamp: c.at}).stored()
		require.True(t, at.IsZero())
		require.Equal(t, c.want, number)
	}
}
