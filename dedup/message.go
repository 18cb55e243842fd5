package dedup

import (
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/identity"
)

// Header is one header of a message.
type Header = identity.Header

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
	Reason identity.Reason
	// Sought says what was looked for in vain, or found and can't be used, where Reason is set; never what a message
	// holds.
	Sought string

	// Fingerprint stands for the message's content where copies are to be compared (see [identity.FingerprintMode]).
	// Nil where they are not.
	Fingerprint []byte

	Topic     string
	Partition int32
	Offset    int64
	// Timestamp is the broker's or the producer's, as the topic is configured, in milliseconds. It is in the years 1
	// to 9999, which JSON, Postgres and all languages can write, or zero: where the record has none, and where its
	// number is no such time.
	Timestamp time.Time
	// RawTimestamp is the record's number, milliseconds since 1970, where that is no time that Timestamp can be: a
	// producer wrote nanoseconds, say. Otherwise 0. The largest and the least int64 also stand for a number that an
	// earlier version did not keep, of a time too late or too early for Postgres.
	RawTimestamp int64
	// Key is nil for a null key, and empty for an empty one.
	Key []byte
	// Value is nil for a null value (a tombstone), and empty for an empty one.
	Value   []byte
	Headers []Header

	// Decoded is what the format of the topic has made of the value; see Body. Nil where it has made nothing of it.
	Decoded *Decoded
}

// Decoded is a value as JSON, or why there is none. It is never stored: what is stored is the value.
type Decoded struct {
	JSON []byte
	// Err says where the value is broken, or what is not known that is needed to read it; never what the value holds.
	Err error
}

// Body is the value as JSON: as it was decoded, by a schema of a registry, say, and else as it came, which may be
// anything. It is nil for a null value. The error says why the value can't be decoded; handlers return it as it is.
func (m *Message) Body() ([]byte, error) {
	if m.Decoded == nil {
		return m.Value, nil
	}
	return m.Decoded.JSON, m.Decoded.Err
}

// JSON is what the value was decoded to; nil: it was not.
func (m *Message) JSON() []byte {
	if m.Decoded == nil {
		return nil
	}
	return m.Decoded.JSON
}

// The numbers of a record's timestamp that are no time of the years 1 to 9999 lie outside of these. The first one
// itself is the zero time, which is none.
const (
	zeroTimestamp = -62135596800000
	endTimestamp  = 253402300800000
	noTimestamp   = -1 // Kafka's own word for none
)

// Stamp sets Timestamp and RawTimestamp from the number in a Kafka record: milliseconds since 1970, or -1 for none.
func (m *Message) Stamp(number int64) {
	m.Timestamp, m.RawTimestamp = time.Time{}, 0
	switch {
	case number == noTimestamp:
	case number > zeroTimestamp && number < endTimestamp:
		m.Timestamp = time.UnixMilli(number)
	default:
		m.RawTimestamp = number
	}
}

// stored is the message's timestamp as Postgres keeps it: as a time or as a number, and as neither where both are
// zero.
func (m *Message) stored() (at time.Time, number int64) {
	switch seconds := m.Timestamp.Unix(); {
	case m.Timestamp.IsZero():
		return m.Timestamp, m.RawTimestamp
	case seconds < math.MinInt64/1000:
		return time.Time{}, math.MinInt64
	case seconds > math.MaxInt64/1000:
		return time.Time{}, math.MaxInt64
	case seconds < zeroTimestamp/1000, seconds >= endTimestamp/1000:
		return time.Time{}, m.Timestamp.UnixMilli()
	}
	return m.Timestamp, 0
}

// Identify sets the message's ID, RawID, Reason and Sought, as the rule finds them in the rest of it: see
// [identity.Rule.Find].
func (m *Message) Identify(by *identity.Rule, topicID uuid.UUID) {
	record := identity.Record{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset,
		Key: m.Key, Value: m.Value, Headers: m.Headers}
	if m.Decoded != nil {
		record.JSON, record.Undecoded = m.Decoded.JSON, m.Decoded.Err
	}
	found := by.Find(&record, topicID)
	m.ID, m.RawID, m.Reason, m.Sought = found.ID, found.RawID, found.Reason, found.Sought
}

// Refuse marks a message as one without a usable ID: it goes to the dead letters, under the ID of its position.
func (m *Message) Refuse(reason identity.Reason, topicID uuid.UUID) {
	m.ID, m.RawID, m.Reason = identity.OfPosition(m.Topic, m.Partition, m.Offset, topicID), "", reason
}

// Header is the value of the first header of that name, as it came; nil: there is none, or it is null. Names are
// case-sensitive.
func (m *Message) Header(name string) []byte {
	for i := range m.Headers {
		if m.Headers[i].Key == name {
			return m.Headers[i].Value
		}
	}
	return nil
}

// Place names the message as logs do: topic/partition@offset.
func (m *Message) Place() string { return fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset) }

// Size is the number of bytes of the message's key, value and headers, and of what the value was decoded to.
func (m *Message) Size() int {
	n := len(m.Key) + len(m.Value) + len(m.JSON())
	for _, h := range m.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
