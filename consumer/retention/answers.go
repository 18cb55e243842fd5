package retention

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

// Answers are the answers to HTTP requests that a schema keeps for programs with package idempotency. Each says by
// itself how long it is kept, so neither the config nor a topic is asked about them. Such programs sweep too; this is
// for when they don't, or run no more. It takes the rights of firstseen_consumer. It is safe for concurrent use.
type Answers struct {
	Pool   *pgxpool.Pool
	Config idempotency.PostgresConfig
	// Every is the time between two sweeps. Default an hour.
	Every  time.Duration
	Logger *slog.Logger
}

// MaxExpired is up to where Expired counts.
const MaxExpired = 10_001

// Expired counts the answers whose time is over, up to MaxExpired.
func (a *Answers) Expired(ctx context.Context) (int, error) {
	store, err := idempotency.Open(ctx, a.Pool, a.Config)
	if err != nil {
		return 0, err
	}
	return store.Expired(ctx, MaxExpired)
}

// Sweep deletes the answers whose time is over, in small transactions beside all that goes on, and says how many.
func (a *Answers) Sweep(ctx context.Context) (int, error) {
	store, err := idempotency.Open(ctx, a.Pool, a.Config)
	if err != nil {
		return 0, err
	}
	return idempotency.SweepAll(ctx, store)
}

// Loop sweeps until ctx ends, at once and then again and again. What keeps it from that, such as a right that the login
// lacks, is logged once, and tried again each time. Its caller waits for it.
func (a *Answers) Loop(ctx context.Context) {
	var told []string
	for ctx.Err() == nil {
		told = a.round(ctx, told)
		timer := time.NewTimer(cmp.Or(a.Every, time.Hour))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// round sweeps once, and gives the reason that was told.
func (a *Answers) round(ctx context.Context, told []string) []string {
	swept, err := a.Sweep(ctx)
	if swept > 0 {
		a.Logger.Info("retention: deleted answers to HTTP requests whose time is over", "answers", swept)
	}
	switch {
	case ctx.Err() != nil:
		return told
	case err != nil:
		return tell(a.Logger, told, "retention: answers to HTTP requests whose time is over can't be deleted, which is "+
			"tried again: ", []Refusal{{Key: "error " + failure.Code(err), Text: err.Error()}})
	}
	return nil
}
