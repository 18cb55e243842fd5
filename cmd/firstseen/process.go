package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// newProcessor makes what messages are processed with: all handlers of the config or, where only is not empty, that
// one.
func newProcessor(ctx context.Context, cfg config.Config, pool *pgxpool.Pool, store *dedup.Store, only string,
	waiting *holds.Registry, log *slog.Logger) (*handlers.Processor, error) {
	registry, err := registryOf(ctx, cfg, pool, only)
	if err != nil {
		return nil, err
	}
	return handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry,
		HandlerTimeout: cfg.Timeouts.Handler, Holds: waiting, Logger: log})
}

// registryOf makes the config's handlers, or, where only is not empty, the one of that name.
func registryOf(ctx context.Context, cfg config.Config, pool *pgxpool.Pool, only string) (*handlers.Registry, error) {
	registrations, err := cfg.Registrations(func(name string) (handlers.BatchHandler, error) {
		return handlers.NewSQL(ctx, pool, cfg.Postgres.Schema, name)
	})
	if err != nil {
		return nil, err
	}
	registry := &handlers.Registry{}
	for _, r := range registrations {
		if only != "" && r.Name != only {
			continue
		}
		if err := registry.Add(r); err != nil {
			return nil, err
		}
	}
	return registry, nil
}

// boundMemory keeps Go's heap within what a consumer with such a buffer needs, where the environment does not say
// otherwise.
func boundMemory(buffer int) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(buffer) + consumer.HeapBeside)
	}
}

// untilReached does something with Postgres again and again, with growing pauses, until it works, Postgres refuses it,
// or ctx ends.
func untilReached(ctx context.Context, hold *holds.Place, do func() error) error {
	defer hold.Leave()
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 200*time.Millisecond, 10*time.Second
	for {
		err := do()
		if err == nil {
			hold.End()
		}
		if err == nil || ctx.Err() != nil || !failure.Passes(err) {
			return err
		}
		hold.Wait(holds.OfPostgres(err), errors.New(terminal.OneLine(err.Error())))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pauses.NextBackOff()):
		}
	}
}

// closeLimit is how long connections are waited for that do not answer any more: the program ends without their
// farewell.
const closeLimit = 3 * time.Second

func closePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeLimit):
	}
}

// untilSignal gives a context that ends at SIGTERM or SIGINT. A second one ends the program at once, with 128 and the
// signal's number as the exit code. Call stop when the work is over.
func untilSignal(parent context.Context, log *slog.Logger) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, over, done := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer close(done)
		for first := true; ; first = false {
			select {
			case s := <-signals:
				if !first {
					log.Error("ending at once, on a second signal; what was open comes again", "signal", s.String())
					os.Exit(signalCode(s))
				}
				log.Info("ending: open batches are finished; a second signal ends at once", "signal", s.String())
				cancel()
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		<-done
		cancel()
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
