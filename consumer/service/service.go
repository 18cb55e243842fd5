// Package service is what a program has around its [consumer.Consumer] so that people can run it: probes, health with
// its reasons, gauges of what lies in Postgres, retention, and the jobs that operators have made. `firstseen run` is built upon it, and so may be any
// program with handlers of its own. Package consumer/admin adds the admin API, by http.Handler.
//
// A [Service] is made first of all, so that probes answer while Postgres and Kafka are waited for. It is given the
// running parts once they are there ([Service.Attach]). What may change while a program runs, limits of health,
// retention, who may use the admin API, is given anew by [Service.Apply]: there is no file that it reads and no signal
// that it waits for.
//
//	around, err := service.New(service.Config{Group: "billing", Pool: pool})
//	defer around.Start(ctx)()           // heartbeats; metrics and retention, once there are parts
//	mux.Handle("/", around.Probes())    // /livez, /readyz, /healthz
//	…                                   // the store, the processor and the consumer
//	around.Attach(service.PartsOf(c, processor))
//	err = c.Run(ctx)
//
// In reading order: service.go, settings.go (what may change), parts.go (what it tells about), probes.go, health.go and
// health_outbox.go, history.go, gauges.go and gauges_outbox.go, poll.go (questions to Postgres), jobs.go (on dead
// letters), replay_plan.go and replays.go, doctor.go, build.go.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/consumer/retention"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Config says whose service it is. Only Group and Pool are required.
type Config struct {
	// Group is the consumer group. Required.
	Group string
	// Inbox names what remembers the message IDs, as dedup.Config.Inbox. Default: the group's name.
	Inbox string
	// Shard is the name of the shard that the pool leads to, where there are several: see consumer.Config.Home. Default
	// none.
	Shard string
	// Pool is the one that the store works on. Health takes one of its connections for a moment. Retention has up to two
	// more of a pool of its own, made by this one's config, while it works, and jobs one. Required.
	Pool *pgxpool.Pool
	// Version and Revision say which build this is, in the API and in firstseen_build_info. Default: what Go has noted
	// of the program's main module.
	Version, Revision string
	// Actor names this process in the audit, for what retention deletes. Default: its host and number.
	Actor string
	// Holds has what the start waits for, and is shared with handlers.Config.Holds. Default: nothing of the start is told.
	Holds *holds.Registry
	// Doctor checks what a person would check, and gives what it finds, for who asks the admin API or its page. It is
	// called by one at a time, with a minute's time, and reads; what it holds in memory meanwhile has to be small, some
	// MiB. Findings are shown to all who may read: secrets have no place in them. Default none: the API says that there is
	// none.
	Doctor func(context.Context) ([]view.Finding, error)
	// Settings are those of the start.
	Settings Settings
	// Poll is the time between two questions to Postgres of what waits there, for metrics. How much space is taken is
	// asked every twentieth time. Default 15 s.
	Poll time.Duration
	// Logger is told of what failed, and of what retention has done. Default slog.Default().
	Logger *slog.Logger
	// MeterProvider is for the gauges. Default OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

func (c *Config) prepare() error {
	var faults []error
	if err := dedup.CheckName(c.Group); err != nil {
		faults = append(faults, fmt.Errorf("group: %w", err))
	}
	if c.Pool == nil {
		faults = append(faults, errors.New("pool: is required"))
	}
	faults = append(faults, c.Settings.Check())
	c.Inbox, c.Actor = cmp.Or(c.Inbox, c.Group), cmp.Or(c.Actor, dedup.ThisProcess())
	version, revision := builtFrom()
	c.Version, c.Revision = cmp.Or(c.Version, version), cmp.Or(c.Revision, revision)
	c.Poll = cmp.Or(c.Poll, pollEvery)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	return errors.Join(faults...)
}

// Service is what is around a consumer. Make it with New. It is safe for concurrent use.
type Service struct {
	cfg      Config
	log      *slog.Logger
	started  time.Time
	settings atomic.Pointer[Settings]
	rules    atomic.Pointer[mask.Rules]

	parts   atomic.Pointer[attached]
	arrived chan struct{} // closed once there are parts
	once    sync.Once

	ending   atomic.Pointer[context.Context] // of Start: the program is to end when it does
	liveness liveness
	health   healthCache
	history  history
	doctor   doctor
	plans    wait.Slots // of replays, one at a time
	failures *httpjson.Failures
}

// New checks the config, every fault at once, and makes a Service. It asks nobody and starts nothing.
func New(cfg Config) (*Service, error) {
	if err := cfg.prepare(); err != nil {
		return nil, fmt.Errorf("service config: %w", err)
	}
	s := &Service{cfg: cfg, log: cfg.Logger, started: time.Now(), arrived: make(chan struct{}),
		plans: make(wait.Slots, 1), failures: httpjson.NewFailures(cfg.Logger)}
	s.apply(&cfg.Settings)
	s.liveness.beat(s.started)
	return s, nil
}

// Config is the service's, defaults filled in; its Settings are those of the start.
func (s *Service) Config() Config { return s.cfg }

// Settings are those that are in force.
func (s *Service) Settings() Settings { return s.settings.Load().withDefaults() }

// Apply has other settings take effect, at once, or for retention with its next run: all of them or, with an error
// that says why, none. What is not in Settings takes a restart.
func (s *Service) Apply(next Settings) error {
	if err := next.Check(); err != nil {
		return fmt.Errorf("apply settings: %w", err)
	}
	s.apply(&next)
	return nil
}

// apply takes settings that are checked.
func (s *Service) apply(settings *Settings) {
	rules, err := mask.New(settings.Mask)
	if err != nil {
		panic(err) // they are not checked
	}
	s.rules.Store(rules)
	s.settings.Store(settings)
}

// Mask hides what Settings.Mask says.
func (s *Service) Mask() *mask.Rules { return s.rules.Load() }

// Attach tells the service of the running parts. Parts that are attached again take the place of those before in
// everything but metrics, retention, jobs and replays.
func (s *Service) Attach(p Parts) {
	s.parts.Store(s.attach(p))
	s.once.Do(func() { close(s.arrived) })
}

// Start has the service watch over the program: without it the program counts as standing still after 30 seconds. When
// ctx ends the program is about to end, so that it is no longer ready, and metrics, retention and jobs stop, as they begin
// with Attach. Call stop when everything else has ended; it waits for all that was started. Start once.
func (s *Service) Start(ctx context.Context) (stop func()) {
	s.ending.Store(&ctx)
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ctx, end := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { s.watch(watching) })
	loops.Go(func() { s.record(watching) })
	loops.Go(func() { s.beside(ctx) })
	return func() {
		end()
		cancel()
		s.endLooks()
		loops.Wait()
	}
}

