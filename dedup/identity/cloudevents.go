package identity

import (
	"slices"

	"github.com/firstseen/firstseen/dedup/internal/uuid8"
)

// The parts of the CloudEvents Kafka protocol binding (1.0.2, section 3) that hold an event's identity.
const (
	ceSourceHeader    = "ce_source"
	ceIDHeader        = "ce_id"
	contentTypeHeader = "content-type"
	ceJSONMediaType   = "application/cloudevents+json"
	ceBatchMediaType  = "application/cloudevents-batch+json"
)

var (
	ceSourcePointer = pointer{text: "/source", tokens: []string{"source"}}
	ceIDPointer     = pointer{text: "/id", tokens: []string{"id"}}
)

// cloudEvent combines source and id, which only together are unique (CloudEvents 1.0.2, section 3.1.1),
// so that both modes give one event the same ID.
func (s *search) cloudEvent() finding {
	structured, reason := isStructured(s.m.Headers)
	if reason != "" {
		return finding{reason: reason}
	}
	id, reason := s.eventAttribute(structured, ceIDHeader, ceIDPointer, s.noIDs)
	if reason != "" {
		return finding{reason: reason}
	}
	source, reason := s.eventAttribute(structured, ceSourceHeader, ceSourcePointer, nil)
	if reason != "" {
		return finding{reason: reason}
	}
	if len(source)+len(id) > MaxIDBytes {
		return finding{reason: ReasonIDTooLong}
	}
	raw := append(append(slices.Clone(source), ' '), id...)
	return finding{id: uuid8.New(uuid8.CloudEvent, source, id), raw: storable(raw)}
}

func (s *search) eventAttribute(structured bool, header string, p pointer, no noIDs) (text []byte, reason Reason) {
	if structured {
		text, reason = s.scalar(p)
	} else {
		text, reason = no.header(s.m.Headers, header)
	}
	switch {
	case reason != "":
		return nil, reason
	case no.has(text):
		return nil, ReasonMissingID
	}
	return text, checkText(text)
}

// isStructured reports whether the whole event is in the payload. Content types that disagree on it
// leave open which of two identities is meant.
func isStructured(headers []Header) (bool, Reason) {
	var yes, no bool
	for i := range headers {
		if headers[i].Key == contentTypeHeader {
			is := isCloudEventJSON(headers[i].Value)
			yes, no = yes || is, no || !is
		}
	}
	if yes && no {
		return false, ReasonAmbiguousID
	}
	return yes, ""
}

// takesEvents says that the rule asks for a CloudEvent.
func (r *Rule) takesEvents() bool {
	return slices.ContainsFunc(r.sources, func(s Source) bool { return s.kind == fromCloudEvents })
}

// isEventBatch says that a content type is that of CloudEvents' batched mode, of which HTTP knows.
func isEventBatch(headers []Header) bool {
	return slices.ContainsFunc(headers, func(h Header) bool {
		return h.Key == contentTypeHeader && isMediaType(h.Value, ceBatchMediaType)
	})
}

// isCloudEventJSON reports whether a content type has this media type, with or without parameters.
func isCloudEventJSON(contentType []byte) bool {
	return isMediaType(contentType, ceJSONMediaType)
}

func isMediaType(contentType []byte, name string) bool {
	t := trimASCII(contentType)
	n := len(name)
	if len(t) < n || !equalFoldASCII(t[:n], name) {
		return false
	}
	return len(t) == n || t[n] == ';' || isSpace(t[n])
}
