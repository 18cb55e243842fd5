package consumer

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/dedup/memory"
)

// gauges are a Consumer's polled metrics: one callback observes them all at each collection.
type gauges struct {
	*telemetry
	holdGauges
	state, lag, lagAge, assigned, partitionsHeld, paused, openTransaction, bufferUsed, bufferLimit,
	bufferWait, readable metric.Float64Observable
}

// observe answers with a consumer's status and its memory until stop is called.
func (t *telemetry) observe(ask func() Status, buffer *memory.Account) (stop func()) {
	m := t.meter
	g := &gauges{
		telemetry: t,
		state:     instruments.ConsumerState.Gauge(m), lag: instruments.Lag.Gauge(m),
		lagAge:   instruments.LagTime.Gauge(m),
		assigned: instruments.Assigned.Gauge(m), partitionsHeld: instruments.Held.Gauge(m),
		paused:          instruments.Paused.Gauge(m),
		openTransaction: instruments.OpenTransaction.Gauge(m),
		holdGauges:      newHoldGauges(m, t.base), readable: instruments.Readable.Gauge(m),
		bufferUsed: instruments.BufferUsed.Gauge(m), bufferLimit: instruments.BufferLimit.Gauge(m),
		bufferWait: instruments.BufferWait.Total(m),
	}
	return instruments.Tell(m, func(o metric.Observer) {
		status := ask()
		g.consumer(o, status.State, buffer)
		g.partitions(o, status.Topics, status.Partitions)
		g.tell(o, status.Holds)
		for _, t := range status.Topics {
			o.ObserveFloat64(g.readable, oneIf(t.Held == ""), g.of(instruments.Topic.String(t.Name))...)
		}
	}, g.state, g.lag, g.lagAge, g.assigned, g.partitionsHeld, g.paused, g.openTransaction, g.bufferUsed,
		g.bufferLimit, g.bufferWait, g.holds, g.ages, g.readable)
}

func (g *gauges) consumer(o metric.Observer, now State, buffer *memory.Account) {
	for _, state := range []State{Starting, Joining, Consuming, Draining, Ended} {
		o.ObserveFloat64(g.state, oneIf(state == now), g.of(instruments.State.String(string(state)))...)
	}
	o.ObserveFloat64(g.bufferUsed, float64(buffer.Used()), g.of()...)
	o.ObserveFloat64(g.bufferLimit, float64(buffer.Limit()), g.of()...)
	o.ObserveFloat64(g.bufferWait, buffer.Waited().Seconds(), g.of()...)
}

// heldFor is a topic's partitions that are held for one reason.
type heldFor struct{ topic, reason string }

func (g *gauges) partitions(o metric.Observer, topics []TopicStatus, partitions []PartitionStatus) {
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
		o.ObserveFloat64(g.partitionsHeld, float64(n),
			g.of(instruments.Topic.String(h.topic), instruments.Reason.String(h.reason))...)
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

// holdGauges tell what waits.
type holdGauges struct {
	of          func(more ...attribute.KeyValue) []metric.ObserveOption
	holds, ages metric.Float64Observable
}

func newHoldGauges(m metric.Meter, base []attribute.KeyValue) holdGauges {
	of := func(more ...attribute.KeyValue) []metric.ObserveOption {
		return instruments.Observe(append(base[:len(base):len(base)], more...)...)
	}
	return holdGauges{of, instruments.Holds.Gauge(m), instruments.HoldAge.Gauge(m)}
}

// ObserveHolds measures what waits before there is a Consumer, in the name of a group, until stop is called. A
// Consumer's Run does so itself.
func ObserveHolds(r *holds.Registry, group string, provider metric.MeterProvider) (stop func()) {
	m := provider.Meter(fetch.Scope)
	g := newHoldGauges(m, []attribute.KeyValue{instruments.Group.String(group)})
	return instruments.Tell(m, func(o metric.Observer) {
		g.tell(o, r.List())
	}, g.holds, g.ages)
}

// tell observes how much waits for each reason, and how long the first of it has. The list has the oldest first.
func (g *holdGauges) tell(o metric.Observer, list []holds.Hold) {
	type by struct{ kind, code string }
	counts, oldest := map[by]int{}, map[by]time.Time{}
	for i := range list {
		b := by{string(list[i].Kind), list[i].Code}
		if counts[b]++; counts[b] == 1 {
			oldest[b] = list[i].Since
		}
	}
	for b, n := range counts {
		of := g.of(instruments.Subject.String(b.kind), instruments.Reason.String(b.code))
		o.ObserveFloat64(g.holds, float64(n), of...)
		o.ObserveFloat64(g.ages, time.Since(oldest[b]).Seconds(), of...)
	}
}
