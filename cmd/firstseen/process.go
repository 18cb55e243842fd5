package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// newProcessor makes what messages are processed with: all handlers of the config.
func newProcessor(ctx context.Context, cfg config.Config, pool *pgxpool.Pool, store *dedup.Store,
	waiting *holds.Registry, log *slog.Logger) (*handlers.Processor, error) {
	registry, err := registryOf(ctx, cfg, pool, func(h handlers.BatchHandler) handlers.BatchHandler { return h })
	if err != nil {
		return nil, err
	}
	return handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry,
		HandlerTimeout: cfg.Timeouts.Handler, Holds: waiting, Logger: log})
}

// registryOf makes the config's handlers. What around makes of those in SQL is called in their place.
func registryOf(ctx context.Context, cfg config.Config, pool *pgxpool.Pool,
	around func(handlers.BatchHandler) handlers.BatchHandler) (*handlers.Registry, error) {
	registrations, err := cfg.Registrations(func(name string) (handlers.BatchHandler, error) {
		h, err := handlers.NewSQL(ctx, pool, cfg.Postgres.Schema, name)
		return around(h), err
	})
	if err != nil {
		return nil, err
	}
	registry := &handlers.Registry{}
	for _, r := range registrations {
		if err := registry.Add(r); err != nil {
			return nil, err
		}
	}
	registry.Prefer(cfg.Patterns()...)
	return registry, nil
}

// boundMemory keeps Go's heap within what a consumer with such a buffer needs, where the environment does not say
// otherwise.
func boundMemory(buffer int) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(buffer) + consumer.HeapBeside)
	}
}

// openPool opens a pool as the config says, and as change does.
func openPool(ctx context.Context, cfg config.Config, change func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	conf, err := cfg.Pool()
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(conf)
	}
	return pgxpool.NewWithConfig(ctx, conf)
}

// sameSignal is the time after a first signal in which another one is still the first: timeout(1) sends one to the
// program, and one to its process group.
const sameSignal = 300 * time.Millisecond

// untilSignal gives a context that ends at SIGTERM or SIGINT. A second one ends the program at once, with 128 and the
// signal's number as the exit code. Call stop when the work is over.
func untilSignal(parent context.Context, log *slog.Logger) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, over, done := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer close(done)
		if s := nextSignal(signals, over, 0); s != nil {
			log.Info("ending: open batches are finished; a second signal ends at once", "signal", s.String())
			cancel()
		}
		if s := nextSignal(signals, over, sameSignal); s != nil {
			log.Error("ending at once, on a second signal; what was open comes again", "signal", s.String())
			os.Exit(signalCode(s))
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		<-done
		cancel()
	}
}

// nextSignal is the first one that comes later than so long from now; nil: over came before.
func nextSignal(signals <-chan os.Signal, over <-chan struct{}, later time.Duration) os.Signal {
	began := time.Now()
	for {
		select {
		case s := <-signals:
			if later == 0 || time.Since(began) > later {
				return s
			}
		case <-over:
			return nil
		}
	}
}

// follow has the config follow its file, and be read again on SIGHUP, until stop is called.
func follow(live *config.Live, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	hup, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		defer close(done)
		live.Run(ctx, log, hup)
	}()
	return func() {
		signal.Stop(hup)
		cancel()
		<-done
	}
}

func signalCode(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return exitFailure
}
