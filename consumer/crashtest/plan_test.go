package crashtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func sampleOf(n, keys int) (ms []Message) {
	for i := range n {
		ms = append(ms, Message{Topic: []string{"a", "b"}[i%2], Key: fmt.Appendf(nil, "key-%d", i%keys)})
	}
	return ms
}

func TestPlanHasAsManyFaultsAsAreAskedForAndIsTheSameForASeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Config{Messages: sampleOf(rapid.IntRange(1, 60).Draw(t, "messages"), 3), Seed: rapid.Uint64().Draw(t, "seed"),
			Faults: rapid.IntRange(1, 200).Draw(t, "faults"), Partitions: rapid.IntRange(1, 4).Draw(t, "partitions")}
		plans, faults := plan(c), 0
		for i, p := range plans {
			require.Equal(t, i+1, p.number)
			require.LessOrEqual(t, len(p.faults), mostFaults)
			faults += len(p.faults)
			require.False(t, p.shuffled && c.Partitions == 1)
		}
		require.Equal(t, c.Faults, faults)
		require.Equal(t, plans, plan(c))
	})
}

func TestFirstFaultsOfAPlanAreOneOfEachKind(t *testing.T) {
	var met []kind
	for _, p := range plan(&Config{Messages: sampleOf(40, 3), Faults: len(kinds), Partitions: 4}) {
		met = append(met, p.faults...)
	}
	require.Equal(t, kinds, met)
}

// The messages of a key have one partition, and keep their order, whatever else is mixed; a copy follows its message.
func TestLogKeepsTheOrderOfEachKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Config{Messages: sampleOf(rapid.IntRange(1, 60).Draw(t, "messages"), rapid.IntRange(1, 9).Draw(t, "keys")),
			Partitions: rapid.IntRange(1, 5).Draw(t, "partitions"), Positions: []string{"b"}}
		p := planned{shuffled: true, copies: true}
		log := p.log(c, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		last, partition, seen := map[string]int{}, map[string]int32{}, map[int]bool{}
		for _, s := range log {
			m := c.Messages[s.of]
			where := m.Topic + string(m.Key)
			if p, known := partition[where]; known {
				require.Equal(t, p, s.partition)
			}
			partition[where] = s.partition
			if s.copy {
				require.True(t, seen[s.of], "a copy before its message")
				require.Equal(t, "a", m.Topic, "a copy of what is known by its position")
				continue
			}
			require.False(t, seen[s.of])
			if before, known := last[where]; known {
				require.Less(t, before, s.of)
			}
			last[where], seen[s.of] = s.of, true
		}
		require.Len(t, seen, len(c.Messages))
	})
}

func TestMixedRunHasAnotherOrderAcrossKeys(t *testing.T) {
	c := &Config{Messages: sampleOf(40, 8), Partitions: 4}
	p := planned{shuffled: true}
	log := p.log(c, rand.New(rand.NewPCG(1, 0)))
	require.False(t, slices.IsSortedFunc(log, func(a, b sending) int { return a.of - b.of }))
}
