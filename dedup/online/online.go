// Package online changes a table of yours that programs write to all the time: it adds a column and an index, gives
// values to the rows that were there before, and at last requires them. In comes the DSN of the table's owner; what
// leaves is the table, changed, and its writers have failed at nothing: it is never rewritten, and nobody waits for a
// change for longer than Config.LockTimeout at a time.
//
// A step that has returned nil is done, and one that is done already does nothing. Any number of processes may take it
// at once. One that was broken off, with its process, its connection or the server, is taken again and goes on.
//
// Names of tables, columns and indexes are names; types, expressions and conditions are SQL, run as they are given.
//
// In reading order: online.go (Table, and how it waits), column.go, index.go, backfill.go, notnull.go.
package online

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/migrations/dial"
)

// Config says how long to wait. The zero value is fine for a table that is busy.
type Config struct {
	// LockTimeout is the time that a change that needs the table to itself, for a moment, stands in line for it, and
	// everybody who comes later stands behind it. Then it lets them pass, and tries again. Default 2 seconds: an
	// autovacuum gives way after one (deadlock_timeout).
	LockTimeout time.Duration
	// Wait bounds each wait of a step for others: for its turn, for a process that takes the same step, for a
	// transaction that an index has to outlast. Default 10 minutes.
	Wait time.Duration
}

// Table is a table that is being changed, on a connection of its own. It is for one goroutine at a time. Where the
// context of a step ends Postgres is told to stop, too, and the table has to be opened anew.
type Table struct {
	conn   *pgx.Conn
	cfg    Config
	oid    uint32
	schema string
	name   string // for SQL, with its schema
}

const tableSQL = `
select c.oid, n.nspname, format('%I.%I', n.nspname, c.relname), c.relkind::text
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.oid = to_regclass($1)`

// Open connects as the table's owner, to Postgres itself and not to a pooler in transaction mode. The table is named
// with its schema where that is not on the search path, and is not a partitioned one: those are changed otherwise.
func Open(ctx context.Context, dsn, table string, cfg Config) (*Table, error) {
	t := &Table{cfg: cfg}
	if t.cfg.LockTimeout <= 0 {
		t.cfg.LockTimeout = 2 * time.Second
	}
	if t.cfg.Wait <= 0 {
		t.cfg.Wait = 10 * time.Minute
	}
	conf, err := pgx.ParseConfig(dsn)
	if err == nil {
		err = t.open(ctx, conf, table)
	}
	if err != nil {
		return nil, fmt.Errorf("open table %s: %w", table, err)
	}
	return t, nil
}

func (t *Table) open(ctx context.Context, conf *pgx.ConnConfig, table string) (err error) {
	dial.Prepare(&conf.Config, 0)
	conf.RuntimeParams["lock_timeout"] = milliseconds(t.cfg.LockTimeout)
	conf.RuntimeParams["statement_timeout"] = "0"
	conf.RuntimeParams["default_transaction_isolation"] = "read committed"
	if t.conn, err = pgx.ConnectConfig(ctx, conf); err != nil {
		return err
	}
	var kind string
	err = t.conn.QueryRow(ctx, tableSQL, table).Scan(&t.oid, &t.schema, &t.name, &kind)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = errors.New("it is not there")
	case err == nil && kind != "r":
		err = errors.New("it is no plain table")
	}
	if err != nil {
		t.Close()
	}
	return err
}

// closeLimit bounds the wait for a server that was told goodbye.
const closeLimit = 5 * time.Second

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Close ends the connection.
func (t *Table) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = t.conn.Close(ctx)
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// briefly runs statements that need the table to themselves for a moment, all or none.
func (t *Table) briefly(ctx context.Context, statements string) error {
	return t.inTurn(ctx, func() error { return t.exec(ctx, statements) })
}

// inTurn has something done that stands in line for LockTimeout, and steps back for twice as long where its turn has
// not come.
func (t *Table) inTurn(ctx context.Context, do func() error) error {
	for until := time.Now().Add(t.cfg.Wait); ; {
		err := do()
		if sign := failure.Of(err); sign != failure.Locked && sign != failure.Concurrent {
			return err
		}
		if time.Now().After(until) || !wait.Sleep(ctx, 2*t.cfg.LockTimeout) {
			return t.inVain(ctx, err)
		}
	}
}

// patiently has something done whose locks let everybody write, and so may be waited for at length.
func (t *Table) patiently(ctx context.Context, do func() error) error {
	if err := t.setLockTimeout(ctx, t.cfg.Wait); err != nil {
		return err
	}
	err := do()
	if failure.Of(err) == failure.Locked {
		err = t.inVain(ctx, err)
	}
	if resetErr := t.setLockTimeout(context.WithoutCancel(ctx), t.cfg.LockTimeout); err == nil {
		err = resetErr
	}
	return err
}

func (t *Table) setLockTimeout(ctx context.Context, d time.Duration) error {
	return t.exec(ctx, `set lock_timeout = `+milliseconds(d))
}

func (t *Table) exec(ctx context.Context, statements string) error {
	_, err := t.conn.Exec(ctx, statements)
	return err
}

const (
	lockSQL   = `select pg_try_advisory_lock(hashtextextended('firstseen online', $1))`
	unlockSQL = `select pg_advisory_unlock(hashtextextended('firstseen online', $1))`
	lockPoll  = 100 * time.Millisecond
)

// alone has a step taken by one process at a time. It asks again and again instead of waiting in the server, where
// two that build an index wait for each other.
func (t *Table) alone(ctx context.Context, step func() error) error {
	for until := time.Now().Add(t.cfg.Wait); ; {
		var locked bool
		if err := t.conn.QueryRow(ctx, lockSQL, int64(t.oid)).Scan(&locked); err != nil {
			return err
		}
		if locked {
			break
		}
		if time.Now().After(until) || !wait.Sleep(ctx, lockPoll) {
			return t.inVain(ctx, errors.New("another process is changing the table"))
		}
	}
	// It ends with the session where that has broken.
	defer func() { _, _ = t.conn.Exec(context.WithoutCancel(ctx), unlockSQL, int64(t.oid)) }()
	return step()
}

// othersSQL names those who may have been in the way: the oldest transactions, and who is taking a step.
const othersSQL = `
select coalesce(string_agg(format('session %s of %s (application "%s", in a transaction since %s)', pid, usename,
	application_name, coalesce(date_trunc('second', xact_start)::text, 'never')), ', '), 'nobody any more')
from (
	select * from pg_stat_activity
	where datname = current_database() and pid <> pg_backend_pid() and (xact_start is not null
		or pid in (select pid from pg_locks where locktype = 'advisory' and granted))
	order by xact_start
	limit 3) oldest`

// inVain says who was waited for.
func (t *Table) inVain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var others string
	if t.conn.QueryRow(ctx, othersSQL).Scan(&others) != nil {
		return err
	}
	return fmt.Errorf("waited for %s, and in the way may be %s: %w", t.cfg.Wait, others, err)
}

// failed says what was being done.
func (t *Table) failed(ctx context.Context, doing, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = errors.Join(ctx.Err(), err)
	}
	return fmt.Errorf("table %s: %s %s: %w", t.name, doing, what, err)
}
