package identity

import (
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/internal/uuid8"
)

// KeyOf is a message ID that a producer can work out again: the same tenant, category, entity, kind and
// version always give the same ID, so an event that is published twice takes effect once. Say
// KeyOf("acme", "orders", "o-17", "shipped", 3). Any string may be empty and hold any bytes, and no
// two different lists of inputs give the same ID, save for a collision of SHA-256 cut to 122 bits.
//
// The ID is a version-8 UUID (RFC 9562, section 5.8), and other languages can make it: SHA-256 over
// the six parts "firstseen/key/1", tenant, category, entity, kind and the version as 8 big-endian
// bytes, each part preceded by its length in bytes as 8 big-endian bytes; of that the first 16
// bytes, with the upper four bits of byte 6 set to 1000 and the upper two bits of byte 8 to 10.
//
// These IDs are not ordered by time. Where a producer stores the ID with its event anyway, a UUIDv7
// is cheaper to deduplicate.
func KeyOf(tenant, category, entity, kind string, version int64) uuid.UUID {
	var v [8]byte
	binary.BigEndian.PutUint64(v[:], uint64(version))
	return uuid8.New(uuid8.Key, []byte(tenant), []byte(category), []byte(entity), []byte(kind), v[:])
}
