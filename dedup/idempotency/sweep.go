package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/firstseen/firstseen/dedup/wait"
)

// TTLHours reads a time for [Config].TTL from an environment variable of the program's: a whole number of hours. It is
// 0, for which Config has a default, where the variable is not set or is empty. An error names the variable and says
// what to write.
func TTLHours(variable string) (time.Duration, error) {
	const most = int64(math.MaxInt64 / time.Hour)
	text := strings.TrimSpace(os.Getenv(variable))
	if text == "" {
		return 0, nil
	}
	hours, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("environment variable %s: %.40q is no whole number of hours; write digits only, as in 24",
			variable, text)
	case hours < 1:
		return 0, fmt.Errorf("environment variable %s: %.40s hours are too few; write 1 or more, or unset it for 24",
			variable, text)
	case hours > most:
		return 0, fmt.Errorf("environment variable %s: %.40s hours are too many; write %d at most", variable, text, most)
	}
	return time.Duration(hours) * time.Hour, nil
}

// expiredSQL counts what sweepSQL would delete.
const expiredSQL = `
select count(*) from (
	select from firstseen.idempotency i
	where i.expires_at <= now() and (i.lease_until is null or i.lease_until <= now())
	limit $1) old`

// Expired counts what Sweep would delete, up to limit.
func (p *Postgres) Expired(ctx context.Context, limit int) (n int, err error) {
	err = p.ask(ctx, func(ctx context.Context) error {
		return p.db.Pool.QueryRow(ctx, p.db.SQL(expiredSQL), limit).Scan(&n)
	})
	return n, storeError("count what has expired", err)
}

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
		if !wait.Sleep(ctx, sweepPause) {
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
		if !wait.Sleep(ctx, every) {
			return
		}
	}
}
