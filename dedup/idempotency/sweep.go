package idempotency

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// sweepSQL deletes what has expired, oldest first, but for what somebody is at.
const sweepSQL = `
delete from firstseen.idempotency d
using (
	select i.id from firstseen.idempotency i
	where i.expires_at <= now() and (i.lease_until is null or i.lease_until <= now())
	order by i.expires_at
	limit $1
	for update skip locked) old
where d.id = old.id`

// Sweep is [Store]'s. A key that is being worked on is passed over.
func (p *Postgres) Sweep(ctx context.Context, limit int) (int, error) {
	var n int64
	err := p.ask(ctx, func(ctx context.Context) error {
		tag, err := p.db.Pool.Exec(ctx, p.db.SQL(sweepSQL), limit)
		n = tag.RowsAffected()
		return err
	})
	return int(n), storeError("sweep", err)
}

// Chunks are small, so that nobody waits for one, and the pause leaves the disk to others.
const (
	sweepChunk = 500
	sweepPause = 50 * time.Millisecond
)

// SweepAll deletes all that has expired, in small transactions, and says how much that was.
func SweepAll(ctx context.Context, s Store) (swept int, err error) {
	for {
		n, err := s.Sweep(ctx, sweepChunk)
		swept += n
		if err != nil || n < sweepChunk {
			return swept, err
		}
		if !sleep(ctx, sweepPause) {
			return swept, ctx.Err()
		}
	}
}

// RunSweep sweeps at once, and then every so often (0: hourly), until ctx ends. Any number of processes may. One that
// fails is logged, and made up for by the next: what has expired does no harm, it only takes room.
func RunSweep(ctx context.Context, s Store, every time.Duration, log *slog.Logger) {
	if every <= 0 {
		every = time.Hour
	}
	for {
		swept, err := SweepAll(ctx, s)
		switch {
		case err != nil && ctx.Err() == nil:
			log.WarnContext(ctx, "idempotency sweep failed", "swept", swept, "error", fmt.Sprint(err))
		case swept > 0:
			log.InfoContext(ctx, "idempotency sweep", "swept", swept)
		}
		if !sleep(ctx, every) {
			return
		}
	}
}
