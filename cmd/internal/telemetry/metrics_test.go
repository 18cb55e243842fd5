package telemetry

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/firstseen/firstseen/dedup/instruments"
)

// shown is an instrument as Prometheus sees it.
type shown struct {
	*instruments.Instrument
	name   string
	labels []string
}

// catalogue has every instrument as Prometheus shows it: each is made and given a value with all its attributes.
func catalogue(t *testing.T) (all []shown) {
	for _, i := range instruments.All() {
		registry := prometheus.NewRegistry()
		reader, err := newReader(registry)
		require.NoError(t, err)
		give(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"), i)
		families, err := registry.Gather()
		require.NoError(t, err)
		s := shown{Instrument: i}
		for _, family := range families {
			if family.GetName() != "target_info" {
				s.name = family.GetName()
				for _, label := range family.GetMetric()[0].GetLabel() {
					s.labels = append(s.labels, label.GetName())
				}
			}
		}
		all = append(all, s)
	}
	return all
}

func give(m metric.Meter, i *instruments.Instrument) {
	ctx := context.Background()
	switch i.Kind {
	case instruments.Counter:
		i.Counter(m).Add(ctx, 1, instruments.Add(values(i)...)...)
	case instruments.Histogram:
		i.Histogram(m).Record(ctx, 1, instruments.Record(values(i)...)...)
	case instruments.Gauge:
		g := i.Gauge(m)
		_, _ = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
			o.ObserveFloat64(g, 1, instruments.Observe(values(i)...)...)
			return nil
		}, g)
	}
}

func values(i *instruments.Instrument) (vs []attribute.KeyValue) {
	for _, key := range i.Attributes {
		vs = append(vs, key.String("x"))
	}
	return vs
}

func metricsPage(t *testing.T) string {
	var page strings.Builder
	page.WriteString(metricsIntro)
	part := ""
	for _, s := range catalogue(t) {
		if s.Part != part {
			part = s.Part
			require.Contains(t, instruments.MadeBy, part)
			fmt.Fprintf(&page, "\n## %s\n\nMade by %s.\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n",
				part, instruments.MadeBy[part])
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s |\n",
			s.name, s.Kind, s.Unit, strings.Join(shorten(s.labels), ", "), s.About)
	}
	return page.String()
}

const metricsIntro = `# Metrics

Written by a test from ` + "`dedup/instruments`" + `: ` + "`FIRSTSEEN_UPDATE_GOLDEN=1 go test ./cmd/internal/telemetry -run Metrics`" + `.

` + "`firstseen run`" + ` shows these at /metrics where http.listen is set, and sends them to an OpenTelemetry collector where
OTEL_EXPORTER_OTLP_ENDPOINT says where one is. A program with handlers of its own has the same ones of OpenTelemetry's global
MeterProvider, or of the MeterProvider of each config, from the packages that each part names: it sets one up, and shows or
sends what that has. With package consumer/service it has all of them, and every alert of [alerts.yaml](alerts.yaml) is as
good for it; go_* and process_* come from its Prometheus registry.

Names are as Prometheus shows them, where OpenTelemetry's exporter adds units and _total, and no scope; those that begin with
messaging_ are of OpenTelemetry's semantic conventions 1.43.0 (in OpenTelemetry: dots for underscores, no unit and no _total at
the end). A histogram has _bucket, _sum and _count.

Labels are written short here: topic is messaging_destination_name, partition messaging_destination_partition_id, group
messaging_consumer_group_name, operation messaging_operation_name, type messaging_operation_type, system messaging_system;
handler, outcome, reason, state, table and figure begin with firstseen_. No label holds a key, an ID or an error's text.

What is counted is this process' alone: add the processes up. What lies in Postgres every process sees the same of: take one
(max). Counters begin at 0 with the process. Beside these there are go_*, process_* and target_info.
`

// shorten writes labels as the page does.
func shorten(labels []string) (short []string) {
	names := strings.NewReplacer("messaging_destination_name", "topic", "messaging_destination_partition_id",
		"partition", "messaging_consumer_group_name", "group", "messaging_operation_name", "operation",
		"messaging_operation_type", "type", "messaging_system", "system", "firstseen_", "")
	for _, l := range labels {
		short = append(short, names.Replace(l))
	}
	return short
}

func TestMetricsPageListsEveryInstrument(t *testing.T) {
	requireGolden(t, "METRICS.md", metricsPage(t))
}

// requireGolden compares a page under docs with what it should be. With FIRSTSEEN_UPDATE_GOLDEN set it is written
// anew.
func requireGolden(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(docs, name)
	if os.Getenv("FIRSTSEEN_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644)) //nolint:gosec // a page of docs
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got),
		"write it anew: FIRSTSEEN_UPDATE_GOLDEN=1 go test ./cmd/internal/telemetry -run Metrics")
}

const docs = "../../../docs"
