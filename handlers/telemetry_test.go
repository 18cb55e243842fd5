package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/handlers"
)

// observed is a stage whose processors are measured and traced.
type observed struct {
	*stage
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
}

func newObserved(t *testing.T) *observed {
	o := &observed{stage: newStage(t), reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.spans))
	o.cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.reader))
	o.cfg.TracerProvider, o.tracer = provider, provider.Tracer("test")
	o.cfg.LanePoll = 5 * time.Millisecond
	return o
}

// counted are a counter's values above 0, by the values of two of its attributes.
func (o *observed) counted(name string, by ...attribute.Key) map[[2]string]int64 {
	o.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(o.t, o.reader.Collect(context.Background(), &all))
	found := map[[2]string]int64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != name {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			var key [2]string
			for i, k := range by {
				v, _ := p.Attributes.Value(k)
				key[i] = v.AsString()
			}
			found[key] += p.Value
		}
	}
	maps.DeleteFunc(found, func(_ [2]string, n int64) bool { return n == 0 })
	return found
}

// span waits for the one span of that name to have ended.
func (o *observed) span(name string) sdktrace.ReadOnlySpan {
	o.t.Helper()
	var found sdktrace.ReadOnlySpan
	require.Eventually(o.t, func() bool {
		for _, s := range o.spans.Ended() {
			if s.Name() == name {
				found = s
			}
		}
		return found != nil
	}, 3*time.Minute, 5*time.Millisecond, "no span %s", name)
	return found
}

// sentIn gives a message the traceparent of a producer's span.
func sentIn(m *dedup.Message, producer string) (in trace.TraceID) {
	m.Headers = append(m.Headers, dedup.Header{Key: "traceparent",
		Value: []byte("00-" + producer + "-00f067aa0ba902b7-01")})
	in, _ = trace.TraceIDFromHex(producer)
	return in
}

const producer = "4bf92f3577b34da6a3ce929d0e0e4736"

var errRefused = errors.New("refused: 4111 1111 1111 1111") // an error that shows a payload

// failingAt fails on the messages at some offsets, once or for good.
func failingAt(errs map[int64]error) handlers.BatchHandler {
	return handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if err := errs[m.Offset]; err != nil {
			return err
		}
		return leaveEffect(ctx, tx, m)
	}))
}

func TestWhatBecameOfABatchIsCountedByTopicHandlerAndOutcome(t *testing.T) {
	o := newObserved(t)
	o.register("h", failingAt(map[int64]error{1: errRefused, 2: handlers.Permanent(errRefused)}))
	o.register("other", handlers.BatchHandlerFunc(func(context.Context, pgx.Tx, []dedup.Message) error { return nil }))
	processor, p := o.processor(), o.position("orders")
	ids := newIDs(4)
	ms := keyed(messages(p, ids[0], ids[1], ids[2], ids[3], ids[0]))
	ms[3].Refuse(identity.ReasonMissingID, [16]byte{})
	_, err := processor.Process(context.Background(), handlers.Batch{Position: p, Next: 5, Messages: ms})
	require.NoError(t, err)

	require.Equal(t, map[[2]string]int64{
		{"h", "new"}: 1, {"h", "parked"}: 1, {"h", "dead"}: 2, {"h", "duplicate"}: 1,
		{"other", "new"}: 3, {"other", "dead"}: 1, {"other", "duplicate"}: 1,
	}, o.counted("firstseen.messages", instruments.Handler, instruments.Outcome))
	require.Equal(t, map[[2]string]int64{{"h", "failed"}: 1, {"h", "permanent"}: 1},
		o.counted("firstseen.handler.failures", instruments.Handler, instruments.Reason))
	require.Equal(t, map[[2]string]int64{{"h", "permanent"}: 1, {"h", "missing_id"}: 1, {"other", "missing_id"}: 1},
		o.counted("firstseen.dead_letters", instruments.Handler, instruments.Reason))
	require.Equal(t, handlers.Totals{Batches: 1, Handled: 4, Failed: 2, Duplicates: 2, Parked: 1, Dead: 3},
		processor.Totals())
}

