package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

// Decoder reads a T from a message. [JSONDecoder] is one; the packages handlers/protocodec and handlers/avrocodec have
// others. Its error says where the fault is, by a byte or a path, and never what is there: it is kept and logged. It
// is permanent, unless the decoder says [Unavailable]. It gets no null values. It is safe for concurrent use.
type Decoder[T any] interface {
	Decode(m dedup.Message) (T, error)
}

// Typed is a handler of messages with their values as d reads them. What can't be read goes to the dead letters at
// once, as undecodable. So does a null value, a tombstone, in which there is nothing to read: where they come, have a
// Handler of yours look at m.Value before it passes the others on.
func Typed[T any](d Decoder[T], h func(ctx context.Context, tx pgx.Tx, m dedup.Message, v T) error) Handler {
	return HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		v, err := decode(d, m)
		if err != nil {
			return err
		}
		return h(ctx, tx, m, v)
	})
}

// JSON is [Typed] for values in JSON, which encoding/json reads.
func JSON[T any](h func(ctx context.Context, tx pgx.Tx, m dedup.Message, v T) error) Handler {
	return Typed(JSONDecoder[T]{}, h)
}

// Decode reads a message as [Typed] does, for handlers of the other kinds: they return its error as it is, which says
// what message it is about.
func Decode[T any](d Decoder[T], m dedup.Message) (T, error) {
	v, err := decode(d, m)
	if err != nil {
		err = messageError(&m, err)
	}
	return v, err
}

func decode[T any](d Decoder[T], m dedup.Message) (v T, err error) {
	if m.Value == nil {
		return v, Undecodable(errors.New("the value is null, a tombstone"))
	}
	v, err = d.Decode(m)
	switch {
	case err == nil, errors.As(err, new(*unavailableError)):
		return v, err
	case m.Decoded == nil && identity.IsFramed(m.Value):
		err = fmt.Errorf("%w; %s", err, identity.Framing(m.Value))
	}
	return v, Undecodable(err)
}
