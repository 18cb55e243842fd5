package identity

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const canonicalID = "0190b5e2-7c1a-7def-8123-456789abcdef"

func TestUUIDSpellingsAreOneUUID(t *testing.T) {
	for _, text := range uuidSpellings(canonicalID) {
		id, ok := parseUUID([]byte(text))
		require.True(t, ok, text)
		assert.Equal(t, canonicalID, id.String())
	}
}

func uuidSpellings(canonical string) []string {
	upper := strings.ToUpper(canonical)
	plain := strings.ReplaceAll(canonical, "-", "")
	return []string{
		canonical, upper, plain, strings.ToUpper(plain), "{" + canonical + "}", "{" + upper + "}",
		"urn:uuid:" + canonical, "URN:UUID:" + upper, "Urn:Uuid:" + canonical,
	}
}

func TestUUIDLookalikesAreNoUUIDs(t *testing.T) {
	plain := strings.ReplaceAll(canonicalID, "-", "")
	for _, text := range []string{
		"", "x" + canonicalID + "x", "(" + canonicalID + ")", "}" + canonicalID + "{",
		"{" + canonicalID, "{" + canonicalID + " ",
		"{" + plain + "}", "urn:uuid:" + plain, "uuid:" + canonicalID, "urn:uuid-" + canonicalID, canonicalID + "\n",
		"0190b5e27-c1a-7def-8123-456789abcdef",
		"0190b5e2-7c1a-7def-8123-456789abcdeg", strings.ReplaceAll(canonicalID, "-", "_"),
		"0190b5e2-7c1a-7def-8123-456789abcde",
		"0190b5e2--c1a-7def-8123-456789abcdef", plain[:31] + "-", "urn:uuıd:" + canonicalID[:35],
	} {
		_, ok := parseUUID([]byte(text))
		assert.False(t, ok, text)
	}
}

func FuzzParseUUID(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := parseUUID([]byte(text))
		if !ok {
			return
		}
		want, err := uuid.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, id)
		require.Contains(t, uuidSpellings(id.String()), strings.ToLower(text))
	})
}