func TestTransactionThatRunsAgainIsCountedOnce(t *testing.T) {
	o := newObserved(t)
	o.exec(`create table once (id int primary key deferrable initially deferred)`)
	o.register("h", handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		// of two messages one fails, at the commit
		_, err := tx.Exec(ctx, `insert into once values ($1 / 2)`, m.Offset)
		return err
	})))
	processor, p := o.processor(), o.position("orders")
	_, err := processor.Process(context.Background(),
		handlers.Batch{Position: p, Next: 4, Messages: keyed(messages(p, newIDs(4)...))})
	require.NoError(t, err)
	require.Equal(t, handlers.Totals{Batches: 1, Handled: 2, Failed: 2, Parked: 2}, processor.Totals())
	require.Equal(t, map[[2]string]int64{{"h", "failed"}: 2},
		o.counted("firstseen.handler.failures", instruments.Handler, instruments.Reason))
}

func TestBatchThatIsTakenBackIsNotCounted(t *testing.T) {
	o := newObserved(t)
	ctx, cancel := context.WithCancel(context.Background())
	o.register("h", handlers.BatchHandlerFunc(
		func(context.Context, pgx.Tx, []dedup.Message) error { cancel(); return errRefused }))
	processor, p := o.processor(), o.position("orders")
	_, err := processor.Process(ctx, handlers.Batch{Position: p, Next: 1, Messages: messages(p, newIDs(1)...)})
	require.Error(t, err)
	require.Zero(t, processor.Totals())
}

func TestParkedMessagesAreCountedWhenTheyAreDoneWith(t *testing.T) {
	o := newObserved(t)
	errs := map[int64]error{0: errRefused}
	require.NoError(t, o.registry.Add(handlers.Registration{Name: "h", Topics: []string{"orders"},
		Handler: failingAt(errs),
		Retry:   handlers.Retry{Base: time.Millisecond, Cap: time.Millisecond, MaxAttempts: 2}}))
	processor, p := o.processor(), o.position("orders")
	_, err := processor.Process(context.Background(),
		handlers.Batch{Position: p, Next: 2, Messages: messages(p, newIDs(2)...)})
	require.NoError(t, err)
	require.EqualValues(t, 2, processor.Totals().Parked, "the second waits behind the first")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); processor.RunLanes(ctx) }()
	require.Eventually(t, func() bool { return processor.Totals().Handled == 1 }, 3*time.Minute, 5*time.Millisecond)
	cancel()
	<-ended
	require.Equal(t, handlers.Totals{Batches: 1, Handled: 1, Failed: 2, Parked: 2, Dead: 1}, processor.Totals())
	require.Equal(t, map[[2]string]int64{{"h", "handled"}: 1, {"h", "dead"}: 1},
		o.counted("firstseen.lane.messages", instruments.Handler, instruments.Outcome))
}

func TestTransactionIsTracedWithinTheBatchsSpan(t *testing.T) {
	o := newObserved(t)
	seen := make(chan trace.SpanContext, 1)
	o.register("h", handlers.BatchHandlerFunc(func(ctx context.Context, _ pgx.Tx, _ []dedup.Message) error {
		seen <- trace.SpanContextFromContext(ctx)
		return nil
	}))
	processor, p := o.processor(), o.position("orders")
	ctx, batch := o.tracer.Start(context.Background(), "process orders")
	_, err := processor.Process(ctx, handlers.Batch{Position: p, Next: 1, Messages: messages(p, newIDs(1)...)})
	require.NoError(t, err)
	for _, name := range []string{"accept", "handler h", "commit"} {
		require.Equal(t, batch.SpanContext().SpanID(), o.span(name).Parent().SpanID(), name)
		require.Equal(t, codes.Unset, o.span(name).Status().Code, name)
	}
	require.Equal(t, o.span("handler h").SpanContext().SpanID(), (<-seen).SpanID(),
		"a handler's own spans are its children")
}

func TestWithoutASpanAroundItABatchMakesNone(t *testing.T) {
	o := newObserved(t)
	o.register("h", effect("h"))
	p := o.position("orders")
	o.requireResult(handlers.Result{New: 1}, p, messages(p, newIDs(1)...)...)
	require.Empty(t, o.spans.Started())
}

