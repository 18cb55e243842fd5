package identity

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf16"
)

// canonicalJSON is the one text that all spellings of a JSON value share. It follows RFC 8785: no white
// space, object keys in the order of their UTF-16 code units, one escape per character. It departs from
// it where exactness asks for it: numbers are decimals of any size (appendNumber), a lone surrogate
// keeps its escape, and a repeated key keeps all its values in their order. b has passed isJSON and is
// valid UTF-8.
func canonicalJSON(b []byte) []byte {
	out, _ := appendCanonical(make([]byte, 0, len(b)), b, skipSpace(b, 0))
	return out
}

// appendCanonical appends the value that begins at i, and returns the index behind it.
func appendCanonical(dst, b []byte, i int) ([]byte, int) {
	switch b[i] {
	case '{':
		return appendObject(dst, b, i)
	case '[':
		return appendArray(dst, b, i)
	}
	end := skipValue(b, i)
	switch token := b[i:end]; token[0] {
	case '"':
		return appendString(dst, token), end
	case 't', 'f', 'n':
		return append(dst, token...), end
	default:
		return appendNumber(dst, token), end
	}
}

func appendArray(dst, b []byte, i int) ([]byte, int) {
	dst = append(dst, '[')
	i++
	for n := 0; ; n++ {
		value, ok := nextElement(b, i)
		if !ok {
			return append(dst, ']'), value
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		dst, i = appendCanonical(dst, b, value)
	}
}

// member is one member of an object: its key for sorting and where its canonical text is.
type member struct {
	key        []uint16
	start, end int
}

func appendObject(dst, b []byte, i int) ([]byte, int) {
	dst = append(dst, '{')
	start := len(dst)
	var members []member
	for i++; ; {
		key, value := nextMember(b, i)
		if key == nil {
			i = value
			break
		}
		m := member{key: codeUnits(key[1 : len(key)-1]), start: len(dst)}
		dst = append(appendString(dst, key), ':')
		dst, i = appendCanonical(dst, b, value)
		m.end = len(dst)
		dst = append(dst, ',')
		members = append(members, m)
	}
	dst = sortMembers(dst, start, members)
	return append(dst, '}'), i
}

// sortMembers puts the members that were appended from start on into order, and takes off the last comma.
func sortMembers(dst []byte, start int, members []member) []byte {
	if len(members) == 0 {
		return dst
	}
	byKey := func(x, y member) int { return slices.Compare(x.key, y.key) }
	if slices.IsSortedFunc(members, byKey) {
		return dst[:len(dst)-1]
	}
	unsorted := bytes.Clone(dst[start:])
	slices.SortStableFunc(members, byKey)
	dst = dst[:start]
	for _, m := range members {
		dst = append(append(dst, unsorted[m.start-start:m.end-start]...), ',')
	}
	return dst[:len(dst)-1]
}

// codeUnits is the UTF-16 of a string's inside.
func codeUnits(s []byte) []uint16 {
	units := make([]uint16, 0, len(s))
	for i := 0; i < len(s); {
		r, n := nextRune(s, i)
		if r > 0xffff {
			high, low := utf16.EncodeRune(r)
			units = append(units, uint16(high), uint16(low))
		} else {
			units = append(units, uint16(r))
		}
		i += n
	}
	return units
}

// appendString appends a quoted string with the escapes of RFC 8785, section 3.2.2.2.
func appendString(dst, quoted []byte) []byte {
	s := quoted[1 : len(quoted)-1]
	if !hasEscape(s) {
		return append(dst, quoted...)
	}
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		r, n := nextRune(s, i)
		if s[i] == '\\' {
			dst = appendEscaped(dst, r)
		} else {
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return append(dst, '"')
}

func appendEscaped(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\t':
		return append(dst, `\t`...)
	case '\n':
		return append(dst, `\n`...)
	case '\f':
		return append(dst, `\f`...)
	case '\r':
		return append(dst, `\r`...)
	}
	if r >= ' ' && !utf16.IsSurrogate(r) {
		return append(dst, string(r)...)
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', digits[r>>12], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// appendNumber appends a number as its digits without zeros at either end, and its power of ten where
// that is not 0: 1, 1.0 and 10e-1 are 1, 0.05 is 5e-2. Nothing is ever multiplied out, so an exponent
// costs its own digits only. One of more than 18 digits is not added to, and its number keeps its text.
func appendNumber(dst, token []byte) []byte {
	mantissa, exponentText := cutExponent(token)
	begin := len(dst)
	if mantissa[0] == '-' {
		dst, mantissa = append(dst, '-'), mantissa[1:]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	first := len(dst)
	dst = append(append(dst, whole...), fraction...)
	digits := bytes.TrimLeft(dst[first:], "0")
	if len(digits) == 0 {
		return append(dst[:begin], '0')
	}
	significant := bytes.TrimRight(digits, "0")
	exponent, ok := smallExponent(exponentText)
	if !ok {
		return append(dst[:begin], token...)
	}
	exponent += int64(len(digits) - len(significant) - len(fraction))
	dst = append(dst[:first], significant...)
	if exponent != 0 {
		dst = strconv.AppendInt(append(dst, 'e'), exponent, 10)
	}
	return dst
}

func cutExponent(token []byte) (mantissa, exponent []byte) {
	if e := bytes.IndexAny(token, "eE"); e >= 0 {
		return token[:e], token[e+1:]
	}
	return token, nil
}

// smallExponent reads an exponent of up to 18 digits, leading zeros aside.
func smallExponent(text []byte) (int64, bool) {
	unsigned, negative := bytes.CutPrefix(text, []byte("-"))
	digits := bytes.TrimLeft(bytes.TrimPrefix(unsigned, []byte("+")), "0")
	if len(digits) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}
