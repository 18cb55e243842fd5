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
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/doctor"
	"github.com/firstseen/firstseen/cmd/internal/intake"
	"github.com/firstseen/firstseen/cmd/internal/telemetry"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/admin"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
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
kafka.sasl.password_file, http.read_token_file, http.write_token_file, ingress.token_files, a webhook's secret_file).

SIGHUP: the config is read again, as it is some seconds after its file or that of a secret has changed. log.level,
health, retention, http.rate, the tokens of http and those of ingress with their tenants take effect at once; other
changes are logged as waiting for a restart. A config with faults is logged and changes nothing.

Where Postgres can't be reached, that is an outage: it is logged and tried again, for as long as it takes. Where it
refuses (a wrong password, no such database, no such function, a schema of another version, rights that the login lacks),
or where a handler can't be what the config says, the program ends with exit code 1. Kafka is tried again whatever it
answers, for a cluster that is being set up or rolled refuses in passing; each refusal is logged.

SIGTERM or SIGINT: open batches are finished, for at most timeouts.drain, offsets are committed and the group is
left. A second signal ends the program at once: what was open is rolled back by Postgres and comes again.

Messages are taken in by HTTP too where ingress.listen is set: POST /v1/topics/TOPIC/messages, with an Idempotency-Key, by
clients that the config names. They are handled as Kafka's are, and one that comes both ways takes effect once.

Messages that transactions have added to the outbox are sent, once they are committed, where outbox.destinations say: to
Kafka, or to a webhook. On SIGTERM what is being sent is finished. With such destinations and no topics it only sends.

