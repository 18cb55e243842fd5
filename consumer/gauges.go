package consumer

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/dedup/instruments"
)

// gauges are what a Consumer answers when it is asked how it is.
type gauges struct {
	*telemetry
	state, lag, lagAge, assigned, held, paused, openTransaction, bufferUsed, bufferLimit metric.Float64Observable
}

// observe answers with a consumer's status and its memory until stop is called.
func (t *telemetry) observe(ask func() Status, topics []Topic, buffer *memory) (stop func()) {
	m := t.meter
	g := &gauges{
		telemetry: t,
		state:     instruments.ConsumerState.Gauge(m), lag: instruments.Lag.Gauge(m), lagAge: instruments.LagTime.Gauge(m),
		assigned: instruments.Assigned.Gauge(m), held: instruments.Held.Gauge(m), paused: instruments.Paused.Gauge(m),
		openTransaction: instruments.OpenTransaction.Gauge(m),
		bufferUsed:      instruments.BufferUsed.Gauge(m), bufferLimit: instruments.BufferLimit.Gauge(m),
	}
	registration, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		status := ask()
		g.consumer(o, status.State, buffer)
		g.partitions(o, topics, status.Partitions)
		return nil
	}, g.state, g.lag, g.lagAge, g.assigned, g.held, g.paused, g.openTransaction, g.bufferUsed, g.bufferLimit)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() { _ = registration.Unregister() }
}

// of is what a gauge is observed with.
func (g *gauges) of(more ...attribute.KeyValue) []metric.ObserveOption {
	return instruments.Observe(g.with(more...)...)
}

func (g *gauges) consumer(o metric.Observer, now State, buffer *memory) {
	for _, state := range []State{Starting, Joining, Consuming, Draining, Ended} {
		o.ObserveFloat64(g.state, oneIf(state == now), g.of(instruments.State.String(string(state)))...)
	}
	o.ObserveFloat64(g.bufferUsed, float64(buffer.inUse()), g.of()...)
	o.ObserveFloat64(g.bufferLimit, float64(buffer.limit), g.of()...)
}

// heldFor is a topic's partitions that are held for one reason.
type heldFor struct{ topic, reason string }

func (g *gauges) partitions(o metric.Observer, topics []Topic, partitions []PartitionStatus) {
	held, paused := map[heldFor]int{}, map[string]int{}
	for _, t := range topics {
		paused[t.Name] = 0
	}
	for i := range partitions {
		p := &partitions[i]
		g.partition(o, p)
		if p.Held != "" {
			held[heldFor{p.Topic, p.Held}]++
		}
		if p.Paused {
			paused[p.Topic]++
		}
	}
	o.ObserveFloat64(g.assigned, float64(len(partitions)), g.of()...)
	for topic, n := range paused {
		o.ObserveFloat64(g.paused, float64(n), g.of(instruments.Topic.String(topic))...)
	}
	for h, n := range held {
		o.ObserveFloat64(g.held, float64(n), g.of(instruments.Topic.String(h.topic), instruments.Reason.String(h.reason))...)
	}
}

func (g *gauges) partition(o metric.Observer, p *PartitionStatus) {
	which := g.of(instruments.Topic.String(p.Topic), instruments.Partition.String(strconv.Itoa(int(p.Partition))))
	if p.Lag >= 0 {
		o.ObserveFloat64(g.lag, float64(p.Lag), which...)
	}
	o.ObserveFloat64(g.lagAge, p.LagTime.Seconds(), which...)
	if !p.OpenTransaction.IsZero() {
		o.ObserveFloat64(g.openTransaction, time.Since(p.OpenTransaction).Seconds(), which...)
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
