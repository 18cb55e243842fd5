// Package avrocodec reads messages in Avro's binary encoding, for [handlers.Typed]. It is a package of its own so that
// other programs don't link Avro.
package avrocodec

import (
	"errors"
	"fmt"

	"github.com/twmb/avro"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// Decoder reads values that are one datum of a schema into a T, whose fields have the names of the schema's or say them
// in the tag avro.
type Decoder[T any] struct {
	// Schema is the producers'. Where it is not the one that T was made for, it is avro.Resolve of the two. Required.
	Schema *avro.Schema
}

var _ handlers.Decoder[any] = Decoder[any]{}

// Decode reads one. Its error has the path of the field that is not as T wants it, or where the value ends too early.
// Fields that T lacks are passed over; bytes behind the datum are a fault.
func (d Decoder[T]) Decode(m dedup.Message) (v T, err error) {
	rest, err := d.Schema.Decode(m.Value, &v, avro.SkipUnknown())
	if err == nil && len(rest) > 0 {
		return v, fmt.Errorf("read Avro: it goes on behind its end, at byte %d of %d", len(m.Value)-len(rest), len(m.Value))
	}
	if err != nil {
		return v, fault(err)
	}
	return v, nil
}

// fault says what Avro has found without its words, which may quote the value.
func fault(err error) error {
	var of *avro.SemanticError
	where := "at its top"
	if errors.As(err, &of) && of.Field != "" {
		where = "in field " + of.Field
	}
	var short *avro.ShortBufferError
	switch {
	case errors.As(err, &short):
		return fmt.Errorf("read Avro: it ends too early, %s, in a %s", where, short.Type)
	case of != nil && of.GoType != nil && of.AvroType != "record":
		return fmt.Errorf("read Avro: %s %s, want %s", of.AvroType, where, of.GoType)
	}
	return fmt.Errorf("read Avro: it is broken %s", where)
}
