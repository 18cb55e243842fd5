package dedup

import (
	"bytes"
	"encoding/hex"
	"unicode/utf8"

	"github.com/google/uuid"
)

// headerText is the ID text of the header of this name. Empty ones are missing; others that are
// repeated must agree.
func headerText(headers []Header, name string) (text []byte, reason Reason) {
	for i := range headers {
		if headers[i].Key != name {
			continue
		}
		next := trimText(headers[i].Value)
		if len(next) == 0 {
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
	x, xok := parseUUID(a)
	y, yok := parseUUID(b)
	return xok && yok && x == y
}

// textID is the ID that a trimmed text stands for, unless there is a reason already.
func textID(text []byte, reason Reason) finding {
	if reason != "" {
		return finding{reason: reason}
	}
	if id, ok := parseUUID(text); ok && !isNil(id) {
		return finding{id: id}
	}
	if reason = checkText(text); reason != "" {
		return finding{reason: reason}
	}
	return finding{id: derive(domainText, text), raw: storable(text)}
}

func checkText(text []byte) Reason {
	if len(text) == 0 {
		return ReasonMissingID
	}
	if len(text) > MaxIDBytes {
		return ReasonIDTooLong
	}
	if id, ok := parseUUID(text); ok && isNil(id) {
		return ReasonNilID
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
