// Package argtext reads what people write for times and keys, on a command line or in a query of the admin API, and
// finds what they may have meant by a name that there is not (suggest.go).
package argtext

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Time reads a time, or a duration before now. A time without a zone is UTC. Empty, and nothing else: the zero time.
func Time(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04",
		time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil && !at.IsZero() {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration like 2h nor a time like 2026-03-01T04:05:06Z", text)
}

// Key reads a message's key: text, or \x and hex digits.
func Key(text string) ([]byte, error) {
	if digits, ok := strings.CutPrefix(text, `\x`); ok {
		return hex.DecodeString(digits)
	}
	return []byte(text), nil
}
