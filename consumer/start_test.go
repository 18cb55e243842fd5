package consumer

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/internal/wire"
)

func TestStartOfAPartition(t *testing.T) {
	old, now := uuid.MustParse("00000000-0000-4000-8000-000000000001"),
		uuid.MustParse("00000000-0000-4000-8000-000000000002")
	const held = -99 // stands for a start that is refused
	for _, c := range []struct {
		name  string
		facts startFacts
		want  int64
		says  string // part of the warning or of the reason to hold; empty: says nothing
	}{
		{"new partition of a known topic", startFacts{}, wire.EarliestOffset, ""},
		{"commit without a position", startFacts{hasCommit: true, committed: wire.Reading{Offset: 7}},
			wire.EarliestOffset, "Postgres lost it"},
		{"commit at the first offset without a position",
			startFacts{hasCommit: true}, wire.EarliestOffset, "Postgres lost it"},

		{"position only", startFacts{hasPosition: true, position: wire.Reading{Offset: 5}}, 5, ""},
		{"position at the first offset only", startFacts{hasPosition: true}, 0, ""},

		{"commit at the position", startFacts{hasPosition: true, position: wire.Reading{Offset: 5}, hasCommit: true,
			committed: wire.Reading{Offset: 5}}, 5, ""},
		{"commit behind the position", startFacts{hasPosition: true, position: wire.Reading{Offset: 5},
			hasCommit: true, committed: wire.Reading{Offset: 3}}, 3, ""},
		{"commit ahead of the position", startFacts{hasPosition: true, position: wire.Reading{Offset: 5},
			hasCommit: true, committed: wire.Reading{Offset: 8}}, 5,
			"position in Postgres, 5, is behind the committed offset, 8"},
		{"commit ahead of the position and trusted", startFacts{hasPosition: true, position: wire.Reading{Offset: 5},
			hasCommit: true, committed: wire.Reading{Offset: 8}, onPostgresBehind: Committed}, 8, "SKIPPING 5 to 7"},
		{"commit behind the position and trusted", startFacts{hasPosition: true, position: wire.Reading{Offset: 5},
			hasCommit: true, committed: wire.Reading{Offset: 3}, onPostgresBehind: Committed}, 3, ""},

		{"same topic",
			startFacts{hasPosition: true, position: wire.Reading{Offset: 5}, positionID: now, topicID: now}, 5, ""},
		{"topic made anew", startFacts{hasPosition: true, position: wire.Reading{Offset: 5}, positionID: old,
			topicID: now}, held, "was " + old.String() + " and is " + now.String()},
		{"topic made anew, commit at its position", startFacts{hasPosition: true, position: wire.Reading{Offset: 5},
			hasCommit: true, committed: wire.Reading{Offset: 5}, positionID: old, topicID: now}, held,
			"deleted and created again"},
		{"topic made anew, restart", startFacts{hasPosition: true, position: wire.Reading{Offset: 5}, positionID: old,
			topicID: now, onReset: Restart}, wire.EarliestOffset, "deleted and created again"},
		{"topic made anew, restart, commit ahead and trusted",
			startFacts{hasPosition: true, position: wire.Reading{Offset: 5}, hasCommit: true,
				committed: wire.Reading{Offset: 8}, positionID: old, topicID: now, onReset: Restart,
				onPostgresBehind: Committed}, wire.EarliestOffset, "deleted and created again"},
		{"position from before the broker had topic IDs",
			startFacts{hasPosition: true, position: wire.Reading{Offset: 5}, topicID: now}, 5, ""},
		{"broker without topic IDs",
			startFacts{hasPosition: true, position: wire.Reading{Offset: 5}, positionID: old}, 5, ""},
		{"position acquired and never set", startFacts{positionID: uuid.Nil, topicID: now}, wire.EarliestOffset, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.facts.decide()
			switch {
			case c.want == held:
				require.ErrorContains(t, got.hold, c.says)
				return
			case c.says == "":
				require.Empty(t, got.warn)
			}
			require.NoError(t, got.hold)
			require.Equal(t, c.want, got.offset)
			require.Contains(t, got.warn, c.says)
		})
	}
}

// What is asked for is the epoch of the start where it is known, and else that of the position above it.
func TestStartAsksForTheLogThatWasRead(t *testing.T) {
	known := func(offset int64, epoch int32) wire.Reading { return wire.Reading{Offset: offset, Epoch: &epoch} }
	for name, c := range map[string]struct {
		facts startFacts
		want  wire.Reading
	}{
		"new partition":           {startFacts{}, wire.Reading{}},
		"position without commit": {startFacts{hasPosition: true, position: known(5, 2)}, known(5, 2)},
		"commit at the position": {startFacts{hasPosition: true, position: known(5, 2),
			hasCommit: true, committed: known(5, 9)}, known(5, 2)},
		"commit behind the position": {startFacts{hasPosition: true, position: known(5, 2),
			hasCommit: true, committed: known(3, 1)}, known(3, 1)},
		"commit behind the position, without epoch": {startFacts{hasPosition: true, position: known(5, 2),
			hasCommit: true, committed: wire.Reading{Offset: 3}}, known(5, 2)},
		"commit ahead of the position": {startFacts{hasPosition: true, position: known(5, 2),
			hasCommit: true, committed: known(8, 3)}, known(5, 2)},
		"commit ahead of the position and trusted": {startFacts{hasPosition: true, position: known(5, 2),
			hasCommit: true, committed: known(8, 3), onPostgresBehind: Committed}, known(8, 3)},
		"commit without a position": {startFacts{hasCommit: true, committed: known(8, 3)}, wire.Reading{}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.facts.decide().read)
		})
	}
}
