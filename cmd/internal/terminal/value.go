package terminal

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Value is a value for people, on lines of its own, and what it is.
func Value(value []byte) (text, kind string) {
	size := Count(len(value), "byte")
	switch {
	case value == nil:
		return "", "null (a tombstone)"
	case len(value) == 0:
		return "", `"" (empty)`
	}
	var indented bytes.Buffer
	if utf8.Valid(value) && canIndent(value) && json.Indent(&indented, bytes.TrimSpace(value), "", "  ") == nil {
		return withNewline(Visible(indented.String())), size + ", JSON"
	}
	if isPlain(value) {
		return withNewline(Visible(string(value))), size + ", text"
	}
	return hex.Dump(value), size
}

// canIndent says whether JSON stays of about its size where it is indented. What is nested deeply grows with the
// square of it.
func canIndent(value []byte) bool {
	left := 64<<10 + 8*len(value)
	depth, quoted, escaped := 0, false, false
	for _, c := range value {
		switch {
		case quoted:
			quoted = escaped || c != '"'
			escaped = !escaped && c == '\\'
			continue
		case c == '"':
			quoted = true
			continue
		case c == '[', c == '{':
			depth++
		case c == ']', c == '}':
			depth--
		case c != ',':
			continue
		}
		if left -= 2 * depth; left < 0 {
			return false
		}
	}
	return true
}

func withNewline(text string) string { return strings.TrimSuffix(text, "\n") + "\n" }

// isPlain says that bytes can be read as text.
func isPlain(value []byte) bool {
	return utf8.Valid(value) && !bytes.ContainsFunc(value, func(r rune) bool {
		return unicode.IsControl(r) &&
			!isLayout(r)
	})
}

func isLayout(r rune) bool { return r == '\n' || r == '\r' || r == '\t' }

// Inline is a key or a header's value on one line: null, text in quotes, or hex digits.
func Inline(value []byte) string {
	switch {
	case value == nil:
		return "null"
	case isPlain(value):
		return strconv.Quote(string(value))
	}
	return `\x` + hex.EncodeToString(value)
}
