// Package instruments says what firstseen measures: each metric's name, unit, attributes and meaning, in one place,
// and what spans carry. The packages above make their instruments from it, and docs/METRICS.md is generated from it.
//
// Names are those of OpenTelemetry's semantic conventions for messaging, version 1.43.0, where they have one; all
// others begin with firstseen. No attribute holds a key, an ID, a payload or an error's text.
package instruments

import (
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Kind is what an instrument does with its values.
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

// Add is what a counter's Add takes, made once for values that have the same attributes.
func Add(attributes ...attribute.KeyValue) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
}

// Record is what a histogram's Record takes.
func Record(attributes ...attribute.KeyValue) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
}

// Observe is what a gauge is observed with.
func Observe(attributes ...attribute.KeyValue) []metric.ObserveOption {
	return []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
}
