package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// environ has what the environment asks for. All else in it the SDK reads by itself.
type environ struct {
	disabled        bool // OTEL_SDK_DISABLED
	metrics, traces bool // by OTLP
}

// readEnviron reports every fault at once.
func readEnviron() (environ, error) {
	e := environ{disabled: strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true")}
	var faults [5]error
	e.metrics, faults[0] = exports("METRICS")
	e.traces, faults[1] = exports("TRACES")
	if (e.metrics || e.traces) && !e.disabled {
		faults[2] = checkOTLP("")
	}
	if e.metrics && !e.disabled {
		faults[3] = checkOTLP("METRICS")
	}
	if e.traces && !e.disabled {
		faults[4] = checkOTLP("TRACES")
	}
	return e, errors.Join(faults[:]...)
}

// exports says whether a signal goes to a collector: where its address is given, unless it is said not to.
func exports(signal string) (bool, error) {
	switch name := "OTEL_" + signal + "_EXPORTER"; os.Getenv(name) {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, fmt.Errorf("%s: %q is not known: say otlp or none; Prometheus fetches from /metrics in any case",
			name, os.Getenv(name))
	}
	if otlp(signal, "ENDPOINT") == "" {
		return false, nil
	}
	if protocol := otlp(signal, "PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return true, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL, for %s: %q is not spoken: say http/protobuf, "+
			"and the collector's port for HTTP, 4318 by default", strings.ToLower(signal), protocol)
	}
	return true, nil
}

// otlp is the value of a variable of OTLP for a signal, or else for all.
func otlp(signal, what string) string {
	return cmp.Or(variable(otlpPrefix+signal+"_"+what), variable(otlpPrefix+what))
}

func newMetricExporter(ctx context.Context) (sdkmetric.Exporter, error) {
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up the export of metrics by OTLP: %w", err)
	}
	return exporter, nil
}

// newTracerProvider makes spans as OTEL_TRACES_SAMPLER says. A full queue drops spans, and holds nobody up.
func newTracerProvider(ctx context.Context, about *resource.Resource) (*sdktrace.TracerProvider, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up the export of traces by OTLP: %w", err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(exporter)), nil
}
