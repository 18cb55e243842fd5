package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/firstseen/firstseen/cmd/internal/httpjson"
)

// pretty is a value for people, on lines of its own, and what it is.
func pretty(value []byte) (text, kind string) {
	size := counted(len(value), "byte")
	switch {
	case value == nil:
		return "", "null (a tombstone)"
	case len(value) == 0:
		return "", `"" (empty)`
	}
	var indented bytes.Buffer
	if utf8.Valid(value) && canIndent(value) && json.Indent(&indented, bytes.TrimSpace(value), "", "  ") == nil {
		return withNewline(visible(indented.String())), size + ", JSON"
	}
	if isPlain(value) {
		return withNewline(visible(string(value))), size + ", text"
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

// visible keeps what comes from a message from steering the terminal.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\r' || (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) && !isLayout(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// shown is a key or a header's value on one line: null, text in quotes, or hex digits.
func shown(value []byte) string {
	switch {
	case value == nil:
		return "null"
	case isPlain(value):
		return strconv.Quote(string(value))
	}
	return `\x` + hex.EncodeToString(value)
}

func quotedUnlessEmpty(text string) string {
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}

func printJSON(out io.Writer, v any) error {
	text, err := httpjson.Marshal(v, "  ")
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

func mapped[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}
