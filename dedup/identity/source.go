package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Source is one place that a message's ID is taken from. It is written in the configuration as
//
//	header:NAME      the header of that exact name; names are case-sensitive, as in Kafka
//	cloudevents      source and id of a CloudEvent, in binary or structured mode
//	json:/POINTER    the string or number that the JSON pointer (RFC 6901) leads to in the payload
//	key              the message's key, byte for byte
//	position         topic, partition and offset: every message is new unless delivered again
//	hash             the payload's bytes
//	hash:/A,/B       the values that these JSON pointers lead to in the payload
//
// ParseSource makes one. The zero Source is no source, and NewRule refuses it.
type Source struct {
	kind     sourceKind
	header   string
	pointers []pointer
}

type sourceKind string

const (
	fromHeader      sourceKind = "header"
	fromCloudEvents sourceKind = "cloudevents"
	fromJSON        sourceKind = "json"
	fromKey         sourceKind = "key"
	fromPosition    sourceKind = "position"
	fromHash        sourceKind = "hash"
)

const sourceForms = "header:NAME, cloudevents, json:/POINTER, key, position, hash, or hash:/POINTER,/POINTER"

// ParseSource reads a source from its text. The error names the text, what is wrong with it and the
// forms that are allowed.
//
// In the hash form a comma always separates two pointers, so a field with a comma in its name cannot
// be given there. The empty JSON pointer (the whole payload) is refused.
func ParseSource(text string) (Source, error) {
	s, err := parseSource(text)
	if err != nil {
		return Source{}, fmt.Errorf("identity source %q: %w; want %s", text, err, sourceForms)
	}
	return s, nil
}

func parseSource(text string) (Source, error) {
	if !utf8.ValidString(text) {
		return Source{}, errors.New("not valid UTF-8")
	}
	kind, arg, hasArg := strings.Cut(text, ":")
	switch k := sourceKind(kind); k {
	case fromHeader:
		return Source{kind: k, header: arg}, checkHeaderName(arg)
	case fromJSON:
		p, err := parsePointer(arg)
		return Source{kind: k, pointers: []pointer{p}}, err
	case fromHash:
		if hasArg {
			return parseFieldHash(arg)
		}
		return Source{kind: k}, nil
	case fromCloudEvents, fromKey, fromPosition:
		if hasArg {
			return Source{}, fmt.Errorf("%s takes nothing after it", kind)
		}
		return Source{kind: k}, nil
	}
	return Source{}, fmt.Errorf("unknown kind %q", kind)
}

func checkHeaderName(name string) error {
	if name == "" {
		return errors.New("the header's name is missing")
	}
	if strings.TrimSpace(name) != name {
		return errors.New("white space around the header's name")
	}
	return nil
}

func parseFieldHash(list string) (Source, error) {
	s := Source{kind: fromHash}
	for text := range strings.SplitSeq(list, ",") {
		p, err := parsePointer(text)
		if err != nil {
			return Source{}, err
		}
		if slices.ContainsFunc(s.pointers, func(q pointer) bool { return q.text == p.text }) {
			return Source{}, fmt.Errorf("field %q is there twice", text)
		}
		s.pointers = append(s.pointers, p)
	}
	return s, nil
}

// String is the source's text, as ParseSource reads it. It is empty for the zero Source.
func (s Source) String() string {
	switch {
	case s.kind == fromHeader:
		return string(s.kind) + ":" + s.header
	case len(s.pointers) > 0:
		texts := make([]string, len(s.pointers))
		for i, p := range s.pointers {
			texts[i] = p.text
		}
		return string(s.kind) + ":" + strings.Join(texts, ",")
	}
	return string(s.kind)
}

// MarshalText is String as bytes. It never fails.
func (s Source) MarshalText() ([]byte, error) {
	return []byte(s.String()), nil
}

// UnmarshalText is ParseSource in place. On an error the source is left as it was.
func (s *Source) UnmarshalText(text []byte) error {
	parsed, err := ParseSource(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}
