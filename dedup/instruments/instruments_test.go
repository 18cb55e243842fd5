package instruments_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/instruments"
)

func TestEachInstrumentHasItsOwnNameAndAMeaning(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range instruments.All() {
		require.False(t, seen[i.Name], i.Name)
		seen[i.Name] = true
		require.NotEmpty(t, i.About, i.Name)
		require.NotEmpty(t, i.Unit, i.Name)
		require.Equal(t, i.Kind == instruments.Histogram, len(i.Buckets) > 0, i.Name)
		for _, a := range i.Attributes {
			require.NotContains(t, []string{"messaging.message.id", "messaging.kafka.message.key",
				"messaging.kafka.offset"}, string(a), i.Name)
		}
	}
}

// recorded gives a span as it was recorded, after use.
func recorded(use func(trace.Span)) sdktrace.ReadOnlySpan {
	spans := tracetest.NewSpanRecorder()
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = -1
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithRawSpanLimits(limits))
	_, span := provider.Tracer("test").Start(context.Background(), "span")
	use(span)
	span.End()
	return spans.Ended()[0]
}

func message(headers ...string) dedup.Message {
	var m dedup.Message
	for i := 0; i < len(headers); i += 2 {
		m.Headers = append(m.Headers, dedup.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return m
}

const sender = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestSpanIsLinkedToTheFirstSendersThatAreNamed(t *testing.T) {
	ms := make([]dedup.Message, 3*instruments.MaxLinks)
	for i := range ms {
		if i%2 == 1 {
			ms[i] = message("traceparent", fmt.Sprintf("00-%032x-00f067aa0ba902b7-01", i))
		}
	}
	links := recorded(func(s trace.Span) { instruments.Link(s, instruments.Of(ms)) }).Links()
	require.Len(t, links, instruments.MaxLinks)
	require.Equal(t, trace.TraceID{15: 1}, links[0].SpanContext.TraceID())
	require.Equal(t, trace.TraceID{15: 3}, links[1].SpanContext.TraceID())
}

func TestMessagesOfASpanThatIsNotRecordedAreNotLookedAt(t *testing.T) {
	instruments.Link(trace.SpanFromContext(context.Background()),
		func(func(*dedup.Message) bool) { t.Fatal("looked at") })
}

func TestSenderIsWhatTheHeadersName(t *testing.T) {
	m := message("TraceParent", "no", "traceparent", sender, "tracestate", "vendor=x", "traceparent", "00-1-2-01")
	found := instruments.Sender(m.Headers)
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", found.TraceID().String())
	require.Equal(t, "vendor=x", found.TraceState().String())
	require.True(t, found.IsRemote())
	for _, m := range []dedup.Message{message(), message("traceparent", "nonsense"), message("traceparent", "")} {
		require.False(t, instruments.Sender(m.Headers).IsValid())
	}
}

func TestSpanEndsWithTheKindOfItsErrorOnly(t *testing.T) {
	for kind, err := range map[string]error{
		"23505":    fmt.Errorf("insert: %w", &pgconn.PgError{Code: "23505", Message: "secret", Detail: "secret"}),
		"fenced":   fmt.Errorf("secret: %w", dedup.ErrFenced),
		"moved":    fmt.Errorf("secret: %w", &dedup.MovedError{}),
		"timeout":  fmt.Errorf("secret: %w", context.DeadlineExceeded),
		"canceled": fmt.Errorf("secret: %w", context.Canceled),
		"_OTHER":   errors.New("secret"),
	} {
		span := recorded(func(s trace.Span) { instruments.End(s, err) })
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: kind}, span.Status())
		require.NotContains(t, fmt.Sprint(span.Attributes(), span.Events()), "secret")
	}
	require.Equal(t, codes.Unset, recorded(func(s trace.Span) { instruments.End(s, nil) }).Status().Code)
}
