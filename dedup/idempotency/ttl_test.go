package idempotency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/idempotency"
)

const ttlVariable = "ORDERS_IDEMPOTENCY_TTL_HOURS"

func TestTTLIsReadInHoursFromTheEnvironment(t *testing.T) {
	ttl, err := idempotency.TTLHours(ttlVariable)
	require.NoError(t, err)
	require.Zero(t, ttl, "not set: Config's default")
	for text, want := range map[string]time.Duration{
		"": 0, " ": 0, "1": time.Hour, " 72 ": 72 * time.Hour, "024": 24 * time.Hour, "2562047": 2562047 * time.Hour,
	} {
		t.Setenv(ttlVariable, text)
		ttl, err := idempotency.TTLHours(ttlVariable)
		require.NoError(t, err, "%q", text)
		require.Equal(t, want, ttl, "%q", text)
	}
}

func TestBadTTLIsRefusedInWordsThatHelp(t *testing.T) {
	for text, want := range map[string]string{
		"0":                     `0 hours are too few; write 1 or more, or unset it for 24`,
		"-3":                    `-3 hours are too few; write 1 or more, or unset it for 24`,
		"-99999999999999999999": `-99999999999999999999 hours are too few; write 1 or more, or unset it for 24`,
		"24h":                   `"24h" is no whole number of hours; write digits only, as in 24`,
		"1.5":                   `"1.5" is no whole number of hours; write digits only, as in 24`,
		"one\nday":              `"one\nday" is no whole number of hours; write digits only, as in 24`,
		"0x18":                  `"0x18" is no whole number of hours; write digits only, as in 24`,
		"2562048":               `2562048 hours are too many; write 2562047 at most`,
		"99999999999999999999":  `99999999999999999999 hours are too many; write 2562047 at most`,
	} {
		t.Setenv(ttlVariable, text)
		ttl, err := idempotency.TTLHours(ttlVariable)
		require.EqualError(t, err, "environment variable "+ttlVariable+": "+want)
		require.Zero(t, ttl)
	}
}
