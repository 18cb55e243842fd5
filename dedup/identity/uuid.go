package identity

import (
	"encoding/hex"

	"github.com/google/uuid"
)

const urnPrefix = "urn:uuid:"

// parseUUID reads a UUID in one of its spellings: 8-4-4-4-12 hex digits in either case, alone, in
// braces or after urn:uuid:, or 32 hex digits. It is stricter than uuid.Parse, which takes any
// character for a brace, because every text that is let in here stands for the same message.
func parseUUID(text []byte) (id uuid.UUID, ok bool) {
	switch len(text) {
	case 32:
		_, err := hex.Decode(id[:], text)
		return id, err == nil
	case 36:
		return parseDashed(text)
	case 38:
		if text[0] != '{' || text[37] != '}' {
			return id, false
		}
		return parseDashed(text[1:37])
	case len(urnPrefix) + 36:
		if !equalFoldASCII(text[:len(urnPrefix)], urnPrefix) {
			return id, false
		}
		return parseDashed(text[len(urnPrefix):])
	}
	return id, false
}

func parseDashed(text []byte) (id uuid.UUID, ok bool) {
	if text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, false
	}
	var digits [32]byte
	n := copy(digits[:], text[:8])
	n += copy(digits[n:], text[9:13])
	n += copy(digits[n:], text[14:18])
	n += copy(digits[n:], text[19:23])
	copy(digits[n:], text[24:])
	_, err := hex.Decode(id[:], digits[:])
	return id, err == nil
}

// equalFoldASCII reports whether text is want in any case; want is lower case. It does not fold
// beyond ASCII, where the Kelvin sign would be a k.
func equalFoldASCII(text []byte, want string) bool {
	if len(text) != len(want) {
		return false
	}
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != want[i] {
			return false
		}
	}
	return true
}