// beside does what is done beside the consumer, until ctx ends.
func (s *Service) beside(ctx context.Context) {
	defer s.observeBuild()()
	observed := consumer.ObserveHolds(s.cfg.Holds, s.cfg.Group, s.cfg.MeterProvider)
	select {
	case <-s.arrived:
	case <-ctx.Done():
	}
	observed() // the consumer tells them from now on
	if ctx.Err() != nil {
		return
	}
	p := s.parts.Load()
	var loops sync.WaitGroup
	loops.Go(func() { p.gauges.run(ctx) })
	loops.Go(func() { (&jobs{Service: s, inbox: p}).run(ctx) })
	loops.Go(func() { (&replays{Service: s, parts: p}).run(ctx) })
	loops.Go(func() { s.keep(ctx, p) })
	loops.Wait()
}

// keep does retention, over connections of its own.
func (s *Service) keep(ctx context.Context, p *attached) {
	conf := s.cfg.Pool.Config()
	retention.Pool(conf)
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		s.log.Error("retention can't begin", "error", err)
		return
	}
	defer dedup.ClosePool(pool)
	keeper, err := retention.New(retention.Config{Inbox: p.Inbox.On(pool), Kafka: p.Consumer.Connection,
		CommitInterval: p.Consumer.CommitInterval, Logger: s.log})
	if err != nil {
		s.log.Error("retention can't begin", "error", err)
		return
	}
	defer keeper.Close()
	keeper.Keep(ctx, func() retention.Policy { return s.Settings().Retention }, "retention of "+s.cfg.Actor)
}

// Status is the consumer's, also before there is one.
func (s *Service) Status() consumer.Status {
	if p := s.parts.Load(); p != nil {
		return p.Status()
	}
	return consumer.Status{State: consumer.Starting, Since: s.started, Holds: s.cfg.Holds.List()}
}

// Describe tells how the process is, and what it has done since its start, as the admin API does.
func (s *Service) Describe() view.Status {
	status := s.Status()
	out := view.StatusOf(s.started, time.Now(), &status)
	out.Version, out.Group, out.Inbox = s.cfg.Version, s.cfg.Group, s.cfg.Inbox
	out.Shard = view.OrNull(s.cfg.Shard)
	if p := s.parts.Load(); p != nil {
		out.Totals, out.Window = view.TotalsOf(p.Totals()), view.WindowOf(p.window.Rates())
		out.Outbox = p.outbox(status.Holds)
	}
	return out
}
