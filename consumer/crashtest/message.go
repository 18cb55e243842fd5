package crashtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Message is one of the sample.
type Message struct {
	Topic   string
	Key     []byte // nil: there is none
	Headers []kgo.RecordHeader
	Value   []byte // nil: a tombstone
}

// line is a message as a sample file has it.
type line struct {
	Topic   string            `json:"topic"`
	Key     *string           `json:"key"`
	ID      string            `json:"id"`
	Headers map[string]string `json:"headers"`
	Payload json.RawMessage   `json:"payload"`
	Text    *string           `json:"text"`
	Base64  []byte            `json:"base64"`
}

// maxLine is the longest line of a sample.
const maxLine = 64 << 20

// ReadMessages reads a sample: an object of JSON a line, of
//
//	topic    where there are several; else the one that is given is meant
//	key      a text; left out or null: there is none
//	id       the header message-id
//	headers  an object of texts
//	payload  the value, as the JSON that stands there; or
//	text     the value as a text, or
//	base64   the value in base64; without any of them it is a tombstone
//
// Empty lines don't count. The error names the line.
func ReadMessages(in io.Reader, topic string) (ms []Message, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		m, err := readMessage(text, topic)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		ms = append(ms, m)
	}
	return ms, lines.Err()
}

func readMessage(text []byte, topic string) (m Message, err error) {
	var l line
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return m, err
	}
	if decoder.More() {
		return m, errors.New("more than one object")
	}
	if m.Topic = l.Topic; m.Topic == "" {
		m.Topic = topic
	}
	if m.Topic == "" {
		return m, errors.New("no topic, and the config has several, or a pattern")
	}
	if l.Key != nil {
		m.Key = []byte(*l.Key)
	}
	if l.ID != "" {
		m.Headers = append(m.Headers, kgo.RecordHeader{Key: "message-id", Value: []byte(l.ID)})
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		m.Headers = append(m.Headers, kgo.RecordHeader{Key: name, Value: []byte(l.Headers[name])})
	}
	m.Value, err = l.value()
	return m, err
}

func (l *line) value() (value []byte, err error) {
	given := 0
	if l.Payload != nil {
		given, value = given+1, bytes.Clone(l.Payload)
	}
	if l.Text != nil {
		given, value = given+1, []byte(*l.Text)
	}
	if l.Base64 != nil {
		given, value = given+1, l.Base64
	}
	if given > 1 {
		return nil, errors.New("payload, text and base64: keep one of them")
	}
	return value, nil
}

// topics are those of the sample, in the order in which they come first.
func topics(ms []Message) (names []string) {
	for i := range ms {
		if !slices.Contains(names, ms[i].Topic) {
			names = append(names, ms[i].Topic)
		}
	}
	return names
}
