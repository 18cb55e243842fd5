package identity

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// This file walks over JSON text in place. Only isJSON takes any bytes; everything else is called on
// text that isJSON has passed and so checks nothing again.

// maxJSONDepth bounds the nesting of payloads that are looked into, and with it all recursion.
const maxJSONDepth = 512

// isJSON reports whether b is one JSON value and not nested too deep. Invalid UTF-8 inside strings is
// let pass here: whoever uses a string checks it.
func isJSON(b []byte) bool {
	return json.Valid(b) && depth(b) <= maxJSONDepth
}

func depth(b []byte) int {
	level, deepest := 0, 0
	for i := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			level++
			deepest = max(deepest, level)
		case '}', ']':
			level--
		}
		i++
	}
	return deepest
}

// skipSpace returns the index of the next byte that is no white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && isJSONSpace(b[i]) {
		i++
	}
	return i
}

func isJSONSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r'
}

// skipString returns the index behind the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipValue returns the index behind the value that begins at i.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	for i < len(b) && !isJSONSpace(b[i]) && b[i] != ',' && b[i] != ']' && b[i] != '}' {
		i++
	}
	return i
}

func skipNested(b []byte, i int) int {
	for level := 0; ; {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			level++
		case '}', ']':
			level--
		}
		i++
		if level == 0 {
			return i
		}
	}
}

// nextMember returns an object's next key, in its quotes, and the index where its value begins. i is
// behind the opening brace or the last value. The key is nil at the object's end; the index is then
// behind the closing brace.
func nextMember(b []byte, i int) (key []byte, value int) {
	i = skipSpace(b, i)
	if b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	if b[i] == '}' {
		return nil, i + 1
	}
	end := skipString(b, i)
	colon := skipSpace(b, end)
	return b[i:end], skipSpace(b, colon+1)
}

// nextElement returns where an array's next element begins. i is behind the opening bracket or the
// last element. At the array's end ok is false and the index is behind the closing bracket.
func nextElement(b []byte, i int) (value int, ok bool) {
	i = skipSpace(b, i)
	if b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	if b[i] == ']' {
		return i + 1, false
	}
	return i, true
}

// nextRune decodes the character at i of a string's inside, and its length there. A surrogate escape
// without its partner is returned as the surrogate it is, so that no two strings decode to the same.
func nextRune(s []byte, i int) (r rune, n int) {
	if s[i] != '\\' {
		return utf8.DecodeRune(s[i:])
	}
	switch s[i+1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		return nextEscape(s, i)
	}
	return rune(s[i+1]), 2 // a quote, slash or backslash stands for itself
}

func nextEscape(s []byte, i int) (r rune, n int) {
	r = hexRune(s[i+2 : i+6])
	if utf16.IsSurrogate(r) && len(s) >= i+12 && s[i+6] == '\\' && s[i+7] == 'u' {
		if pair := utf16.DecodeRune(r, hexRune(s[i+8:i+12])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

func hexRune(digits []byte) (r rune) {
	for _, c := range digits {
		switch {
		case c >= 'a':
			c -= 'a' - 10
		case c >= 'A':
			c -= 'A' - 10
		default:
			c -= '0'
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unescape decodes the inside of a string: the same bytes where it has no escapes, else a copy. A lone
// surrogate becomes the three bytes that UTF-8 would have for it, which are not valid UTF-8.
func unescape(s []byte) []byte {
	if !hasEscape(s) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		r, n := nextRune(s, i)
		switch {
		case s[i] != '\\':
			out = append(out, s[i:i+n]...)
		case utf16.IsSurrogate(r):
			out = append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
		default:
			out = utf8.AppendRune(out, r)
		}
		i += n
	}
	return out
}

func hasEscape(s []byte) bool {
	return bytes.IndexByte(s, '\\') >= 0
}