func TestFailureShowsInTheSpanWithoutItsText(t *testing.T) {
	o := newObserved(t)
	o.register("h", failingAt(map[int64]error{1: errRefused}))
	processor, p := o.processor(), o.position("orders")
	ctx, _ := o.tracer.Start(context.Background(), "process orders")
	_, err := processor.Process(ctx, handlers.Batch{Position: p, Next: 3, Messages: keyed(messages(p, newIDs(3)...))})
	require.NoError(t, err)
	span := o.span("handler h")
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "failed on 1 of 3 messages"}, span.Status())
	require.Empty(t, span.Events())
	require.NotContains(t, fmt.Sprint(span.Attributes()), "4111")
	require.Equal(t, codes.Unset, o.span("commit").Status().Code)
}

func TestFailureIsLoggedWithinItsSpan(t *testing.T) {
	o := newObserved(t)
	var within []trace.SpanContext
	o.cfg.Logger = slog.New(spanOf{o.cfg.Logger.Handler(), &within})
	o.register("h", failingAt(map[int64]error{0: errRefused}))
	processor, p := o.processor(), o.position("orders")
	ctx, _ := o.tracer.Start(context.Background(), "process orders")
	_, err := processor.Process(ctx, handlers.Batch{Position: p, Next: 1, Messages: messages(p, newIDs(1)...)})
	require.NoError(t, err)
	require.Equal(t, []trace.SpanContext{o.span("handler h").SpanContext()}, within)
}

// spanOf notes the span that each record is logged in.
type spanOf struct {
	slog.Handler
	seen *[]trace.SpanContext
}

func (s spanOf) Handle(ctx context.Context, r slog.Record) error {
	*s.seen = append(*s.seen, trace.SpanContextFromContext(ctx))
	return s.Handler.Handle(ctx, r)
}

func TestRetryIsTracedByItselfAndLinkedToTheProducer(t *testing.T) {
	o := newObserved(t)
	errs := map[int64]error{0: errRefused}
	require.NoError(t, o.registry.Add(handlers.Registration{Name: "h", Topics: []string{"orders"},
		Handler: failingAt(errs),
		Retry:   handlers.Retry{Base: time.Millisecond, Cap: time.Millisecond}}))
	processor, p := o.processor(), o.position("orders")
	ms := messages(p, newIDs(1)...)
	sender := sentIn(&ms[0], producer)
	_, err := processor.Process(context.Background(), handlers.Batch{Position: p, Next: 1, Messages: ms})
	require.NoError(t, err)
	delete(errs, 0)
	around, _ := o.tracer.Start(context.Background(), "the program")
	ctx, cancel := context.WithCancel(around)
	ended := make(chan struct{})
	go func() { defer close(ended); processor.RunLanes(ctx) }()
	retry := o.span("retry h")
	cancel()
	<-ended
	require.False(t, retry.Parent().IsValid())
	require.Len(t, retry.Links(), 1)
	require.Equal(t, sender, retry.Links()[0].SpanContext.TraceID())
	require.Equal(t, retry.SpanContext().SpanID(), o.span("handler h").Parent().SpanID())
	require.Equal(t, retry.SpanContext().SpanID(), o.span("commit").Parent().SpanID())
}

func TestWebhooksCallIsTracedOn(t *testing.T) {
	o := newObserved(t)
	url, calls := answering(t, status(http.StatusOK))
	require.NoError(t, o.registry.Add(handlers.Registration{Name: "hook", Topics: []string{"orders"},
		Detached: webhook(t, handlers.WebhookConfig{URL: url})}))
	processor, p := o.processor(), o.position("orders")
	ms := messages(p, newIDs(1)...)
	sender := sentIn(&ms[0], producer)
	_, err := processor.Process(context.Background(), handlers.Batch{Position: p, Next: 1, Messages: ms})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); processor.RunLanes(ctx) }()
	call := <-calls
	deliver := o.span("deliver hook")
	require.Eventually(t, func() bool { return processor.Totals().Handled == 1 }, 3*time.Minute, 5*time.Millisecond)
	cancel()
	<-ended
	require.Equal(t, "00-"+deliver.SpanContext().TraceID().String()+"-"+deliver.SpanContext().SpanID().String()+"-01",
		call.header.Get("traceparent"))
	require.Len(t, deliver.Links(), 1)
	require.Equal(t, sender, deliver.Links()[0].SpanContext.TraceID())
}
