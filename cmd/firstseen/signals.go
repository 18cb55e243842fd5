package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/firstseen/firstseen/cmd/internal/config"
)

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
