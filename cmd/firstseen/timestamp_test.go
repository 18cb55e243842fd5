package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestEveryCommandShowsATimestampThatIsNoTime(t *testing.T) {
	o := newOffice(t)
	var m dedup.Message
	m.Stamp(1764300000000000000)
	m.Value = []byte(`"\u009b31m"`)
	o.add("parked", dedup.Parked, m)
	o.add("done", dedup.Processed, m)
	o.add("dead", dedup.Dead, m)
	copied := m
	copied.Value = []byte("other")
	o.add("done", dedup.Processed, copied)

	for _, args := range [][]string{{"dead", "list"},
		{"dead", "show", "dead"}, {"inbox", "list", "--status", "processed"}, {"inbox", "list", "--status", "dead"},
		{"inbox", "list", "--status", "pending"}, {"inbox", "show", "parked"}, {"conflicts", "list"},
		{"conflicts", "show", "done"}, {"explain", "dead"}, {"explain", "done"}} {
		text, _ := o.run(exitOK, args...)
		if args[1] == "show" && args[0] != "conflicts" {
			require.Regexp(t,
				`produced +1764300000000000000, no time .*; in nanoseconds 2025-11-28 03:20:00.000 UTC`, text)
		}
		answer, _ := o.run(exitOK, append(args, "--json")...)
		require.True(t, json.Valid([]byte(answer)))
		require.NotContains(t, answer, "\u009b", "what comes from a message steers no terminal")
		if args[0] != "conflicts" || args[1] == "list" {
			require.Contains(t, answer, `"produced_at": null`)
		}
		require.Contains(t, answer, `"raw_timestamp": 1764300000000000000`)
	}
}
