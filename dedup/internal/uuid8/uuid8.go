// Package uuid8 derives IDs from what they stand for.
package uuid8

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"
)

// The domains of derived IDs. A domain is the first thing that is hashed, so IDs of two domains never
// meet. IDs live for ever in message_dedup: a domain's input format never changes, a new one gets
// a new name.
const (
	Text       = "firstseen/text/1"
	CloudEvent = "firstseen/cloudevent/1"
	Position   = "firstseen/position/1"
	Payload    = "firstseen/payload/1"
	Fields     = "firstseen/fields/1"
	Key        = "firstseen/key/1"
	Lane       = "firstseen/lane/1"
)

// New is the version-8 UUID (RFC 9562, section 5.8) of a domain and its parts: the first 16 bytes
// of SHA-256 over the domain and each part, all preceded by their length as 8 big-endian bytes, with
// the version and variant bits set. The lengths make the hashed text unique to the list of parts.
func New(domain string, parts ...[]byte) uuid.UUID {
	buf := make([]byte, 0, 256)
	buf = appendSized(buf, domain)
	for _, p := range parts {
		buf = appendSized(buf, p)
	}
	sum := sha256.Sum256(buf)
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}

func appendSized[T string | []byte](dst []byte, part T) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(part)))
	return append(dst, part...)
}
