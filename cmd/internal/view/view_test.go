package view

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestJSONSteersNoTerminal(t *testing.T) {
	want := map[string]string{"\x7fé": "\u009b31m \u0085 \u202e \u2066 <&> \x1b[0m\n 漢 \U0001f600"}
	for _, indent := range []string{"", "  "} {
		out, err := JSON(want, indent)
		require.NoError(t, err)
		require.NotRegexp(t, `[\x{7f}-\x{9f}\x{202e}\x{2066}\x{1b}]`, string(out))
		require.Contains(t, string(out), `\u009b31m \u0085 \u202e \u2066 <&> \u001b[0m\n 漢 😀`)
		var got map[string]string
		require.NoError(t, json.Unmarshal(out, &got))
		require.Equal(t, want, got)
	}
}

func TestWhatIsNoJSONIsAnErrorAndNothingElse(t *testing.T) {
	for _, value := range []any{math.NaN(), time.Date(57878, 1, 1, 0, 0, 0, 0, time.UTC)} {
		out, err := JSON(map[string]any{"a": 1, "b": value}, "")
		require.Error(t, err)
		require.Nil(t, out)
	}
}

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
	m := &dedup.Message{Headers: []dedup.Header{{Key: "abc", Value: []byte("defgh")}, {Key: "i", Value: []byte("jk")}, {Key: "l"}}}
	c := contentOf(m, 10)
	require.True(t, c.HeadersCut)
	require.Len(t, c.Headers, 2)
	require.Equal(t, Bytes{Text: c.Headers[1].Value.Text, Bytes: 2, Cut: true}, *c.Headers[1].Value)
	require.Equal(t, "j", *c.Headers[1].Value.Text)
	require.False(t, contentOf(m, 12).HeadersCut)
	require.Len(t, contentOf(m, 12).Headers, 3)
	require.Empty(t, contentOf(&dedup.Message{Headers: []dedup.Header{{Key: "longer than all of it"}}}, 10).Headers)
	many := contentOf(&dedup.Message{Headers: make([]dedup.Header, maxHeaders+1)}, 10)
	require.True(t, many.HeadersCut)
	require.Len(t, many.Headers, maxHeaders)
}

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	require.Equal(t, "é", *shown([]byte("éa\xc3\xa9"), 2).Text)
	require.Equal(t, "", *shown([]byte("é"), 1).Text)
}
