package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3/lock"
)

const lockPoll = 100 * time.Millisecond

// locker holds a session's advisory lock while it migrates; a session that dies frees it. It asks again and again
// instead of waiting in the server, where it would keep a snapshot open that `create index concurrently` waits for.
type locker struct {
	timeout time.Duration
}

var _ lock.SessionLocker = locker{}

func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	deadline := time.NewTimer(l.timeout)
	defer deadline.Stop()
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		var locked bool
		err := conn.QueryRowContext(ctx, `select pg_try_advisory_lock($1)`, lock.DefaultLockID).Scan(&locked)
		if err != nil || locked {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("another process has held the migration lock for %s", l.timeout)
		case <-tick.C:
		}
	}
}

func (l locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var unlocked bool
	err := conn.QueryRowContext(ctx, `select pg_advisory_unlock($1)`, lock.DefaultLockID).Scan(&unlocked)
	if err == nil && !unlocked {
		err = errors.New("the migration lock was lost")
	}
	return err
}
