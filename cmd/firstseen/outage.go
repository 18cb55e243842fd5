package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/firstseen/firstseen/dedup/failure"
)

// untilReached does something with Postgres again and again, with growing pauses, until it works, Postgres refuses it,
// or ctx ends.
func untilReached(ctx context.Context, log *slog.Logger, do func() error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 200*time.Millisecond, 10*time.Second
	for {
		err := do()
		if err == nil || ctx.Err() != nil || !failure.Passes(err) {
			return err
		}
		pause := pauses.NextBackOff()
		log.Error("postgres not reached; trying again", "error", oneLine(err.Error()), "pause", pause.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
