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
	return await(ctx, conn, `select pg_try_advisory_lock($1)`, lock.DefaultLockID, l.timeout)
}

// lockOut keeps other processes out until the transaction ends.
func lockOut(ctx context.Context, tx *sql.Tx, key int64, timeout time.Duration) error {
	return await(ctx, tx, `select pg_try_advisory_xact_lock($1)`, key, timeout)
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// await asks for an advisory lock until it is given. Whoever may log in can hold one, so the wait has an end, and says
// who it is.
func await(ctx context.Context, db rowQuerier, sql string, key int64, timeout time.Duration) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		var locked bool
		err := db.QueryRowContext(ctx, sql, key).Scan(&locked)
		if err != nil || locked {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("another process has held the migration lock for %s: %s", timeout, holder(ctx, db, key))
		case <-tick.C:
		}
	}
}

const holderSQL = `
select format('session %s of %s (application "%s")', a.pid, a.usename, a.application_name)
from pg_locks l
join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'advisory' and l.granted and l.objsubid = 1
	and l.database = (select oid from pg_database where datname = current_database())
	and (l.classid::bigint << 32 | l.objid::bigint) = $1
limit 1`

func holder(ctx context.Context, db rowQuerier, key int64) (session string) {
	if db.QueryRowContext(ctx, holderSQL, key).Scan(&session) != nil {
		return "it has just ended, so try again"
	}
	return session
}

func (l locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var unlocked bool
	err := conn.QueryRowContext(ctx, `select pg_advisory_unlock($1)`, lock.DefaultLockID).Scan(&unlocked)
	if err == nil && !unlocked {
		err = errors.New("the migration lock was lost")
	}
	return err
}
