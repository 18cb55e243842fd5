package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/admin"
	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/telemetry"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/migrations"
)

const runLong = `Consume the topics of the config and give each new message to its handlers: Postgres functions, and webhooks. The
message's ID, what the functions do and the position in the topic are committed in one transaction. A webhook is called
after that, with the ID as Idempotency-Key: once or, after a crash or a lost answer, more often.

The config is one YAML file: --config, or the file that FIRSTSEEN_CONFIG names, or ./firstseen.yaml. Each key can be
given by an environment variable instead, FIRSTSEEN_ and the key in capitals with _ for each dot:

  postgres.dsn       FIRSTSEEN_POSTGRES_DSN
  kafka.brokers      FIRSTSEEN_KAFKA_BROKERS      kafka-1:9092,kafka-2:9092
  topics             FIRSTSEEN_TOPICS             [{name: orders, handlers: [{name: book, function: book_order}]}]

Secrets stay out of the file as ${NAME} of the environment, or in files of their own (postgres.dsn_file,
kafka.sasl.password_file, http.read_token_file, http.write_token_file, a webhook's secret_file).

SIGHUP: the config is read again, as it is some seconds after its file or that of a secret has changed. log.level,
health, retention, http.rate and the tokens of http take effect at once; other changes are logged as waiting for a
restart. A config with faults is logged and changes nothing.

Where Postgres can't be reached, that is an outage: it is logged and tried again, for as long as it takes. Where it
refuses (a wrong password, no such database, no such function, a schema of another version, rights that the login lacks),
or where a handler can't be what the config says, the program ends with exit code 1. Kafka is tried again whatever it
answers, for a cluster that is being set up or rolled refuses in passing; each refusal is logged.

SIGTERM or SIGINT: open batches are finished, for at most timeouts.drain, offsets are committed and the group is
left. A second signal ends the program at once: what was open is rolled back by Postgres and comes again.

Metrics are at /metrics where http.listen is set. Metrics and traces go to an OpenTelemetry collector where
OTEL_EXPORTER_OTLP_ENDPOINT says where one is (OTLP over HTTP, port 4318 as a rule); OpenTelemetry's other variables work too.
docs/METRICS.md lists the metrics.

The process takes no more memory than fetch.buffer, the largest message and 64 MiB, whatever topics hold: see OPERATIONS,
sizes. It limits Go's heap to fetch.buffer + 40 MiB for that; GOMEMLIMIT (see Go's runtime package) overrules it.

Exit codes:
  0    ended by a signal, cleanly; or --check found no fault
  1    Postgres refused, or something failed that trying again does not mend
  2    wrong usage, or a config with faults, all of which are listed
  128+ a second signal: 130 for SIGINT, 143 for SIGTERM`

