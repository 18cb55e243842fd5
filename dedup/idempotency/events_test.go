package idempotency_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/firstseen/firstseen/dedup/instruments"
)

func TestRequestsWithAKeyAreCountedByWhatBecameOfThem(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		reader := sdkmetric.NewManualReader()
		s.cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		orders := serve(s.create)
		orders.post("k", `{}`)
		orders.post("k", `{}`)
		orders.post("k", `{"other":1}`)
		orders.post("", `{}`)
		s.cfg.Concurrency = 1
		var small *service
		small = serve(func(w http.ResponseWriter, r *http.Request) {
			small.post("m", `{}`)
			s.create(w, r)
		})
		small.post("l", `{}`)
		s.exec(`alter table firstseen.idempotency rename to gone`)
		orders.post("k", `{}`)
		require.Equal(t, map[string]int64{"miss": 2, "hit": 1, "conflict": 1, "busy": 1, "unavailable": 1}, outcomes(t, reader))
		require.NotContains(t, s.heard(), "unavailable", "events are of what is known")
	})
}

// outcomes are the counter's values.
func outcomes(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	found := map[string]int64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			outcome, _ := p.Attributes.Value(instruments.Outcome)
			found[outcome.AsString()] += p.Value
		}
	}
	return found
}
