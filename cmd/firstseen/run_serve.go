package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/cmd/internal/admin"
	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/telemetry"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
)

// serve starts the HTTP server for probes, metrics and the admin API, before Postgres or Kafka is reached. It gives nil
// where the config names no address.
func serve(ctx context.Context, live *config.Live, pool *pgxpool.Pool, metrics http.Handler, waiting *holds.Registry,
	log *slog.Logger) (*admin.Server, error) {
	if live.Load().HTTP.Listen == "" {
		return nil, nil
	}
	version, _ := builtFrom()
	server, err := admin.New(admin.Config{Live: live, Version: version, Pool: pool, Metrics: metrics, Holds: waiting,
		Logger: log})
	if err != nil {
		return nil, err
	}
	return server, server.Start(ctx)
}

func warnHTTP(h config.HTTP, log *slog.Logger) {
	host, _, err := net.SplitHostPort(h.Listen)
	if err != nil || h.CertFile != "" {
		return
	}
	address, err := netip.ParseAddr(host)
	local := host == "localhost" || err == nil && address.IsLoopback()
	if !local && (h.ReadToken != "" || h.WriteToken != "") {
		log.Warn("http.listen is open to other hosts without TLS: tokens and messages cross the network as they are; set http.cert_file and http.key_file")
	}
}

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

// measure has the gauges told that are known only by asking, and moves the window, until stop is called.
func measure(ctx context.Context, t *telemetry.Telemetry, live *config.Live, store *dedup.Store,
	window *telemetry.Window, log *slog.Logger) (stop func()) {
	gauges := telemetry.NewGauges(telemetry.GaugesConfig{
		Inbox:    operate.Of(store),
		Window:   window,
		Capacity: func() int64 { return int64(live.Load().Postgres.Capacity) },

		MeterProvider: t.MeterProvider, Logger: log,
	})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); gauges.Run(ctx) }()
	return func() {
		cancel()
		<-done
	}
}
