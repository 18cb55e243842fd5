package identity

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/internal/uuid8"
)

// NoIDs are the texts that stand for no ID in practice: what programs write where they have none. Case does not
// count, nor white space and JSON's quotes around them.
var NoIDs = []string{"null", "(null)", "undefined", "none", "nil", "<nil>", "nan", "n/a"}

var defaultNoIDs noIDs = slices.Clone(NoIDs)

// noIDs are texts that are no ID.
type noIDs []string

// has says that a text has nothing in it that can be seen, or is one of the texts. What is binary may be a number:
// it is none where it is zeros.
func (n noIDs) has(text []byte) bool {
	if !isText(text) {
		return len(bytes.Trim(text, "\x00")) == 0
	}
	text = bare(text)
	if len(text) == 0 {
		return true
	}
	return slices.ContainsFunc(n, func(no string) bool {
		return len(no) == len(text) && strings.EqualFold(no, string(text))
	})
}

// bare takes off what can't be seen around a text, and JSON's quotes.
func bare(text []byte) []byte {
	text = bytes.TrimFunc(text, isUnseen)
	for len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		text = bytes.TrimFunc(text[1:len(text)-1], isUnseen)
	}
	return text
}

// isUnseen says that a character leaves no mark: NUL, white space, and what is of no width. The list is our own:
// Unicode's change between releases, and IDs must not.
func isUnseen(r rune) bool {
	switch {
	case r == 0, r < 0x80 && isSpace(byte(r)), 0x80 <= r && r <= 0xa0, r == 0xad, r == 0x34f, r == 0x61c,
		r == 0x115f, r == 0x1160, r == 0x1680, r == 0x180e,
		0x2000 <= r && r <= 0x200f, 0x2028 <= r && r <= 0x202f, 0x205f <= r && r <= 0x206f,
		r == 0x2800, r == 0x3000, r == 0x3164,
		0xfe00 <= r && r <= 0xfe0f, r == 0xfeff, r == 0xffa0:
		return true
	}
	return false
}

// readUUID reads a UUID in any of its spellings, and with what may be around it.
func readUUID(text []byte) (id uuid.UUID, ok bool) {
	if id, ok = parseUUID(text); ok {
		return id, true
	}
	return parseUUID(bare(text))
}

// header is the ID text of the header of this name. Those without one are missing; others that are repeated must
// agree.
func (n noIDs) header(headers []Header, name string) (text []byte, reason Reason) {
	for i := range headers {
		if headers[i].Key != name {
			continue
		}
		next := trimText(headers[i].Value)
		if n.has(next) {
			continue
		}
		if text != nil && !sameID(text, next) {
			return nil, ReasonAmbiguousID
		}
		text = next
	}
	return text, ""
}

func sameID(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, xok := readUUID(a)
	y, yok := readUUID(b)
	return xok && yok && x == y
}

// textID is the ID that a trimmed text stands for, unless there is a reason already.
func textID(text []byte, reason Reason) finding {
	if reason != "" {
		return finding{reason: reason}
	}
	if id, ok := readUUID(text); ok && !isNil(id) {
		return finding{id: id}
	}
	if reason = checkText(text); reason != "" {
		return finding{reason: reason}
	}
	return finding{id: uuid8.New(uuid8.Text, text), raw: storable(text)}
}

func checkText(text []byte) Reason {
	if len(text) == 0 {
		return ReasonMissingID
	}
	if id, ok := readUUID(text); ok && isNil(id) {
		return ReasonNilID
	}
	if len(text) > MaxIDBytes {
		return ReasonIDTooLong
	}
	return ""
}

func isNil(id uuid.UUID) bool { return id == uuid.Nil || id == uuid.Max }

// trimText takes the white space off a text, and leaves binary as it is.
func trimText(value []byte) []byte {
	trimmed := trimASCII(value)
	if len(trimmed) == len(value) || !isText(value) {
		return value
	}
	return trimmed
}

// trimASCII trims ASCII white space only: Unicode's list changes between releases, and IDs must not.
func trimASCII(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

func isSpace(c byte) bool {
	return c == ' ' || '\t' <= c && c <= '\r'
}

func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && !isSpace(c) || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(b)
}

// storable is text as a Postgres text column can hold it.
func storable(text []byte) string {
	if utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
		return string(text)
	}
	return `\x` + hex.EncodeToString(text)
}
