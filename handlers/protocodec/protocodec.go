// Package protocodec reads messages in Protobuf, for [handlers.Typed]. It is a package of its own so that other
// programs don't link Protobuf.
package protocodec

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// Decoder reads values that are one message of a generated type, say Decoder[*pb.Payment]{}.
type Decoder[T proto.Message] struct{}

var _ handlers.Decoder[proto.Message] = Decoder[proto.Message]{}

// Decode reads one. Its error has the byte at which the value is broken and the field that it is in, or the field that
// is missing or no text. Fields that the type does not know are not looked at.
func (Decoder[T]) Decode(m dedup.Message) (v T, err error) {
	v = v.ProtoReflect().New().Interface().(T) //nolint:errcheck,forcetypeassert // New is of the same type
	if err = proto.Unmarshal(m.Value, v); err != nil {
		return v, Fault(m.Value, v.ProtoReflect().Descriptor(), err)
	}
	return v, nil
}

// Fault says of a value that proto.Unmarshal has failed on where that is, as Decode's error does.
func Fault(value []byte, of protoreflect.MessageDescriptor, err error) error {
	if at, field, broken := place(value, of); broken {
		return fmt.Errorf("read Protobuf: it is broken at byte %d, in %s", at, field)
	}
	return fmt.Errorf("read Protobuf: %s", strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0"))
}

// place is the byte from which a message can't be taken apart, and the field that it belongs to.
func place(b []byte, of protoreflect.MessageDescriptor) (at int, field protoreflect.FullName, broken bool) {
	for at < len(b) {
		number, kind, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return at, of.FullName(), true
		}
		field = of.FullName()
		known := of.Fields().ByNumber(number)
		if known != nil {
			field = known.FullName()
		}
		length := protowire.ConsumeFieldValue(number, kind, b[at+n:])
		if length < 0 {
			return at + n, field, true
		}
		if known != nil && kind == protowire.BytesType {
			part, all := protowire.ConsumeBytes(b[at+n:])
			if within, field, broken := placeWithin(part, known); broken {
				return at + n + all - len(part) + within, field, true
			}
		}
		at += n + length
	}
	return 0, "", false
}

// placeWithin is place for the value of a field that has a length.
func placeWithin(b []byte, of protoreflect.FieldDescriptor) (at int, field protoreflect.FullName, broken bool) {
	switch {
	case of.Message() != nil:
		return place(b, of.Message())
	case of.Kind() == protoreflect.StringKind:
		return 0, of.FullName(), !utf8.Valid(b)
	}
	return 0, "", false
}
