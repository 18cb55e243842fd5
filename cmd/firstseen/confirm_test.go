package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestOnlyTheNumberConfirms(t *testing.T) {
	for typed, want := range map[string]error{"12\n": nil, " 12 ": nil, "": errNotConfirmed, "\n": errNotConfirmed,
		"y\n": errNotConfirmed, "1\n": errNotConfirmed, "12 13\n": errNotConfirmed} {
		require.Equal(t, want, askFor(strings.NewReader(typed), io.Discard, 12, "12 messages go"), typed)
	}
}

// Each is refused without --yes where nobody can be asked, says what would be done, and changes nothing.
func TestWhatCantBeTakenBackAsks(t *testing.T) {
	o := newOffice(t)
	o.add("dead", dedup.Dead, dedup.Message{})
	o.add("done", dedup.Processed, dedup.Message{})
	for want, args := range map[string][]string{
		"1 dead letter will be forgotten for good": {"dead", "discard", "--id", "dead", "--why", "x"},
		"takes effect a second time":               {"rerun", "--handler", "book", "--id", "done", "--why", "x"},
	} {
		_, stderr := o.run(exitUsage, args...)
		require.Contains(t, stderr, want)
		require.Contains(t, stderr, "--yes")
	}
	require.Equal(t, 1, o.count(`select count(*) from firstseen.dead_letters`))
	require.Zero(t, o.count(`select count(*) from firstseen.parked`))
	require.Zero(t, o.count(`select count(*) from firstseen.audit`))
}
