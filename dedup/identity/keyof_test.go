package identity

import (
	"math"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// Producers and message_dedup keep these for ever: none of them may change.
func TestKeyOfGoldenIDs(t *testing.T) {
	for want, got := range map[string]uuid.UUID{
		"b2012cb8-8db6-8d93-9c65-42d9f0d6575c": KeyOf("", "", "", "", 0),
		"c186fd39-45fc-853b-8cd1-026a3a928979": KeyOf("acme", "orders", "o-17", "shipped", 3),
		"5b75e770-7541-8b92-a0ef-90332b43536d": KeyOf("a\x00b", "é", "\xff", " ", math.MinInt64),
		"455135c1-cc85-8a09-8ce4-308d3286bc66": KeyOf("", "", "", "", -1),
	} {
		assert.Equal(t, want, got.String())
	}
}

func TestKeyOfIsVersion8(t *testing.T) {
	id := KeyOf("acme", "orders", "o-17", "shipped", 3)
	assert.EqualValues(t, 8, id.Version())
	assert.Equal(t, uuid.RFC4122, id.Variant())
}

func TestKeyOfDifferentInputsNeverMeet(t *testing.T) {
	type input struct {
		parts   [4]string
		version int64
	}
	part := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00")), 0, 3, -1)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (in input, id uuid.UUID) {
			for i := range in.parts {
				in.parts[i] = part.Draw(t, label)
			}
			in.version = rapid.Int64Range(-2, 2).Draw(t, label)
			return in, KeyOf(in.parts[0], in.parts[1], in.parts[2], in.parts[3], in.version)
		}
		x, xid := draw("x")
		y, yid := draw("y")
		assert.Equal(t, x == y, xid == yid)
	})
	assert.NotEqual(t, KeyOf("a", "bc", "", "", 0), KeyOf("ab", "c", "", "", 0))
	assert.NotEqual(t, KeyOf("a", "", "", "", 0), KeyOf("", "a", "", "", 0))
}
