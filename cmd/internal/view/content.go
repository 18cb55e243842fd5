package view

import (
	"encoding/base64"
	"math"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
)

// Whole is the limit of who shows everything.
const Whole = math.MaxInt

// maxHeaders is how many headers of a message are shown where there is a limit.
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

// Content is what a message holds.
type Content struct {
	Key        *Bytes   `json:"key"`
	Headers    []Header `json:"headers" doc:"In their order; keys may repeat. By the API at most 200, and no more bytes of them than of a value."`
	HeadersCut bool     `json:"headers_cut" doc:"There are more headers."`
	Value      *Bytes   `json:"value"`
}

func contentOf(m *dedup.Message, limit int) *Content {
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
