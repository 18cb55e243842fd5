package ingress_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/handlers"
)

func TestRequestsAreCountedByStatusAndByTheReasonOfARefusal(t *testing.T) {
	s := newStage(t)
	reader := sdkmetric.NewManualReader()
	s.cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	s.cfg.Concurrency = 1
	started, finish := make(chan struct{}), make(chan struct{})
	s.register("book", handlers.Each(handlers.HandlerFunc(func(_ context.Context, _ pgx.Tx, m dedup.Message) error {
		if string(m.Value) == `"slow"` {
			close(started)
			<-finish
		}
		return nil
	})))
	orders := s.serve()
	at := orders.post("k1", mail).header.Get("Location")
	orders.post("k1", mail)
	orders.post("", mail)
	orders.get(at)
	orders.post("k2", mail, "Prefer", "respond-async")
	orders.post("k3", `x`)
	orders.post("k3", mail, "Authorization", "Bearer wrong")
	slow := make(chan answer, 1)
	go orders.postTo(slow, "k4", `{"content":"slow"}`)
	<-started
	orders.post("k5", mail)
	close(finish)
	<-slow
	s.exec(`alter table firstseen.enqueued rename to gone`)
	orders.post("k1", mail)
	require.Equal(t, map[string]int64{"orders 201": 3, "orders 200": 2, "orders 202": 1, "orders 400 not_json": 1,
		"401 unauthorized": 1, "orders 503 busy": 1, "orders 500 failed": 1}, counted(t, reader))
}

// counted are the values of the counter of requests, by topic, status and reason.
func counted(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	found := map[string]int64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != instruments.IngressRequests.Name {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			topic, _ := p.Attributes.Value(instruments.Topic)
			status, _ := p.Attributes.Value(instruments.Status)
			reason, _ := p.Attributes.Value(instruments.Reason)
			found[strings.TrimSpace(topic.AsString()+" "+status.String()+" "+reason.AsString())] += p.Value
		}
	}
	return found
}
