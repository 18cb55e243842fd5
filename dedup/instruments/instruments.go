// Package instruments says what firstseen measures: each metric's name, unit, attributes and meaning, in one place,
// and what spans carry. The packages above make their instruments from it, and docs/METRICS.md is generated from it.
//
// Names are those of OpenTelemetry's semantic conventions for messaging, version 1.43.0, where they have one; all
// others begin with firstseen. No attribute holds a key, an ID, a payload or an error's text.
package instruments

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Kind is the kind of an instrument.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"   // adds them up
	Histogram Kind = "histogram" // counts how many are how large
	Gauge     Kind = "gauge"     // is asked for one
)

// Instrument is a metric.
type Instrument struct {
	// Part is the heading that it stands under in docs/METRICS.md.
	Part string
	Name string
	Kind Kind
	// Unit is UCUM's: s, By, or what is counted in braces.
	Unit string
	// About says what it means.
	About string
	// Attributes are all that a value may have.
	Attributes []attribute.Key
	// Buckets are a histogram's upper bounds.
	Buckets []float64
}

// MadeBy says of each part of the catalogue what makes its instruments in a program with handlers of its own.
var MadeBy = map[string]string{
	ofProcess: "package consumer/service, from its Start on, before Postgres or Kafka is reached",
	fromKafka: "package consumer, while a Consumer runs; what waits at the start by package consumer/service",
	ofMessages: "package handlers, for each Processor: a consumer's, and an outbox's relay's, whose handlers are its " +
		"destinations",
	overHTTP: "packages dedup/idempotency and handlers/ingress, for each middleware and ingress",
	inPostgres: "package consumer/service, once it has parts. firstseen_disk_days_left takes Settings.Capacity " +
		"(postgres.capacity), and the window is that of Settings.Health (health.window)",
	ofOutbox: "package consumer/service, where its parts have Relayed; `firstseen run` has them with outbox.destinations",
}

// all is filled by define.
var all []*Instrument

func define(part string, i Instrument) *Instrument {
	i.Part = part
	all = append(all, &i)
	return &i
}

// All lists every instrument.
func All() []*Instrument { return slices.Clone(all) }

// Counter makes the instrument, a counter.
func (i *Instrument) Counter(m metric.Meter) metric.Int64Counter {
	c, err := m.Int64Counter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.About))
	return handled(c, err)
}

// Histogram makes the instrument, a histogram.
func (i *Instrument) Histogram(m metric.Meter) metric.Float64Histogram {
	h, err := m.Float64Histogram(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.About),
		metric.WithExplicitBucketBoundaries(i.Buckets...))
	return handled(h, err)
}

// Gauge makes the instrument, a gauge.
func (i *Instrument) Gauge(m metric.Meter) metric.Float64ObservableGauge {
	g, err := m.Float64ObservableGauge(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.About))
	return handled(g, err)
}

// Total makes the instrument, a counter that is asked for what it has come to.
func (i *Instrument) Total(m metric.Meter) metric.Float64ObservableCounter {
	c, err := m.Float64ObservableCounter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.About))
	return handled(c, err)
}

// handled reports an error where OpenTelemetry has its own reported: the instrument works all the same, or does
// nothing.
func handled[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

// Tell has instruments that are asked answered by tell, until stop is called. An error is OpenTelemetry's to report:
// nothing is told then.
func Tell(m metric.Meter, tell func(metric.Observer), of ...metric.Observable) (stop func()) {
	registration, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		tell(o)
		return nil
	}, of...)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() { _ = registration.Unregister() }
}

// Add makes the options of a counter's Add once for values that have the same attributes.
func Add(attributes ...attribute.KeyValue) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
}

// Record makes those of a histogram's Record.
func Record(attributes ...attribute.KeyValue) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
}

// Observe makes those of a gauge's observation.
func Observe(attributes ...attribute.KeyValue) []metric.ObserveOption {
	return []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
}
