package outbox

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/propagation"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// The headers that a message gets of the one that caused it.
const (
	// HeaderCorrelation has what all messages of one story share: the cause's own, or its ID where it has none.
	HeaderCorrelation = "correlation-id"
	// HeaderCausation has the ID of the cause.
	HeaderCausation = dedup.HeaderCausation
)

// withCause is a message's headers and those that follow from where it is added. What it has stays.
func withCause(ctx context.Context, headers []dedup.Header) []dedup.Header {
	all := carrier(slices.Clip(headers))
	if cause := handlers.MessageOf(ctx); cause != nil {
		id := cause.ID.String()
		correlation := carrier(cause.Headers).Get(HeaderCorrelation)
		if correlation == "" {
			correlation = id
		}
		all.Set(HeaderCorrelation, correlation)
		all.Set(HeaderCausation, id)
	}
	propagation.TraceContext{}.Inject(ctx, &all)
	return all
}

// carrier are headers that are added where there is none of the name.
type carrier []dedup.Header

// Get is the first of a name.
func (c carrier) Get(name string) string {
	for i := range c {
		if c[i].Key == name {
			return string(c[i].Value)
		}
	}
	return ""
}

// Set adds a header.
func (c *carrier) Set(name, value string) {
	if !slices.ContainsFunc(*c, func(h dedup.Header) bool { return h.Key == name }) {
		*c = append(*c, dedup.Header{Key: name, Value: []byte(value)})
	}
}

// Keys is asked for by nobody who injects.
func (c carrier) Keys() []string { return nil }
