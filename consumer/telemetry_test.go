package consumer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/handlers"
)

// observed is a stage whose consumer is measured and traced.
type observed struct {
	*stage
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
	store  *dedup.Store
}

func (o *observed) configure(cc *consumer.Config, hc *handlers.Config) {
	o.reader, o.spans = sdkmetric.NewManualReader(), tracetest.NewSpanRecorder()
	cc.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.reader))
	cc.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.spans))
	hc.MeterProvider, hc.TracerProvider = cc.MeterProvider, cc.TracerProvider
	o.store = hc.Store
}

// sum is what a counter has come to, or a histogram's values, and how many those were. reason narrows it.
func (o *observed) sum(name, reason string) (sum float64, n uint64) {
	o.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(o.t, o.reader.Collect(context.Background(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if v, _ := p.Attributes.Value(instruments.Reason); v.AsString() == reason {
						sum += float64(p.Value)
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					sum, n = sum+p.Sum, n+p.Count
				}
			}
		}
	}
	return sum, n
}

func (o *observed) named(name string) (found []sdktrace.ReadOnlySpan) {
	for _, s := range o.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

// sent gives records the traceparent of a span, each of its own.
func sent(rs []*kgo.Record) {
	for i, r := range rs {
		r.Headers = append(r.Headers,
			kgo.RecordHeader{Key: "traceparent", Value: fmt.Appendf(nil, "00-%032x-%016x-01", i+1, i+1)})
	}
}

func TestBatchesAreMeasuredAndTraced(t *testing.T) {
	t.Parallel()
	const n = 300
	o := &observed{stage: newStage(t, consumertest.NewFake(t).Addr, 1)}
	rs := o.records(n, 10)
	sent(rs)
	consumertest.Produce(t, o.addr, rs...)
	stop := o.start(o.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		o.configure(cc, hc)
		cc.MaxBatch = 200
	}))
	o.caughtUp()
	stop()

	consumed, _ := o.sum("messaging.client.consumed.messages", "")
	require.EqualValues(t, n, consumed)
	size, batches := o.sum("firstseen.batch.size", "")
	require.EqualValues(t, n, size)
	_, processed := o.sum("messaging.process.duration", "")
	require.Equal(t, batches, processed)
	fetched, _ := o.sum("firstseen.fetch.size", "")
	require.Greater(t, fetched, float64(n*len("value-1")))
	_, polls := o.sum("messaging.client.operation.duration", "")
	require.NotZero(t, polls)
	rebalances, _ := o.sum("firstseen.rebalances", "")
	require.EqualValues(t, 1, rebalances)

	spans := o.named("process " + o.topic)
	require.NotEmpty(t, spans)
	linked := map[trace.TraceID]bool{}
	for _, s := range spans {
		require.Equal(t, trace.SpanKindConsumer, s.SpanKind())
		require.LessOrEqual(t, len(s.Links()), instruments.MaxLinks)
		require.Contains(t, s.Attributes(), instruments.Topic.String(o.topic))
		require.Contains(t, s.Attributes(), instruments.Group.String(o.group))
		for _, l := range s.Links() {
			linked[l.SpanContext.TraceID()] = true
		}
	}
	require.True(t, linked[trace.TraceID{15: 1}], "the first message's producer")
	require.GreaterOrEqual(t, len(linked), min(n, instruments.MaxLinks))
	require.Equal(t, spans[0].SpanContext().SpanID(), o.named("handler effect")[0].Parent().SpanID())
	require.NotEmpty(t, o.named("poll"))
}

func TestFencedOwnerIsCounted(t *testing.T) {
	t.Parallel()
	o := &observed{stage: newStage(t, consumertest.NewFake(t).Addr, 1)}
	consumertest.Produce(t, o.addr, o.records(1, 1)...)
	stop := o.start(o.consumer(o.configure))
	o.caughtUp()
	_, err := o.store.Acquire(context.Background(), o.group, o.topic, 0, "another owner")
	require.NoError(t, err)
	consumertest.Produce(t, o.addr, o.records(1, 1)...)
	require.Eventually(t, func() bool {
		fences, _ := o.sum("firstseen.fences", "")
		again, _ := o.sum("firstseen.rebalances", "")
		return fences == 1 && again == 2
	}, 3*time.Minute, 20*time.Millisecond)
	o.caughtUp()
	stop()
	failed, _ := o.sum("firstseen.batch.failures", "fenced")
	require.EqualValues(t, 1, failed)
	consumed, _ := o.sum("messaging.client.consumed.messages", "")
	require.EqualValues(t, 3, consumed, "the message of the refused batch comes again")
}

func TestBatchThatFailsShowsItsKindOnly(t *testing.T) {
	t.Parallel()
	o := &observed{stage: newStage(t, consumertest.NewFake(t).Addr, 1)}
	stop := o.start(o.consumer(o.configure))
	o.exec(`alter table firstseen.inbox rename to away`)
	consumertest.Produce(t, o.addr, o.record("k", "a secret", "11111111-1111-4111-8111-111111111111"))
	require.Eventually(t, func() bool {
		failed, _ := o.sum("firstseen.batch.failures", consumer.HeldPostgres)
		return failed > 0
	}, 3*time.Minute, 20*time.Millisecond)
	o.exec(`alter table firstseen.away rename to inbox`)
	o.caughtUp()
	stop()
	span := o.named("process " + o.topic)[0]
	require.Equal(t, "42P01", span.Status().Description)
	require.NotContains(t, fmt.Sprint(span.Attributes(), span.Events()), "secret")
}
