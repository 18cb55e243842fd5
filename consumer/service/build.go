package service

import (
	"runtime"
	"runtime/debug"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/dedup/instruments"
)

// builtFrom is what Go has noted of the program's main module; empty where it has not.
func builtFrom() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return info.Main.Version, revision
}

// observeBuild says which build this is, and which shard it works on, until stop is called: by it is known that a
// process is there at all.
func (s *Service) observeBuild() (stop func()) {
	m := s.cfg.MeterProvider.Meter(scope)
	gauge := instruments.BuildInfo.Gauge(m)
	labels := []attribute.KeyValue{instruments.Version.String(s.cfg.Version),
		instruments.Revision.String(s.cfg.Revision), instruments.GoVersion.String(runtime.Version())}
	if s.cfg.Shard != "" {
		labels = append(labels, instruments.Shard.String(s.cfg.Shard))
	}
	of := instruments.Observe(labels...)
	return instruments.Tell(m, func(o metric.Observer) {
		o.ObserveFloat64(gauge, 1, of...)
	}, gauge)
}
