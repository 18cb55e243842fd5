package dedup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Reach does something with Postgres again and again, with growing pauses, until it works, Postgres refuses it, or ctx
// ends. The hold has what is waited for, and with it the log, and status and metrics of the registry that it is of.
func Reach(ctx context.Context, hold *holds.Place, do func() error) error {
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
		hold.Wait(holds.OfPostgres(err), oneLine(err))
		if !wait.Sleep(ctx, pauses.NextBackOff()) {
			return ctx.Err()
		}
	}
}

// oneLine is an error of several hosts on one line.
func oneLine(err error) error {
	breaks := func(r rune) bool { return r == '\n' || r == '\t' }
	return errors.New(strings.Join(strings.FieldsFunc(err.Error(), breaks), " "))
}

// slowAnswer is how long Postgres may take before it is told that nothing has come: a connection is given up much later.
const slowAnswer = 2 * time.Second

var errNoAnswerYet = errors.New("no answer within 2s: a firewall, a host that is down, or no Postgres at that port; " +
	"see postgres.dsn")

// Watch does something with Postgres, and has the hold say so where no answer comes within two seconds.
func Watch(ctx context.Context, hold *holds.Place, do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if wait.Sleep(ctx, slowAnswer) {
			hold.Wait(holds.Postgres, errNoAnswerYet)
		}
	}()
	defer func() { cancel(); <-done }()
	return do()
}

// patiently does something with Postgres as Reach does, for as long as Config.Patience.
func (c *Config) patiently(ctx context.Context, do func(context.Context) error) error {
	if c.Patience < 0 {
		return do(ctx)
	}
	hold := c.Holds.Place(holds.StartKind, "postgres")
	limited, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	var last error // from before the time was over
	err := Reach(limited, hold, func() error {
		err := Watch(limited, hold, func() error { return do(limited) })
		if last == nil || limited.Err() == nil {
			last = err
		}
		return err
	})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("Postgres was not reached within %s: %w", c.Patience, last) //nolint:staticcheck // a name
	}
	return err
}
