package dedup

import (
	"time"

	"github.com/google/uuid"
)

// Header is one header of a message. Repeated keys are allowed and keep their order; a nil Value is
// a null value and an empty one is an empty value.
type Header struct {
	Key   string
	Value []byte
}

// Message is one message of a topic, byte for byte as the broker delivered it, with the identity
// that was found for it. Its slices are shared with the batch that it came in: a handler that keeps
// one beyond its call copies it.
type Message struct {
	// ID is the message's identity, the one thing that deduplication looks at (with the scope).
	ID uuid.UUID
	// RawID is the ID's text as the producer wrote it, where that was not a UUID. Otherwise empty.
	RawID string
	// Tenant separates the IDs of tenants that share a topic. Empty where there is one only.
	Tenant string
	// Reason says why no usable ID was found. Where it is set the message is dead-lettered under the
	// ID of its position and no handler sees it. Empty for every message that a handler gets.
	Reason Reason

	// Fingerprint stands for the message's content where copies are to be compared (see [FingerprintMode]). Nil
	// where they are not.
	Fingerprint []byte

	Topic     string
	Partition int32
	Offset    int64
	// Timestamp is the broker's or the producer's, as the topic is configured.
	Timestamp time.Time
	// Key is nil for a null key, and empty for an empty one.
	Key []byte
	// Value is nil for a null value (a tombstone), and empty for an empty one.
	Value   []byte
	Headers []Header
}

// Size is the number of bytes of the message's key, value and headers.
func (m *Message) Size() int {
	n := len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
