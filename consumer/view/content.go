package view

import (
	"context"
	"encoding/base64"
	"math"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// Whole is the limit of who shows everything.
const Whole = math.MaxInt

// maxHeaders caps the headers of a message that are shown where there is a limit.
const maxHeaders = 200

// Bytes are a key, a header's value or a message's value. Null is null; what is empty has an empty text.
type Bytes struct {
	Text   *string `json:"text,omitempty" doc:"The bytes, where they are UTF-8."`
	Base64 *string `json:"base64,omitempty" doc:"The bytes in base64, where they are not UTF-8."`
	Bytes  int     `json:"bytes" doc:"How many there are."`
	Cut    bool    `json:"cut" doc:"More bytes are there than are shown."`
}

// shown is nil for null, and at most limit of the bytes.
func shown(value []byte, limit int) *Bytes {
	if value == nil {
		return nil
	}
	b := &Bytes{Bytes: len(value), Cut: len(value) > limit}
	if !utf8.Valid(value) {
		text := base64.StdEncoding.EncodeToString(value[:min(len(value), limit)])
		b.Base64 = &text
		return b
	}
	end := min(len(value), limit)
	for b.Cut && end > 0 && !utf8.RuneStart(value[end]) {
		end--
	}
	text := string(value[:end])
	b.Text = &text
	return b
}

// Header is one header of a message.
type Header struct {
	Key   string `json:"key"`
	Value *Bytes `json:"value"`
}

// Look is how messages are looked at. The zero Look leaves their contents out.
type Look struct {
	// Limit caps each key, the headers and each value that is shown, in bytes; 0: none is, Whole: all.
	Limit int
	// Decode decodes values; nil: nobody does.
	Decode Decode
	// Mask hides parts of contents, with the sizes and errors that would tell of them; nil: nothing.
	Mask *mask.Rules
}

// size is that of a message, as it is shown.
func (l Look) size(topic string, bytes int) int {
	if l.Mask.Hides(topic) {
		return 0
	}
	return bytes
}

// Content is a message's key, headers and value.
type Content struct {
	Key        *Bytes   `json:"key"`
	Headers    []Header `json:"headers" doc:"In their order; keys may repeat. By the API at most 200, and no more bytes of them than of a value."`
	HeadersCut bool     `json:"headers_cut" doc:"There are more headers."`
	Value      *Bytes   `json:"value"`
	Masked     bool     `json:"masked" doc:"Some of it is hidden: *** stands there, or *** differs where it is beside a message that has something else in that place."`

	Decoded     *Bytes  `json:"decoded,omitempty" doc:"The value as JSON, where it was written by a schema of the registry."`
	DecodeError *string `json:"decode_error,omitempty" doc:"Why there is none."`
}

// Decode decodes a message's value, for who looks at it; nil: nobody does.
type Decode func(m *dedup.Message)

// By decodes the values of topics by their formats. One that can't be decoded now is not, and says so.
func By(ctx context.Context, formats handlers.Formats) Decode {
	return func(m *dedup.Message) {
		if m.Partition < 0 {
			return // it came by HTTP
		}
		if err := handlers.DecodeBy(ctx, formats.Of(m.Topic), m); err != nil {
			m.Decoded = &dedup.Decoded{Err: err}
		}
	}
}

// contentOf is a message's content, as far as it is to be shown.
func (l Look) contentOf(m *dedup.Message) *Content {
	copied := *m // of what is decoded, many at once would be too much
	if l.Decode != nil {
		l.Decode(&copied)
	}
	masked := l.Mask.Apply(&copied)
	return l.maskedContentOf(&copied, masked)
}

// ValueOf is a message's value, of which is hidden what is to be.
func (l Look) ValueOf(m *dedup.Message) []byte {
	copied := *m
	l.Mask.Apply(&copied)
	return copied.Value
}

// maskedContentOf is the content of a message that is decoded, and of which is hidden what is to be.
func (l Look) maskedContentOf(m *dedup.Message, masked bool) *Content {
	c := plainContentOf(m, l.Limit)
	c.Masked = masked
	if m.Decoded != nil && m.Decoded.Err != nil {
		text := m.Decoded.Err.Error()
		c.DecodeError = &text
	}
	c.Decoded = shown(m.JSON(), l.Limit)
	return c
}

func plainContentOf(m *dedup.Message, limit int) *Content {
	c := &Content{Key: shown(m.Key, limit), Value: shown(m.Value, limit), Headers: []Header{}}
	most := maxHeaders
	if limit == Whole {
		most = len(m.Headers)
	}
	for _, h := range m.Headers {
		if len(c.Headers) == most || len(h.Key) > limit {
			c.HeadersCut = true
			break
		}
		limit -= len(h.Key)
		c.Headers = append(c.Headers, Header{h.Key, shown(h.Value, limit)})
		limit -= min(limit, len(h.Value))
	}
	return c
}

func idOrNull(id uuid.UUID) *string {
	if id == uuid.Nil {
		return nil
	}
	text := id.String()
	return &text
}
