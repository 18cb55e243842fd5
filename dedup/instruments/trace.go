package instruments

import (
	"context"
	"errors"
	"iter"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
)

// MaxLinks caps the producers that a span is linked to.
const MaxLinks = 128

// Link links a span to those that sent the messages, by their headers traceparent and tracestate (W3C Trace Context):
// to the first MaxLinks that have one. Of a span that is not recorded no message is looked at.
func Link(span trace.Span, messages iter.Seq[*dedup.Message]) {
	if !span.IsRecording() {
		return
	}
	linked := 0
	for m := range messages {
		if sender := Sender(m.Headers); sender.IsValid() {
			span.AddLink(trace.Link{SpanContext: sender})
			linked++
		}
		if linked == MaxLinks {
			return
		}
	}
}

// Sender is the span that a message was sent in. It is not valid where the headers name none.
func Sender(headers []dedup.Header) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier(headers))
	return trace.SpanContextFromContext(ctx)
}

// carrier are headers to be read, the first of each name.
type carrier []dedup.Header

func (c carrier) Get(key string) string {
	for i := range c {
		if c[i].Key == key {
			return string(c[i].Value)
		}
	}
	return ""
}

func (c carrier) Set(string, string) {}

func (c carrier) Keys() []string { return nil }

// End ends a span, as failed where there is an error. Of the error it keeps the kind only: its text may hold values.
func End(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		kind := KindOf(err)
		span.SetAttributes(ErrorType.String(kind))
		span.SetStatus(codes.Error, kind)
	}
	span.End()
}

// KindOf is an error's kind: Postgres' code, or one of the few that can be told.
func KindOf(err error) string {
	switch code := failure.Code(err); {
	case code != "":
		return code
	case errors.Is(err, dedup.ErrFenced):
		return "fenced"
	case errors.As(err, new(*dedup.MovedError)):
		return "moved"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "_OTHER"
}

// Of is a slice's messages, for Link.
func Of(messages []dedup.Message) iter.Seq[*dedup.Message] {
	return func(yield func(*dedup.Message) bool) {
		for i := range messages {
			if !yield(&messages[i]) {
				return
			}
		}
	}
}

// OfEntries is entries' messages, for Link.
func OfEntries(entries []dedup.Entry) iter.Seq[*dedup.Message] {
	return func(yield func(*dedup.Message) bool) {
		for i := range entries {
			if !yield(entries[i].Message) {
				return
			}
		}
	}
}
