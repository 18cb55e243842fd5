package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDurationsMayBeginWithDays(t *testing.T) {
	for text, want := range map[string]time.Duration{"90d": 90 * day, "1d12h": 36 * time.Hour,
		"0d": 0, "-2d": -2 * day, "-1d1h": -25 * time.Hour, "1d0.5s": day + 500*time.Millisecond, "24h": day, "0": 0,
		"106751d": 106751 * day} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "d", "1.5d", "1d2", "1d-1h", "1d+1h", "1d1d", "1h1d", "1 d", "106752d",
		"106751d24h", "9999999d", "90days"} {
		_, err := ParseDuration(text)
		require.Error(t, err, text)
	}
}

func TestDurationsAreReadBackAsTheyArePrinted(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", time.Minute: "1m", 5 * time.Hour: "5h",
		90 * day: "90d", 36 * time.Hour: "1d12h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s",
		10 * time.Minute: "10m", 20 * time.Hour: "20h"} {
		require.Equal(t, want, formatDuration(d))
	}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Millisecond, time.Second, time.Minute, time.Hour, day}).
			Draw(t, "unit")
		d := time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "n")) * unit
		if got, err := ParseDuration(formatDuration(d)); err != nil || got != d {
			t.Fatalf("%s is read as %s: %v", formatDuration(d), got, err)
		}
	})
}