Where the config has postgres.shards, the group's partitions are spread over several Postgres servers, and a process works on
one of them: --shard, or FIRSTSEEN_POSTGRES_SHARD. Each shard needs a process of its own. ` + "`firstseen migrate up`" + ` declares the
shards to their databases first. See OPERATIONS, several servers.

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
	var file, shard string
	var check, migrate bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Consume topics, with Postgres functions and webhooks as handlers",
		Long:  runLong,
		Example: `  firstseen run --config firstseen.yaml --check
  firstseen run --config firstseen.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			live, err := config.Follow(file, config.WithShard(os.Environ(), shard))
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
	cmd.Flags().StringVar(&shard, "shard", "", "`name` of the shard to work on, where the config has postgres.shards")
	cmd.Flags().BoolVar(&check, "check", false, "check the config and end, without connecting anywhere")
	cmd.Flags().BoolVar(&migrate, "migrate", false,
		"bring the schema up to date first, as the command migrate up does")
	return cmd
}

// process is a run under way.
type process struct {
	live     *config.Live
	log      *slog.Logger
	migrate  bool
	measured *telemetry.Telemetry
	pool     *pgxpool.Pool
	waiting  *holds.Registry
	around   *service.Service
	settings consumer.Config
}

// run consumes, or only sends, until ctx ends.
func run(ctx context.Context, live *config.Live, log *slog.Logger, migrate bool) (err error) {
	cfg := live.Load()
	version, _ := builtFrom()
	log.Info("starting", "version", version, "config", cfg.Summary())
	warn(cfg, log)
	s := &process{live: live, log: log, migrate: migrate, waiting: holds.New(log)}
	if s.measured, err = startTelemetry(ctx, log); err != nil {
		return err
	}
	defer s.measured.Stop()
	if s.pool, err = openPool(ctx, cfg, cfg.Postgres.Following(log)); err != nil {
		return err
	}
	defer dedup.ClosePool(s.pool)
	if s.around, err = surround(live, s.pool, s.waiting, log); err != nil {
		return err
	}
	defer s.around.Start(ctx)()
	server, err := serve(ctx, cfg.HTTP, s.around, s.measured.Handler, log)
	if err != nil {
		return err
	}
	defer server.Stop()
	if s.settings, err = cfg.Consumer(log); err != nil {
		return err
	}
	boundMemory(s.settings.BufferBytes)
	if len(cfg.Topics) == 0 {
		return s.send(ctx)
	}
	return s.consume(ctx)
}

// consume reads the topics, and sends out of the outbox where there are destinations, until ctx ends.
func (s *process) consume(ctx context.Context) error {
	processor, err := s.open(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	c, err := consumer.New(s.settings, processor)
	if err != nil {
		return err
	}
	relay, err := s.openRelay(ctx, c.Memory(), s.waiting)
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer relay.stop()
	parts := service.PartsOf(c, processor)
	relay.addTo(&parts)
	s.around.Attach(parts)
	posts, err := intake.Start(ctx, s.live, processor, s.log)
	if err != nil {
		return err
	}
	defer posts.Stop()
	relay.start(ctx)
	return c.Run(ctx)
}

// surround makes what is around the consumer: probes and health, metrics of what lies in Postgres, and retention. It
// follows the config.
func surround(live *config.Live, pool *pgxpool.Pool, waiting *holds.Registry, log *slog.Logger) (
	*service.Service, error) {
	cfg := live.Load()
	version, revision := builtFrom()
	s, err := service.New(service.Config{Group: cfg.Group, Inbox: cfg.Inbox, Shard: cfg.Postgres.Shard, Pool: pool,
		Version: version, Revision: revision, Actor: actor(), Holds: waiting, Settings: cfg.Service(), Logger: log,
		Doctor: examiner(func() doctor.Case { return caseOf(live) })})
	if err != nil {
		return nil, err
	}
	live.Tell(func(c config.Config) {
		if err := s.Apply(c.Service()); err != nil {
			log.Error("what was changed in the config does not take effect", "error", err)
		}
	})
	return s, nil
}

func warn(cfg config.Config, log *slog.Logger) {
	tls := cfg.Kafka.TLS
	if tls.InsecureSkipVerify {
		log.Warn("kafka.tls.insecure_skip_verify is on: anyone who answers is taken for a broker")
	}
	if what := cfg.Kafka.LoginInClear(); what != "" {
		log.Warn("kafka.sasl.mechanism is " + cfg.Kafka.SASL.Mechanism + " without TLS: " + what +
			" crosses the network as it is")
	}
	if strings.HasPrefix(cfg.Kafka.SASL.OAuth.TokenURL, "http:") {
		log.Warn("kafka.sasl.oauth.token_url is http: the client's secret crosses the network as it is")
	}
	warnHTTP(cfg.HTTP, log)
	if in := cfg.Ingress; isOpen(in.Listen, in.CertFile) && len(in.Tokens) > 0 {
		log.Warn("ingress.listen is open to other hosts without TLS: tokens and messages cross the network as they " +
			"are; set ingress.cert_file and ingress.key_file")
	}
	if cfg.Retention.Force {
		log.Warn("retention.force is on: IDs are forgotten even where a topic may bring their messages again, " +
			"which then take effect again")
	}
	for _, name := range cfg.Unencrypted() {
		log.Warn("the webhook's URL is http: messages cross the network as they are", "handler", name)
	}
}

// reach does what needs Postgres at the start, for as long as it takes. The schema is brought up to date first where
// that is asked for. When ctx ends first there is no error.
func (s *process) reach(ctx context.Context, do func(cfg config.Config) error) error {
	cfg := s.live.Load()
	hold := s.waiting.Place(holds.StartKind, "postgres")
	err := dedup.Reach(ctx, hold, func() error {
		if s.migrate {
			if err := migrateFirst(ctx, cfg, s.log); err != nil {
				return err
			}
		}
		return dedup.Watch(ctx, hold, func() error { return do(cfg) })
	})
	return unlessEnded(ctx, err)
}

// open makes what messages are processed with. When ctx ends first it gives neither a Processor nor an error.
func (s *process) open(ctx context.Context) (processor *handlers.Processor, err error) {
	err = s.reach(ctx, func(cfg config.Config) error {
		store, err := dedup.Open(ctx, s.pool, cfg.Store())
		if err == nil {
			err = store.CheckHome(ctx, cfg.Group, cfg.Postgres.Home())
		}
		if err == nil {
			processor, err = newProcessor(ctx, cfg, s.pool, store, s.waiting, s.log)
		}
		return err
	})
	return processor, err
}

// unlessEnded is an error, but for that of ctx's end.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func migrateFirst(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	steps, err := migrations.Up(ctx, cfg.Postgres.DSN.Reveal(), migrations.Config{Schema: cfg.Postgres.Schema})
	for _, s := range steps {
		log.Info("schema migrated", "step", s.Name)
	}
	if err != nil || cfg.Postgres.Home().Alone() {
		return err
	}
	return declareHomes(ctx, cfg.Postgres, cfg.Group, map[string]string{cfg.Postgres.Shard: cfg.Postgres.DSN.Reveal()})
}

// serve starts the HTTP server for probes, metrics and the admin API, before Postgres or Kafka is reached. It gives
// nil where the config names no address.
func serve(ctx context.Context, cfg config.HTTP, around *service.Service, metrics http.Handler, log *slog.Logger) (
	*admin.Server, error) {
	if cfg.Listen == "" {
		return nil, nil
	}
	tls, err := cfg.TLS(log)
	if err != nil {
		return nil, err
	}
	server, err := admin.New(admin.Config{Service: around, Listen: cfg.Listen, TLS: tls, Metrics: metrics,
		Page: cfg.Page})
	if err != nil {
		return nil, err
	}
	if err := server.Start(ctx); err != nil {
		return nil, fmt.Errorf("listen at http.listen: %w", err)
	}
	return server, nil
}

func warnHTTP(h config.HTTP, log *slog.Logger) {
	if isOpen(h.Listen, h.CertFile) && (h.ReadToken != "" || h.WriteToken != "") {
		log.Warn("http.listen is open to other hosts without TLS: tokens and messages cross the network as they " +
			"are; set http.cert_file and http.key_file")
	}
}

// isOpen says that a server without TLS can be reached from other hosts.
func isOpen(listen, certFile string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || certFile != "" {
		return false
	}
	address, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !address.IsLoopback())
}

// startTelemetry sets up what the program is measured and traced with; the library's parts find it by themselves, as
// OpenTelemetry's global providers. A fault in OpenTelemetry's environment is one in the config.
func startTelemetry(ctx context.Context, log *slog.Logger) (*telemetry.Telemetry, error) {
	version, _ := builtFrom()
	t, err := telemetry.Start(ctx, telemetry.Config{Version: version, Logger: log})
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	return t, nil
}
