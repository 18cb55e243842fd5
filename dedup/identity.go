package dedup

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// MaxIDBytes is the longest ID that is taken, in bytes after trimming. For a CloudEvent it is the
// length of source and id together.
const MaxIDBytes = 1024

// Identity finds the IDs of a topic's messages. It is made by NewIdentity, does not change after
// that, and is safe for concurrent use.
type Identity struct {
	sources []Source
	noIDs   noIDs
	sought  string // made once for all messages that have no ID
}

// NewIdentity returns the Identity that asks these sources in this order. Without sources it is
// header:message-id, then header:id (the name that Debezium's outbox router writes). The error
// lists every fault at once: a zero source, a repeated one, one behind position, which always yields.
func NewIdentity(sources ...Source) (*Identity, error) {
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
			faults = append(faults, fmt.Errorf("identity source %d: %q is never asked, every message has a position", i+1, text))
		default:
			seen[text] = true
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &Identity{sources: slices.Clone(sources), noIDs: defaultNoIDs, sought: soughtIn(sources)}, nil
}

// WithNoIDs returns the same Identity with these texts, in place of [NoIDs], for those that are no ID though a source has
// them. None: every text that can be seen is one.
func (id *Identity) WithNoIDs(texts ...string) *Identity {
	return &Identity{sources: id.sources, noIDs: slices.Clone(texts), sought: id.sought}
}

// Identify sets the message's ID, RawID and Reason from the rest of it. The same message always gets
// the same ID, on every instance and in every release. topicID tells a topic from one of the same
// name that was deleted before it; the zero UUID means unknown, and the topic's name stands in.
//
// The first source that yields an ID wins. One that has none passes on to the next; one that has an
// unusable ID (ambiguous, too long, not scalar, nil) ends the search. Without a usable ID the Reason
// is set and the ID is the position's, so that the dead letter has an identity too.
//
// A header's or JSON value's surrounding ASCII white space does not count, unless the value is binary
// (invalid UTF-8 or other control characters). A value that spells a UUID is that UUID: 8-4-4-4-12
// hex digits in either case, alone, in braces or after urn:uuid:, or 32 hex digits; also with JSON's quotes
// around it, and with characters that can't be seen. Any other is hashed, quotes and all, to a version-8 UUID and kept in RawID; a CloudEvent's pair is always hashed, since its id is
// unique only within its source, and its RawID is source, space, id. Where the text could not
// be stored in Postgres (invalid UTF-8, a NUL), RawID is `\x` and its hex digits. IDs from a position
// or a hash have no RawID.
//
// A text that is one of [NoIDs], or has nothing in it that can be seen, is missing; so are the fields of a hash where none
// has a value. A key that is binary is never that: zeros are a number.
//
// A text gives one ID, whether a header, the payload or the key holds it. Hashed IDs never meet where
// their texts differ or one is of a text and the other of a CloudEvent, a position, a payload, named
// fields or KeyOf, save for a collision of SHA-256 cut to 122 bits.
func (id *Identity) Identify(m *Message, topicID uuid.UUID) {
	s := search{m: m, topicID: topicID, noIDs: id.noIDs}
	reason, at := ReasonMissingID, -1
	for i := range id.sources {
		found := s.ask(&id.sources[i])
		if found.reason == "" {
			m.ID, m.RawID, m.Reason = found.id, found.raw, ""
			return
		}
		if found.reason != ReasonMissingID {
			reason, at = found.reason, i
		}
		if found.reason.final() {
			break
		}
	}
	m.Refuse(reason, topicID)
	if m.Sought = id.sought; at >= 0 {
		m.Sought = string(reason) + " by " + id.sources[at].String() + ", of " + strings.TrimPrefix(id.sought, lookedFor)
	}
}

const lookedFor = "looked for "

func soughtIn(sources []Source) string {
	names := make([]string, len(sources))
	for i, s := range sources {
		names[i] = s.String()
	}
	return lookedFor + strings.Join(names, ", then ")
}

// ByPosition says that what has no other ID is known by its position. Where a log was cut off, other messages come at the
// positions of those that were seen, and are taken for them.
func (id *Identity) ByPosition() bool { return id.sources[len(id.sources)-1].kind == fromPosition }

// Refuse marks a message as one without a usable ID: it goes to the dead letters, under the ID of its position.
func (m *Message) Refuse(reason Reason, topicID uuid.UUID) {
	s := search{m: m, topicID: topicID}
	m.ID, m.RawID, m.Reason = s.position(), "", reason
}

// search is one message's way through the sources.
type search struct {
	m       *Message
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
	return finding{id: derive(domainPayload, sum[:])}
}

func (s *search) position() uuid.UUID {
	var numbers [12]byte
	binary.BigEndian.PutUint32(numbers[:], uint32(s.m.Partition))
	binary.BigEndian.PutUint64(numbers[4:], uint64(s.m.Offset))
	if s.topicID == uuid.Nil {
		return derive(domainPosition, []byte("name"), []byte(s.m.Topic), numbers[:])
	}
	return derive(domainPosition, []byte("id"), s.topicID[:], numbers[:])
}
