package schemas

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/firstseen/firstseen/dedup"
)

// Framing is how a topic's values say which schema they were written by.
type Framing string

const (
	// Auto takes whatever is framed for what it looks like, and all else as it is. It is the default.
	Auto Framing = "auto"
	// Confluent is a zero and the schema's ID in 4 bytes; or the schema's GUID in the header __value_schema_id. Other
	// values can't be decoded.
	Confluent Framing = "confluent"
	// Apicurio is a zero and an ID in 4 or 8 bytes: in 8 bytes it is the schema's global ID, in 4 that of its content;
	// or either in a header, apicurio.value.globalId or apicurio.value.contentId. Other values can't be decoded.
	Apicurio Framing = "apicurio"
)

// schemaID is what a schema is known by in a registry.
type schemaID struct {
	kind idKind
	text string // of a number its digits
}

type idKind string

const (
	ofSchema  idKind = "ID" // Confluent's
	ofContent idKind = "content ID"
	ofGlobal  idKind = "global ID"
	ofGUID    idKind = "GUID"
)

func (id schemaID) String() string { return "schema " + string(id.kind) + " " + id.text }

// place says which of a schema's messages a value is, in Protobuf. By default it is the first.
type place struct {
	indexes []int // of a message, and of those in it
	name    string
}

// frame is what stands around a value.
type frame struct {
	id   schemaID
	rest []byte // behind the ID; with what says the place
	// at is the place, where it does not stand in rest.
	at       place
	apicurio bool // rest says the place as Apicurio's serializers do
	inHeader bool // rest is the value alone
}

const (
	magic         = 0
	guidHeader    = "__value_schema_id"
	guidMagic     = 1
	globalHeader  = "apicurio.value.globalId"
	contentHeader = "apicurio.value.contentId"
	typeHeader    = "apicurio.protobuf.type"
)

// frameOf takes a value apart. found is false where it has no frame of the kind. native says that the registry speaks
// Apicurio's own API, so that an ID of 4 bytes, too, is one of its serializers'.
func (how Framing) frameOf(m *dedup.Message, native bool) (f frame, found bool, err error) {
	if how != Apicurio {
		if id := m.Header(guidHeader); id != nil {
			f, err = guidFrame(m, id)
			return f, true, err
		}
	}
	if how != Confluent {
		if f, found := headerFrame(m); found {
			return f, true, nil
		}
	}
	if len(m.Value) < 5 || m.Value[0] != magic {
		return f, false, nil
	}
	number := binary.BigEndian.Uint32(m.Value[1:])
	switch {
	case number == 0 && how == Confluent:
		return f, true, errors.New("its schema ID is 0, which is none")
	case number == 0 && len(m.Value) < 9:
		return f, false, nil
	case number == 0: // the first half of 8 bytes
		long := binary.BigEndian.Uint64(m.Value[1:])
		return frame{id: numbered(ofGlobal, long), rest: m.Value[9:], apicurio: true}, true, nil
	case how == Apicurio, how == Auto && native:
		return frame{id: numbered(ofContent, uint64(number)), rest: m.Value[5:], apicurio: true}, true, nil
	}
	return frame{id: numbered(ofSchema, uint64(number)), rest: m.Value[5:]}, true, nil
}

func numbered(kind idKind, n uint64) schemaID { return schemaID{kind, fmt.Sprint(n)} }

// guidFrame reads Confluent's header: a one, the GUID, and in Protobuf the place.
func guidFrame(m *dedup.Message, header []byte) (frame, error) {
	if len(header) < 17 || header[0] != guidMagic {
		return frame{}, fmt.Errorf("its header %s is no schema's GUID", guidHeader)
	}
	f := frame{id: schemaID{ofGUID, uuid.UUID(header[1:17]).String()}, rest: m.Value, inHeader: true}
	var err error
	if len(header) > 17 {
		f.at.indexes, _, err = readIndexes(header[17:])
	}
	return f, err
}

// headerFrame reads Apicurio's headers.
func headerFrame(m *dedup.Message) (f frame, found bool) {
	kind, id := ofGlobal, m.Header(globalHeader)
	if id == nil {
		kind, id = ofContent, m.Header(contentHeader)
	}
	if len(id) != 8 {
		return frame{}, false
	}
	return frame{id: numbered(kind, binary.BigEndian.Uint64(id)), rest: m.Value, inHeader: true,
		at: place{name: string(m.Header(typeHeader))}}, true
}

// place takes the place off the rest of a frame, as it is in Protobuf.
func (f *frame) place() (at place, value []byte, err error) {
	switch {
	case f.inHeader:
		return f.at, f.rest, nil
	case f.apicurio:
		name, value := readRef(f.rest)
		return place{name: name}, value, nil
	}
	at.indexes, value, err = readIndexes(f.rest)
	return at, value, err
}

// maxIndexes caps how deep a message may be declared.
const maxIndexes = 64

// readIndexes reads Confluent's way to a message: how many indexes there are, and those; or a zero for the first one.
func readIndexes(b []byte) (indexes []int, rest []byte, err error) {
	broken := errors.New("it does not say which message of the schema it is")
	n, size := binary.Varint(b)
	if size <= 0 || n < 0 || n > maxIndexes {
		return nil, nil, broken
	}
	b = b[size:]
	for range n {
		index, size := binary.Varint(b)
		if size <= 0 || index < 0 || index > math.MaxInt32 {
			return nil, nil, broken
		}
		indexes, b = append(indexes, int(index)), b[size:]
	}
	return indexes, b, nil
}

// readRef reads Apicurio's: a message with the name, behind its length. Where there is none the whole is the value.
func readRef(b []byte) (name string, rest []byte) {
	ref, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return "", b
	}
	number, kind, size := protowire.ConsumeTag(ref)
	if size < 0 || number != 1 || kind != protowire.BytesType {
		return "", b
	}
	text, length := protowire.ConsumeBytes(ref[size:])
	if length < 0 || size+length != len(ref) || !isName(text) {
		return "", b
	}
	return string(text), b[n:]
}

func isName(text []byte) bool {
	return len(text) > 0 && !bytes.ContainsFunc(text, func(c rune) bool {
		return c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
}
