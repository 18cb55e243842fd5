// Package telemetry sends out what the program measures and traces. Metrics are there for Prometheus to fetch
// ([Telemetry.Handler]); metrics and traces go to an OpenTelemetry collector as well where the environment names one.
// What is measured says package dedup/instruments; here is the SDK.
//
// The environment is OpenTelemetry's: OTEL_EXPORTER_OTLP_ENDPOINT and its like (OTLP over HTTP), OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER (otlp or none),
// OTEL_METRIC_EXPORT_INTERVAL, OTEL_BSP_*, OTEL_SDK_DISABLED. A collector that does not answer costs nothing but what
// it would have been told.
//
// Files in reading order: telemetry.go, environ.go, prometheus.go, otlp.go, logs.go.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// Config says who is measured.
type Config struct {
	// Version is the program's.
	Version string
	// Logger hears of a collector that can't be reached. Default slog.Default().
	Logger *slog.Logger
}

// Telemetry is the SDK at work.
type Telemetry struct {
	// MeterProvider and TracerProvider are for the library's configs. They are OpenTelemetry's global ones too.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// Handler answers with the metrics in Prometheus' format, those of Go's runtime and of the process too.
	Handler http.Handler

	log      *slog.Logger
	stop     []func(context.Context) error
	patience time.Duration // of Stop
}

// most caps the series of one instrument: a lag for each partition, say. Beyond it they are added up.
const most = 20_000

// Start sets everything up, as the environment says. It connects to nothing and waits for nothing. Its errors are
// faults in the environment. Stop ends it.
func Start(ctx context.Context, cfg Config) (*Telemetry, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	otel.SetLogger(logr.FromSlogHandler(valueless{cfg.Logger.Handler()}))
	env, err := readEnviron()
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(newThrottledErrors(cfg.Logger))
	t := &Telemetry{MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: tracenoop.NewTracerProvider(),
		log: cfg.Logger, patience: stopLimit}
	registry := newRegistry()
	t.Handler = handler(registry, cfg.Logger)
	if !env.disabled {
		about, err := about(ctx, cfg)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(t.measure(ctx, env, registry, about), t.trace(ctx, env, about)); err != nil {
			return nil, errors.Join(err, t.shutdown(ctx))
		}
	}
	otel.SetMeterProvider(t.MeterProvider)
	otel.SetTracerProvider(t.TracerProvider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return t, nil
}

// about describes this process in all that is sent.
func about(ctx context.Context, cfg Config) (*resource.Resource, error) {
	r, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(semconv.ServiceName("firstseen"), semconv.ServiceVersion(cfg.Version),
			semconv.ServiceInstanceID(uuid.NewString())), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return r, nil
}

// measure has metrics kept for Prometheus, and sent to a collector where there is one.
func (t *Telemetry) measure(ctx context.Context, env environ, registry registerer, about *resource.Resource) error {
	reader, err := newReader(registry)
	if err != nil {
		return err
	}
	options := []sdkmetric.Option{sdkmetric.WithResource(about), sdkmetric.WithReader(reader),
		sdkmetric.WithCardinalityLimit(most)}
	if env.metrics {
		exporter, err := newMetricExporter(ctx)
		if err != nil {
			return err
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	}
	provider := sdkmetric.NewMeterProvider(options...)
	t.MeterProvider, t.stop = provider, append(t.stop, provider.Shutdown)
	return nil
}

// trace has spans sent to a collector. Without one there are none.
func (t *Telemetry) trace(ctx context.Context, env environ, about *resource.Resource) error {
	if !env.traces {
		return nil
	}
	provider, err := newTracerProvider(ctx, about)
	if err != nil {
		return err
	}
	t.TracerProvider, t.stop = provider, append(t.stop, provider.Shutdown)
	return nil
}

const stopLimit = 5 * time.Second

// Stop sends what was not sent yet, in bounded time, and ends everything.
func (t *Telemetry) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), t.patience)
	defer cancel()
	if err := t.shutdown(ctx); err != nil {
		t.log.Warn("the last metrics and traces were not sent", "error", err)
	}
}

// shutdown ends all at once: one that hangs must not take the other's time.
func (t *Telemetry) shutdown(ctx context.Context) error {
	ended := make(chan error, len(t.stop))
	for _, stop := range t.stop {
		go func() { ended <- stop(ctx) }()
	}
	var faults []error
	for range t.stop {
		faults = append(faults, <-ended)
	}
	return errors.Join(faults...)
}
