package fetch

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/instruments"
)

// Scope is the name that all of this is measured and traced under.
const Scope = "github.com/firstseen/firstseen/consumer"

// Operation is the operation's name in the semantic conventions.
const Operation = "poll"

// Telemetry measures and traces fetches. The attributes of what is counted for each are made once.
type Telemetry struct {
	tracer trace.Tracer
	base   []attribute.KeyValue

	fetchBytes, lost metric.Int64Counter
	requests         metric.Float64Histogram

	ofBase []metric.AddOption
	polled []metric.RecordOption
}

// NewTelemetry measures fetches that all have the attributes base.
func NewTelemetry(m metric.Meter, tracer trace.Tracer, base []attribute.KeyValue) *Telemetry {
	t := &Telemetry{
		tracer: tracer, base: base,
		fetchBytes: instruments.FetchBytes.Counter(m), lost: instruments.Lost.Counter(m),
		requests: instruments.ClientDuration.Histogram(m), ofBase: instruments.Add(base...),
	}
	t.polled = instruments.Record(t.polling()...)
	return t
}

func (t *Telemetry) with(more ...attribute.KeyValue) []attribute.KeyValue {
	return append(slices.Clip(t.base), more...)
}

func (t *Telemetry) polling() []attribute.KeyValue {
	return t.with(instruments.Kafka, instruments.Operation.String(Operation), instruments.Type.String("receive"))
}

// fetched notes a fetch. One that brought messages, or an error, has a span.
func (t *Telemetry) fetched(since time.Time, leader int32, fetched []wire.Fetched, err error) {
	ctx := context.Background()
	messages, size := 0, 0
	for i := range fetched {
		messages += len(fetched[i].Records)
		size += fetched[i].Bytes()
	}
	options := t.polled
	if err != nil {
		options = instruments.Record(append(t.polling(), instruments.ErrorType.String(instruments.KindOf(err)))...)
	}
	t.requests.Record(ctx, time.Since(since).Seconds(), options...)
	t.fetchBytes.Add(ctx, int64(size), t.ofBase...)
	if messages == 0 && err == nil {
		return
	}
	_, span := t.tracer.Start(ctx, Operation, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(since))
	if span.IsRecording() {
		span.SetAttributes(append(t.polling(), instruments.Messages.Int(messages),
			instruments.Broker.Int(int(leader)))...)
	}
	instruments.End(span, err)
}

// Skipped counts offsets that were deleted before they were read.
func (t *Telemetry) Skipped(topic string, n int64) {
	t.lost.Add(context.Background(), n, instruments.Add(t.with(instruments.Topic.String(topic))...)...)
}
