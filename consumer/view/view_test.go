package view

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestTimestampIsShownAsItCame(t *testing.T) {
	for number, want := range map[int64]string{
		-1:                  "",
		0:                   "1970-01-01 00:00:00.000 UTC",
		1764300000123:       "2025-11-28 03:20:00.123 UTC",
		1764300000123456:    "1764300000123456, no time of the years 1 to 9999 in milliseconds; in microseconds 2025-11-28 03:20:00.123 UTC",
		1764300000123456789: "1764300000123456789, no time of the years 1 to 9999 in milliseconds; in nanoseconds 2025-11-28 03:20:00.123 UTC",
		math.MinInt64:       "-9223372036854775808, no time of the years 1 to 9999 in milliseconds",
		math.MaxInt64:       "9223372036854775807, no time of the years 1 to 9999 in milliseconds",
	} {
		var m dedup.Message
		m.Stamp(number)
		require.Equal(t, want, Timestamp(&m))
	}
}

func TestHeadersAreShownUpToAsManyBytesAsAValue(t *testing.T) {
	m := &dedup.Message{Headers: []dedup.Header{{Key: "abc", Value: []byte("defgh")},
		{Key: "i", Value: []byte("jk")}, {Key: "l"}}}
	c := plainContentOf(m, 10)
	require.True(t, c.HeadersCut)
	require.Len(t, c.Headers, 2)
	require.Equal(t, Bytes{Text: c.Headers[1].Value.Text, Bytes: 2, Cut: true}, *c.Headers[1].Value)
	require.Equal(t, "j", *c.Headers[1].Value.Text)
	require.False(t, plainContentOf(m, 12).HeadersCut)
	require.Len(t, plainContentOf(m, 12).Headers, 3)
	require.Empty(t, plainContentOf(&dedup.Message{Headers: []dedup.Header{{Key: "longer than all of it"}}}, 10).Headers)
	many := plainContentOf(&dedup.Message{Headers: make([]dedup.Header, maxHeaders+1)}, 10)
	require.True(t, many.HeadersCut)
	require.Len(t, many.Headers, maxHeaders)
}

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	require.Equal(t, "é", *shown([]byte("éa\xc3\xa9"), 2).Text)
	require.Equal(t, "", *shown([]byte("é"), 1).Text)
}
