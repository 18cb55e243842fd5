package handlers

import (
	"context"
	"errors"

	"github.com/firstseen/firstseen/dedup"
)

// Format reads values as JSON that are in another format: package handlers/schemas has one for those that refer to a
// schema registry. It is safe for concurrent use.
type Format interface {
	// JSON gives a message's value as JSON; nil: the value is not in this format, and is taken as it is. It does not
	// change the message, and always gives the same bytes for it. The error is [Undecodable], and says where the
	// fault is but not what is there; or it is [Unavailable], where what is needed to read the value can't be had now.
	JSON(ctx context.Context, m *dedup.Message) ([]byte, error)
}

// Formats gives the format of a topic's values; nil: it has none. A nil Formats has none for any topic. It is safe for
// concurrent use.
type Formats func(topic string) Format

// Of is the format of a topic's values; nil: it has none.
func (f Formats) Of(topic string) Format {
	if f == nil {
		return nil
	}
	return f(topic)
}

// DecodeBy has a format decode a message's value, for [dedup.Message.Body]. A nil format leaves it as it is. The error
// says that it can't be decoded now; a value that can't be decoded at all is no error here, but Body's.
func DecodeBy(ctx context.Context, f Format, m *dedup.Message) error {
	if f == nil || m.Value == nil {
		return nil
	}
	body, err := f.JSON(ctx, m)
	switch {
	case errors.As(err, new(*unavailableError)), err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		m.Decoded = &dedup.Decoded{Err: err}
	case body != nil:
		m.Decoded = &dedup.Decoded{JSON: body}
	}
	return nil
}

// DecodeBy has the values of topics decoded that are loaded of parked messages, as they were when the messages came.
// Call it before RunLanes.
func (p *Processor) DecodeBy(formats Formats) { p.formats = formats }

// decode decodes what was loaded, and says whether there was any need to. A value that can't be decoded now fails where
// its handler asks for it, and is tried again; the others don't wait for it.
func (p *Processor) decode(ctx context.Context, entries []dedup.Entry) bool {
	if p.formats == nil {
		return false
	}
	for i := range entries {
		m := entries[i].Message
		if m.Partition < 0 {
			continue // it came by HTTP
		}
		if err := DecodeBy(ctx, p.formats.Of(m.Topic), m); err != nil {
			m.Decoded = &dedup.Decoded{Err: err}
		}
	}
	return true
}

// bodies are messages with their values as JSON, for who wants nothing else. Where none was decoded they are the same.
func bodies(ms []dedup.Message) ([]dedup.Message, error) {
	var decoded []dedup.Message
	for i := range ms {
		if ms[i].Decoded == nil {
			continue
		}
		body, err := ms[i].Body()
		if err != nil {
			return nil, messageError(&ms[i], err)
		}
		if decoded == nil {
			decoded = append(decoded, ms...)
		}
		decoded[i].Value = body
	}
	if decoded == nil {
		return ms, nil
	}
	return decoded, nil
}
