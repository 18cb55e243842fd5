// Package identity says which message a message is: it finds the ID in a header, a CloudEvent, the payload, the key
// or the position, and makes one for producers ([KeyOf]). A [Record] enters a [Rule], and what was [Found] leaves
// it, or the [Reason] why there is no usable ID. A [FingerprintMode] tells contents apart. IDs are stored for ever,
// so what a text gives never changes. The package knows neither Postgres nor brokers.
//
// In reading order: rule.go (the search), named.go (of what comes with a key beside it), source.go (where to look),
// reason.go (why in vain), idtext.go (what a text stands for), uuid.go (its spellings), cloudevents.go,
// jsonpointer.go, jsontext.go and canonical.go (JSON in place), parseids.go (IDs as people write them), keyof.go,
// fingerprint.go.
package identity

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/internal/uuid8"
)

// MaxIDBytes is the longest ID that is taken, in bytes after trimming. For a CloudEvent it is the
// length of source and id together.
const MaxIDBytes = 1024

// Rule finds the IDs of a topic's messages. It is made by NewRule, does not change after
// that, and is safe for concurrent use.
type Rule struct {
	sources []Source
	noIDs   noIDs
	sought  string // made once for all messages that have no ID
}

// NewRule returns the Rule that asks these sources in this order. Without sources it is
// header:message-id, then header:id (the name that Debezium's outbox router writes). The error
// lists every fault at once: a zero source, a repeated one, one behind position, which always yields.
func NewRule(sources ...Source) (*Rule, error) {
	if len(sources) == 0 {
		sources = []Source{
			{kind: fromHeader, header: "message-id"},
			{kind: fromHeader, header: "id"},
		}
	}
	var faults []error
	seen := map[string]bool{}
	for i, s := range sources {
		switch text := s.String(); {
		case text == "":
			faults = append(faults, fmt.Errorf("identity source %d is empty; want %s", i+1, sourceForms))
		case seen[text]:
			faults = append(faults, fmt.Errorf("identity source %d: %q is there twice", i+1, text))
		case seen[string(fromPosition)]:
			faults = append(faults, fmt.Errorf("identity source %d: %q is never asked, every message has a position",
				i+1, text))
		default:
			seen[text] = true
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &Rule{sources: slices.Clone(sources), noIDs: defaultNoIDs, sought: soughtIn(sources)}, nil
}

// WithNoIDs returns the same Rule with these texts, in place of [NoIDs], for those that are no ID though a source has
// them. None: every text that can be seen is one.
func (r *Rule) WithNoIDs(texts ...string) *Rule {
	return &Rule{sources: r.sources, noIDs: slices.Clone(texts), sought: r.sought}
}

// Record is a message as the broker has it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	// Key and Value are nil where they are null.
	Key, Value []byte
	Headers    []Header
	// JSON is what Value was decoded to, where it is in another format: pointers lead into it. Nil: they lead into
	// Value.
	JSON []byte
	// Undecoded says why Value could not be decoded: no pointer leads anywhere then.
	Undecoded error
}

// Header is one header of a message. Repeated keys are allowed and keep their order; a nil Value is
// a null value and an empty one is an empty value.
type Header struct {
	Key   string
	Value []byte
}

// Found is the identity of a message.
type Found struct {
	// ID is never the nil UUID.
	ID uuid.UUID
	// RawID is the ID's text as the producer wrote it, where that was not a UUID.
	RawID string
	// Reason says why no usable ID was found. Where it is set the ID is the position's.
	Reason Reason
	// Sought says what was looked for in vain, or found and can't be used, where Reason is set; never what a message
	// holds.
	Sought string
}

// Find gives the message's identity. The same message always gets
// the same ID, on every instance and in every release. topicID tells a topic from one of the same
// name that was deleted before it; the zero UUID means unknown, and the topic's name stands in.
//
// The first source that yields an ID wins. One that has none passes on to the next; one that has an
// unusable ID (ambiguous, too long, not scalar, nil) ends the search. Without a usable ID the Reason
// is set and the ID is the position's, so that the dead letter has an identity too.
//
// A header's or JSON value's surrounding ASCII white space does not count, unless the value is binary (invalid UTF-8
// or other control characters). A value that spells a UUID is that UUID: 8-4-4-4-12 hex digits in either case,
// alone, in braces or after urn:uuid:, or 32 hex digits; also with JSON's quotes around it, and with characters that
// can't be seen. Any other is hashed, quotes and all, to a version-8 UUID and kept in RawID; a CloudEvent's pair is
// always hashed, since its id is unique only within its source, and its RawID is source, space, id. Where the text
// could not be stored in Postgres (invalid UTF-8, a NUL), RawID is `\x` and its hex digits. IDs from a position or a
// hash have no RawID.
//
// A text that is one of [NoIDs], or has nothing in it that can be seen, is missing; so are the fields of a hash
// where none has a value. A key that is binary is never that: zeros are a number.
//
// JSON pointers lead into what the value was decoded to, and into the value itself where it was not. A hash of the
// whole value is one of its bytes as they came.
//
// A text gives one ID, whether a header, the payload or the key holds it. Hashed IDs never meet where
// their texts differ or one is of a text and the other of a CloudEvent, a position, a payload, named
// fields or KeyOf, save for a collision of SHA-256 cut to 122 bits.
func (r *Rule) Find(m *Record, topicID uuid.UUID) Found {
	s := search{m: m, topicID: topicID, noIDs: r.noIDs}
	reason, at := ReasonMissingID, -1
	for i := range r.sources {
		found := s.ask(&r.sources[i])
		if found.reason == "" {
			return Found{ID: found.id, RawID: found.raw}
		}
		if found.reason != ReasonMissingID {
			reason, at = found.reason, i
		}
		if found.reason.final() {
			break
		}
	}
	sought := r.sought
	if at >= 0 {
		sought = string(reason) + " by " + r.sources[at].String() + ", of " + strings.TrimPrefix(sought, lookedFor)
	}
	switch {
	case reason == ReasonNotJSON, reason == ReasonFramed:
		sought += m.whyNoJSON()
	case reason == ReasonMissingID && r.takesEvents() && isEventBatch(m.Headers):
		sought += "; it is a batch of CloudEvents, which Kafka's binding does not have: each event must be a record"
	}
	return Found{ID: s.position(), Reason: reason, Sought: sought}
}

const lookedFor = "looked for "

func soughtIn(sources []Source) string {
	names := make([]string, len(sources))
	for i, s := range sources {
		names[i] = s.String()
	}
	return lookedFor + strings.Join(names, ", then ")
}

// ByPosition says that what has no other ID is known by its position. Where a log was cut off, other messages come
// at the positions of those that were seen, and are taken for them.
func (r *Rule) ByPosition() bool { return r.sources[len(r.sources)-1].kind == fromPosition }

// OfPosition is the ID of an offset in a partition: what a message has that no other one was found for. topicID is
// as in [Rule.Find].
func OfPosition(topic string, partition int32, offset int64, topicID uuid.UUID) uuid.UUID {
	var numbers [12]byte
	binary.BigEndian.PutUint32(numbers[:], uint32(partition))
	binary.BigEndian.PutUint64(numbers[4:], uint64(offset))
	if topicID == uuid.Nil {
		return uuid8.New(uuid8.Position, []byte("name"), []byte(topic), numbers[:])
	}
	return uuid8.New(uuid8.Position, []byte("id"), topicID[:], numbers[:])
}

// search is one message's way through the sources.
type search struct {
	m       *Record
	topicID uuid.UUID
	noIDs   noIDs
	// json remembers whether the payload is JSON, once it has been looked at.
	json struct{ known, valid bool }
}

// finding is one source's answer: an ID, or the reason why there is none.
type finding struct {
	id     uuid.UUID
	raw    string
	reason Reason
}

func (s *search) ask(src *Source) finding {
	switch src.kind {
	case fromHeader:
		text, reason := s.noIDs.header(s.m.Headers, src.header)
		return textID(text, reason)
	case fromCloudEvents:
		return s.cloudEvent()
	case fromJSON:
		text, reason := s.scalar(src.pointers[0])
		if s.noIDs.has(text) {
			return finding{reason: cmp.Or(reason, ReasonMissingID)}
		}
		return textID(text, reason)
	case fromKey:
		return s.key()
	case fromPosition:
		return finding{id: s.position()}
	case fromHash:
		if len(src.pointers) > 0 {
			return s.fields(src.pointers)
		}
		return s.payload()
	}
	return finding{reason: ReasonMissingID}
}

// key takes the key as it is, white space and all: keys are often binary numbers, and two numbers
// that end in 0x0a and in 0x20 are not the same.
func (s *search) key() finding {
	if isText(s.m.Key) && s.noIDs.has(s.m.Key) {
		return finding{reason: ReasonMissingID}
	}
	return textID(s.m.Key, "")
}

// payload hashes the value. A null or empty one yields nothing: all of a topic's tombstones would be
// duplicates of its first.
func (s *search) payload() finding {
	if len(s.m.Value) == 0 {
		return finding{reason: ReasonMissingID}
	}
	sum := sha256.Sum256(s.m.Value)
	return finding{id: uuid8.New(uuid8.Payload, sum[:])}
}

func (s *search) position() uuid.UUID {
	return OfPosition(s.m.Topic, s.m.Partition, s.m.Offset, s.topicID)
}
