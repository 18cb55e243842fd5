package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/firstseen/firstseen/dedup/internal/uuid8"
)

// pointer is a JSON pointer (RFC 6901) of one token or more.
type pointer struct {
	text   string
	tokens []string
}

var unescapeToken = strings.NewReplacer("~1", "/", "~0", "~")

func parsePointer(text string) (pointer, error) {
	if text == "" {
		return pointer{}, errors.New("the JSON pointer is missing")
	}
	if text[0] != '/' {
		return pointer{}, fmt.Errorf("the JSON pointer %q does not begin with a slash", text)
	}
	p := pointer{text: text}
	for token := range strings.SplitSeq(text[1:], "/") {
		if strings.Count(token, "~") != strings.Count(token, "~0")+strings.Count(token, "~1") {
			return pointer{}, fmt.Errorf("the JSON pointer %q has a ~ that is neither ~0 nor ~1", text)
		}
		p.tokens = append(p.tokens, unescapeToken.Replace(token))
	}
	return p, nil
}

// scalar is the text of the string or number that the pointer leads to in the payload. A number is
// its exact text. Null, absent and the empty string are all no text.
func (s *search) scalar(p pointer) ([]byte, Reason) {
	raw, reason := s.value(p)
	if reason != "" || raw == nil {
		return nil, reason
	}
	switch raw[0] {
	case '"':
		return trimText(unescape(raw[1 : len(raw)-1])), ""
	case 'n':
		return nil, ""
	case '{', '[', 't', 'f':
		return nil, ReasonIDNotScalar
	}
	return raw, ""
}

// fields hashes the values that the pointers lead to, each with its pointer. An absent one is the
// empty part, which no JSON value is. When none has a value there is nothing to tell messages apart: null and what is
// no ID are none.
func (s *search) fields(pointers []pointer) finding {
	parts := make([][]byte, 0, 2*len(pointers))
	empty := true
	for _, p := range pointers {
		raw, reason := s.value(p)
		if reason != "" {
			return finding{reason: reason}
		}
		var canonical []byte
		if raw != nil {
			canonical = canonicalJSON(raw)
			empty = empty && s.noIDs.isEmpty(canonical)
		}
		parts = append(parts, []byte(p.text), canonical)
	}
	if empty {
		return finding{reason: ReasonMissingID}
	}
	return finding{id: uuid8.New(uuid8.Fields, parts...)}
}

// isEmpty says that a canonical JSON value is null, or a text that is no ID.
func (n noIDs) isEmpty(canonical []byte) bool {
	if canonical[0] == '"' {
		return n.has(unescape(canonical[1 : len(canonical)-1]))
	}
	return string(canonical) == "null"
}

// IsFramed says that a payload may begin as Confluent's serializers have it: a zero, and the number of a schema in four
// bytes.
func IsFramed(value []byte) bool { return len(value) > 5 && value[0] == 0 }

// Framing says, of a payload that IsFramed, what it looks like, and that nobody has decoded it.
func Framing(value []byte) string {
	return fmt.Sprintf("it starts as Confluent framing does, schema ID %d, and no registry is configured for it",
		binary.BigEndian.Uint32(value[1:]))
}

// json is the text that pointers lead into.
func (m *Record) json() []byte {
	if m.JSON != nil {
		return m.JSON
	}
	return m.Value
}

// whyNoJSON says more of a payload in which nothing could be looked for.
func (m *Record) whyNoJSON() string {
	switch {
	case m.Undecoded != nil:
		return "; " + m.Undecoded.Error()
	case m.JSON == nil && IsFramed(m.Value):
		return "; " + Framing(m.Value)
	}
	return ""
}

// value is the JSON text that the pointer leads to in the payload, nil where that is nothing.
func (s *search) value(p pointer) ([]byte, Reason) {
	if s.m.Value == nil {
		return nil, ReasonMissingID
	}
	text := s.m.json()
	if !s.json.known {
		s.json.known, s.json.valid = true, s.m.Undecoded == nil && isJSON(text)
	}
	switch {
	case !s.json.valid && IsFramed(s.m.Value):
		return nil, ReasonFramed
	case !s.json.valid:
		return nil, ReasonNotJSON
	}
	raw, reason := p.find(text)
	if !utf8.Valid(raw) {
		return nil, ReasonNotJSON
	}
	return raw, reason
}

// find follows the pointer through JSON text. It decodes nothing but keys with escapes in them.
func (p pointer) find(b []byte) ([]byte, Reason) {
	at := skipSpace(b, 0)
	for _, token := range p.tokens {
		next, reason := -1, Reason("")
		switch b[at] {
		case '{':
			next, reason = findMember(b, at, token)
		case '[':
			next = findElement(b, at, token)
		}
		if next < 0 {
			return nil, reason
		}
		at = next
	}
	return b[at:skipValue(b, at)], ""
}

// findMember returns where the value of an object's key begins, or -1.
func findMember(b []byte, object int, key string) (int, Reason) {
	found := -1
	for i := object + 1; ; {
		quoted, value := nextMember(b, i)
		if quoted == nil {
			return found, ""
		}
		if string(unescape(quoted[1:len(quoted)-1])) == key {
			if found >= 0 {
				return -1, ReasonAmbiguousID
			}
			found = value
		}
		i = skipValue(b, value)
	}
}

// findElement returns where an array's element begins, or -1. An index has no leading zeros.
func findElement(b []byte, array int, index string) int {
	n, err := strconv.Atoi(index)
	if err != nil || n < 0 || strconv.Itoa(n) != index {
		return -1
	}
	for i := array + 1; ; n-- {
		value, ok := nextElement(b, i)
		if !ok {
			return -1
		}
		if n == 0 {
			return value
		}
		i = skipValue(b, value)
	}
}
