package consumer

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/instruments"
)

// processOperation is the operation's name in the semantic conventions.
const processOperation = "process"

// Why a batch was taken back, beside the codes of held partitions.
const (
	failedCommitLost = "commit_lost" // its commit's answer was lost; it had taken effect
	failedFenced     = "fenced"      // another owner has the partition
	failedMoved      = "moved"       // the position is not where this owner left it
	failedAbandoned  = "abandoned"   // it did not end in time when the partitions were given up
)

// telemetry holds the instruments of a Consumer, or a Reader. The attributes of what is counted for each batch are
// made once.
type telemetry struct {
	tracer trace.Tracer
	meter  metric.Meter
	base   []attribute.KeyValue // the group, where there is one

	consumed, failures, rebalances, fences metric.Int64Counter
	process, batch                         metric.Float64Histogram

	ofGroup []metric.AddOption
	fetches *fetch.Telemetry
}

func newTelemetry(cfg *Config) *telemetry {
	meters, tracers := cfg.MeterProvider, cfg.TracerProvider
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	m := meters.Meter(fetch.Scope)
	t := &telemetry{
		tracer: tracers.Tracer(fetch.Scope), meter: m,
		consumed: instruments.Consumed.Counter(m), failures: instruments.BatchFailures.Counter(m),
		rebalances: instruments.Rebalances.Counter(m), fences: instruments.Fences.Counter(m),
		process: instruments.ProcessDuration.Histogram(m), batch: instruments.BatchSize.Histogram(m),
	}
	if cfg.Group != "" {
		t.base = []attribute.KeyValue{instruments.Group.String(cfg.Group)}
	}
	t.ofGroup = instruments.Add(t.base...)
	t.fetches = fetch.NewTelemetry(m, t.tracer, t.base)
	if cfg.Group != "" {
		t.begin(cfg.Topics)
	}
	return t
}

// begin starts the counters at 0: a rate misses the first event of a counter that appears with it.
func (t *telemetry) begin(topics []Topic) {
	t.rebalances.Add(context.Background(), 0, t.ofGroup...)
	for _, topic := range topics {
		if !topic.byPattern() {
			t.beginTopic(topic.Name)
		}
	}
}

func (t *telemetry) beginTopic(name string) {
	ctx := context.Background()
	t.consumed.Add(ctx, 0, t.receiving(name)...)
	t.fences.Add(ctx, 0, t.about(name)...)
	t.fetches.Skipped(name, 0)
	for _, reason := range []string{HeldPostgres, HeldReadOnly, HeldLocked, HeldHandler,
		failedFenced, failedMoved, failedAbandoned} {
		t.failures.Add(ctx, 0, t.about(name, instruments.Reason.String(reason))...)
	}
}

func (t *telemetry) with(more ...attribute.KeyValue) []attribute.KeyValue {
	return append(t.base[:len(t.base):len(t.base)], more...)
}

func (t *telemetry) about(topic string, more ...attribute.KeyValue) []metric.AddOption {
	return instruments.Add(t.with(append(more, instruments.Topic.String(topic))...)...)
}

func (t *telemetry) receiving(topic string) []metric.AddOption {
	return t.about(topic, instruments.Kafka, instruments.Operation.String(fetch.Operation))
}

// batches holds the instruments of one partition's batches.
type batches struct {
	*telemetry
	topic           string
	span            string
	start           []trace.SpanStartOption
	received        []metric.AddOption
	took, contained []metric.RecordOption
}

func (t *telemetry) batches(tp wire.TopicPartition) *batches {
	topic := instruments.Topic.String(tp.Topic)
	processing := t.with(instruments.Kafka, topic, instruments.Operation.String(processOperation))
	return &batches{
		telemetry: t, topic: tp.Topic, span: processOperation + " " + tp.Topic,
		start: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(append(processing, instruments.Type.String(processOperation),
				instruments.Partition.String(strconv.Itoa(int(tp.Partition))))...)},
		received:  t.receiving(tp.Topic),
		took:      instruments.Record(processing...),
		contained: instruments.Record(t.with(topic)...),
	}
}

// taken counts messages that are to be processed.
func (b *batches) taken(n int) {
	if n > 0 {
		b.consumed.Add(context.Background(), int64(n), b.received...)
	}
}

// begin begins the span of a batch, linked to those that sent its messages. One without messages has none.
func (b *batches) begin(ctx context.Context, ms []dedup.Message) (context.Context, trace.Span) {
	if len(ms) == 0 {
		return ctx, trace.SpanFromContext(ctx)
	}
	ctx, span := b.tracer.Start(ctx, b.span, b.start...)
	if span.IsRecording() {
		span.SetAttributes(instruments.Messages.Int(len(ms)), instruments.Offset.Int64(ms[0].Offset))
		instruments.Link(span, instruments.Of(ms))
	}
	return ctx, span
}

// end notes how a batch went.
func (b *batches) end(span trace.Span, since time.Time, messages int, err error) {
	ctx := context.Background()
	options := b.took
	if err != nil {
		options = instruments.Record(b.with(instruments.Kafka, instruments.Topic.String(b.topic),
			instruments.Operation.String(processOperation), instruments.ErrorType.String(instruments.KindOf(err)))...)
	}
	b.process.Record(ctx, time.Since(since).Seconds(), options...)
	b.batch.Record(ctx, float64(messages), b.contained...)
	instruments.End(span, err)
}

// failed counts a batch that was taken back, by the reason.
func (b *batches) failed(reason string) {
	b.failures.Add(context.Background(), 1, b.about(b.topic, instruments.Reason.String(reason))...)
}

// ousted counts a batch that was refused because the partition is another owner's, or its position moved.
func (b *batches) ousted(moved *dedup.MovedError) {
	if moved != nil {
		b.failed(failedMoved)
		return
	}
	b.failed(failedFenced)
	b.fences.Add(context.Background(), 1, b.about(b.topic)...)
}
