package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
)

// gaugesOf are the gauges that a status gives, by name and attributes.
func gaugesOf(t *testing.T, status Status, stop bool) map[string]float64 {
	reader := sdkmetric.NewManualReader()
	cfg := Config{Group: "g", Topics: []Topic{{Name: "orders"}, {Name: "idle"}},
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
	buffer := memory.New(1000)
	require.True(t, buffer.Try(300))
	end := newTelemetry(&cfg).observe(func() Status { return status }, buffer)
	if stop {
		end()
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	found := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if gauge, ok := m.Data.(metricdata.Gauge[float64]); ok {
				for _, p := range gauge.DataPoints {
					require.True(t, p.Attributes.HasValue("messaging.consumer.group.name"))
					found[m.Name+"{"+p.Attributes.Encoded(short{})+"}"] = p.Value
				}
			}
		}
	}
	return found
}

// short encodes attributes by their values, without the group's.
type short struct{}

func (short) ID() attribute.EncoderID { return attribute.EncoderID{} }

func (short) Encode(i attribute.Iterator) (text string) {
	for i.Next() {
		if a := i.Attribute(); a.Key != "messaging.consumer.group.name" {
			text += " " + a.Value.String()
		}
	}
	return text
}

func TestGaugesAreTheStatus(t *testing.T) {
	found := gaugesOf(t, Status{State: Consuming, Partitions: []PartitionStatus{
		{Topic: "orders", Partition: 0, Lag: 70, LagTime: 90 * time.Second, Held: HeldPostgres},
		{Topic: "orders", Partition: 1, Lag: -1, Held: HeldPostgres, Paused: true},
		{Topic: "orders", Partition: 2, Held: HeldMaxParked, OpenTransaction: time.Now().Add(-time.Hour)},
	}, Holds: []holds.Hold{
		{Subject: holds.Partition("orders", 0), Code: HeldPostgres, Since: time.Now().Add(-time.Hour)},
		{Subject: holds.Partition("orders", 1), Code: HeldPostgres, Since: time.Now()},
		{Subject: holds.Subject{Kind: holds.TopicKind, Name: "idle"}, Code: holds.Missing, Since: time.Now()},
	}, Topics: []TopicStatus{{Name: "orders"}, {Name: "idle", Held: holds.Missing}}}, false)
	require.InDelta(t, 3600, found["firstseen.holds.age{ postgres partition}"], 60)
	require.InDelta(t, 0, found["firstseen.holds.age{ topic_missing topic}"], 60)
	delete(found, "firstseen.holds.age{ postgres partition}")
	delete(found, "firstseen.holds.age{ topic_missing topic}")
	require.InDelta(t, 3600, found["firstseen.open_transaction.age{ orders 2}"], 60)
	delete(found, "firstseen.open_transaction.age{ orders 2}")
	require.Equal(t, map[string]float64{
		"firstseen.consumer.state{ starting}": 0, "firstseen.consumer.state{ joining}": 0,
		"firstseen.consumer.state{ consuming}": 1,
		"firstseen.consumer.state{ draining}":  0, "firstseen.consumer.state{ ended}": 0,
		"firstseen.buffer.usage{}": 300, "firstseen.buffer.limit{}": 1000,
		"firstseen.partitions.assigned{}":               3,
		"firstseen.partitions.held{ postgres orders}":   2,
		"firstseen.partitions.held{ max_parked orders}": 1,
		"firstseen.partitions.paused{ orders}":          1,
		"firstseen.holds{ postgres partition}":          2,
		"firstseen.holds{ topic_missing topic}":         1,
		"firstseen.topic.readable{ orders}":             1,
		"firstseen.topic.readable{ idle}":               0,
		"firstseen.partitions.paused{ idle}":            0,
		"firstseen.lag{ orders 0}":                      70,
		"firstseen.lag{ orders 2}":                      0,
		"firstseen.lag.age{ orders 0}":                  90,
		"firstseen.lag.age{ orders 1}":                  0,
		"firstseen.lag.age{ orders 2}":                  0,
	}, found)
}

func TestGaugesEndWithTheConsumer(t *testing.T) {
	require.Empty(t, gaugesOf(t, Status{State: Ended}, true))
}
