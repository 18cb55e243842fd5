package main

import (
	"context"
	"log/slog"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/telemetry"
	"github.com/firstseen/firstseen/dedup"
)

// startTelemetry sets up what the program is measured and traced with; the library's parts find it by themselves, as
// OpenTelemetry's global providers. A fault in OpenTelemetry's environment is one in the config.
func startTelemetry(ctx context.Context, log *slog.Logger) (*telemetry.Telemetry, error) {
	version, revision := builtFrom()
	t, err := telemetry.Start(ctx, telemetry.Config{Version: version, Revision: revision, Logger: log})
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	return t, nil
}

// measure has the figures measured that are known only by asking, and moves the window, until stop is called.
func measure(ctx context.Context, t *telemetry.Telemetry, live *config.Live, store *dedup.Store, window *telemetry.Window, log *slog.Logger) (stop func()) {
	figures := telemetry.NewFigures(telemetry.FiguresConfig{
		Store:    store,
		Window:   window,
		Capacity: func() int64 { return int64(live.Load().Postgres.Capacity) },

		MeterProvider: t.MeterProvider, Logger: log,
	})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); figures.Run(ctx) }()
	return func() {
		cancel()
		<-done
	}
}
