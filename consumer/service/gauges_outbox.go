package service

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/dedup/operate"
)

// outboxInstruments are those of what waits in the outbox, and of what a relay did lately.
type outboxInstruments struct {
	backlog, delayed, oldest, dead, age, throughput, failures metric.Float64Observable
}

// observeOutbox tells the last answers until stop is called.
func (g *gauges) observeOutbox() (stop func()) {
	m := g.meter
	into := &outboxInstruments{
		backlog: instruments.OutboxBacklog.Gauge(m), delayed: instruments.OutboxDelayed.Gauge(m),
		oldest: instruments.OutboxAge.Gauge(m), dead: instruments.OutboxDead.Gauge(m),
		age: instruments.PollAge.Gauge(m), throughput: instruments.OutboxThroughput.Gauge(m),
		failures: instruments.OutboxFailureRatio.Gauge(m),
	}
	return instruments.Tell(m, func(o metric.Observer) {
		now := time.Now()
		rates := g.relayed.Rates()
		o.ObserveFloat64(into.throughput, rates.Throughput)
		o.ObserveFloat64(into.failures, rates.FailureRatio)
		if found, ok := latest(o, into.age, g.outbox, now); ok {
			into.topics(o, found, now)
		}
	}, into.backlog, into.delayed, into.oldest, into.dead, into.age, into.throughput, into.failures)
}

func (g *outboxInstruments) topics(o metric.Observer, found []operate.OutboxTopic, now time.Time) {
	for i := range found {
		b := &found[i]
		of := func(more ...attribute.KeyValue) []metric.ObserveOption {
			return instruments.Observe(append(more, instruments.Topic.String(b.Topic))...)
		}
		o.ObserveFloat64(g.backlog, float64(b.Pending), of(instruments.State.String("pending"))...)
		o.ObserveFloat64(g.backlog, float64(b.Failed), of(instruments.State.String("failed"))...)
		o.ObserveFloat64(g.delayed, float64(b.Delayed), of()...)
		o.ObserveFloat64(g.oldest, ageOf(b.OldestAt, now), of()...)
		o.ObserveFloat64(g.dead, float64(b.Dead), of()...)
	}
}
