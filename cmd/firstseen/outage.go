package main

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/holds"
)

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
		hold.Wait(holds.OfPostgres(err), errors.New(oneLine(err.Error())))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pauses.NextBackOff()):
		}
	}
}