func newRun() *cobra.Command {
	var file string
	var check, migrate bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Consume topics, with Postgres functions and webhooks as handlers",
		Long:  runLong,
		Example: `  firstseen run --config firstseen.yaml --check
  firstseen run --config firstseen.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			live, err := config.Follow(file, os.Environ())
			if err != nil {
				return err
			}
			if check {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "config ok: "+live.Load().Summary())
				return err
			}
			log := slog.New(telemetry.WithTrace(live.Logger(cmd.ErrOrStderr()).Handler()))
			ctx, stop := untilSignal(cmd.Context(), log)
			defer stop()
			defer follow(live, log)()
			return run(ctx, live, log, migrate)
		},
	}
	cmd.Flags().StringVar(&file, "config", "",
		"config `file` (default $FIRSTSEEN_CONFIG, or firstseen.yaml if it is there)")
	cmd.Flags().BoolVar(&check, "check", false, "check the config and end, without connecting anywhere")
	cmd.Flags().BoolVar(&migrate, "migrate", false,
		"bring the schema up to date first, as the command migrate up does")
	return cmd
}

// run consumes until ctx ends.
func run(ctx context.Context, live *config.Live, log *slog.Logger, migrate bool) error {
	cfg := live.Load()
	version, _ := builtFrom()
	log.Info("starting", "version", version, "config", cfg.Summary())
	warn(cfg, log)
	measured, err := startTelemetry(ctx, log)
	if err != nil {
		return err
	}
	defer measured.Stop()
	conf, err := cfg.Pool()
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return err
	}
	defer closePool(pool)
	waiting := holds.New(log)
	server, err := serve(ctx, live, pool, measured.Handler, waiting, log)
	if err != nil {
		return err
	}
	defer server.Stop()
	observed := consumer.ObserveHolds(waiting, cfg.Group)
	processor, err := open(ctx, cfg, pool, waiting, log, migrate)
	observed()
	if err != nil || ctx.Err() != nil {
		return err
	}
	settings, err := cfg.Consumer(log)
	if err != nil {
		return err
	}
	boundMemory(settings.BufferBytes)
	c, err := consumer.New(settings, processor)
	if err != nil {
		return err
	}
	window := telemetry.NewWindow(func() time.Duration { return live.Load().Health.Window }, processor.Totals)
	server.Attach(admin.Parts{Inbox: operate.Of(processor.Store()), Memory: c.Memory(), Status: c.Status,
		Totals: processor.Totals, Window: window})
	keeping, err := keep(ctx, live, operate.Of(processor.Store()), log)
	if err != nil {
		return err
	}
	defer keeping()
	defer measure(ctx, measured, live, processor.Store(), window, log)()
	return c.Run(ctx)
}

func warn(cfg config.Config, log *slog.Logger) {
	tls := cfg.Kafka.TLS
	if tls.InsecureSkipVerify {
		log.Warn("kafka.tls.insecure_skip_verify is on: anyone who answers is taken for a broker")
	}
	if cfg.Kafka.SASL.Mechanism == "plain" && !tls.Enabled {
		log.Warn("kafka.sasl.mechanism is plain without TLS: the password crosses the network as it is")
	}
	warnHTTP(cfg.HTTP, log)
	if cfg.Retention.Force {
		log.Warn("retention.force is on: IDs are forgotten even where a topic may bring their messages again, " +
			"which then take effect again")
	}
	for _, name := range cfg.Unencrypted() {
		log.Warn("the webhook's URL is http: messages cross the network as they are", "handler", name)
	}
}

// open connects to Postgres, for as long as it takes, and makes what messages are processed with. When ctx ends first
// it gives neither a Processor nor an error.
func open(ctx context.Context, cfg config.Config, pool *pgxpool.Pool, waiting *holds.Registry, log *slog.Logger,
	migrate bool) (*handlers.Processor, error) {
	var processor *handlers.Processor
	err := untilReached(ctx, waiting.Place(holds.StartKind, "postgres"), func() (err error) {
		if migrate {
			if err := migrateFirst(ctx, cfg, log); err != nil {
				return err
			}
		}
		processor, err = openOnce(ctx, cfg, pool, waiting, log)
		return err
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, nil
	}
	return processor, err
}

func migrateFirst(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	steps, err := migrations.Up(ctx, cfg.Postgres.DSN.Reveal(), migrations.Config{Schema: cfg.Postgres.Schema})
	for _, s := range steps {
		log.Info("schema migrated", "step", s.Name)
	}
	return err
}

func openOnce(ctx context.Context, cfg config.Config, pool *pgxpool.Pool, waiting *holds.Registry,
	log *slog.Logger) (*handlers.Processor, error) {
	store, err := dedup.Open(ctx, pool, cfg.Store())
	if err != nil {
		return nil, err
	}
	return newProcessor(ctx, cfg, pool, store, "", waiting, log)
}

// serve starts the HTTP server for probes, metrics and the admin API, before Postgres or Kafka is reached. It gives
// nil where the config names no address.
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
		log.Warn("http.listen is open to other hosts without TLS: tokens and messages cross the network as they " +
			"are; set http.cert_file and http.key_file")
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
