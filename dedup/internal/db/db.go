// Package db is how dedup and operate ask Postgres: a [DB] spells their SQL for its schema, bounds the wait for each
// answer, and says what to do where a right is missing. Queries are constants beside the functions that run them.
package db

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/migrations"
)

// DB is an inbox in a schema of a database. It is safe for concurrent use; its fields are not to be changed.
type DB struct {
	Pool   *pgxpool.Pool
	Schema migrations.Schema
	Inbox  string
	// Answer bounds the wait for an answer.
	Answer time.Duration

	mu      sync.RWMutex
	spelled map[string]string
}

// maxSpelled bounds how many statements are kept as they are spelled: more than there are constants.
const maxSpelled = 256

// SQL spells a statement, which is written for the schema firstseen, for the database's.
func (d *DB) SQL(statement string) string {
	d.mu.RLock()
	sql, ok := d.spelled[statement]
	d.mu.RUnlock()
	if ok {
		return sql
	}
	sql = d.Schema.SQL(statement)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.spelled == nil {
		d.spelled = map[string]string{}
	}
	if len(d.spelled) < maxSpelled {
		d.spelled[statement] = sql
	}
	return sql
}

// ErrNoAnswer is [dedup.ErrNoAnswer].
var ErrNoAnswer = errors.New("postgres has not answered in time")

// Answered does something with Postgres within a time limit.
func Answered(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w (%s): %w", ErrNoAnswer, limit, err)
	}
	return err
}

// Pinned are the options of every transaction that writes, whatever the defaults of the database and the role are.
// That it may write is not among them: default_transaction_read_only is a brake that is pulled on purpose, on a full
// disk say.
var Pinned = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// RollbackTimeout bounds the wait for the server's answer to a rollback.
const RollbackTimeout = 2 * time.Second

// Sever closes a connection's socket, the one thing that is safe while another goroutine uses it. A statement that is
// running is cancelled, or the server would keep its locks until it is through.
func Sever(ctx context.Context, pg *pgconn.PgConn) {
	_ = pg.CancelRequest(ctx)
	_ = pg.Conn().Close()
}

// InTx does something in a transaction that is short: within the time limit for an answer.
func (d *DB) InTx(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	return d.InTxWithin(ctx, d.Answer, f)
}

// longLimit bounds a transaction that may have much to do, or wait for a batch whose handler takes its time.
const longLimit = 10 * time.Minute

// InLongTx does something in a transaction that may take its time.
func (d *DB) InLongTx(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	return d.InTxWithin(ctx, longLimit, f)
}

// LimitSQL has Postgres end a transaction whose process was lost without a word: once it has had no statement for $1
// milliseconds, a text, or has been at one for so long, which nobody can cancel any more. A limit of statements that is
// shorter stays.
const LimitSQL = `
select set_config('idle_in_transaction_session_timeout', $1, true),
	set_config('statement_timeout', case
		when current_setting('statement_timeout')::interval between '1 us' and $1::text::int * interval '1 ms'
		then current_setting('statement_timeout') else $1 end, true)`

// InTxWithin does something in a transaction within a time limit, and commits it within that of an answer: to commit
// takes no longer for a transaction that had much to do. Where the connection falls silent Postgres ends the
// transaction a moment later: what it has inserted others would wait for, until the server's kernel gives it up.
func (d *DB) InTxWithin(ctx context.Context, limit time.Duration, f func(context.Context, pgx.Tx) error) error {
	begin := pgx.TxOptions{BeginQuery: fmt.Sprintf("begin isolation level %s; "+
		"set local idle_in_transaction_session_timeout = %d",
		Pinned.IsoLevel, (limit + time.Second).Milliseconds())}
	return Answered(ctx, limit, func(ctx context.Context) error {
		tx, err := d.Pool.BeginTx(ctx, begin)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if err := f(ctx, tx); err != nil {
			return err
		}
		return Answered(ctx, d.Answer, tx.Commit)
	})
}

// Collect runs one query.
func Collect[T any](ctx context.Context, d *DB, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var list []T
	err := Answered(ctx, longLimit, func(ctx context.Context) error {
		rows, err := d.Pool.Query(ctx, d.SQL(sql), args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	return list, RightsError(err)
}

// Reading are the options of a transaction that only looks.
var Reading = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}

// Look reads in one transaction, in which the planner does without what off names, settings such as enable_seqscan,
// where it can. A little before ctx's deadline Postgres ends the statement, so that the connection outlives it.
func (d *DB) Look(ctx context.Context, off []string, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, d.Pool, Reading, func(tx pgx.Tx) error {
		settings := &pgx.Batch{}
		for _, name := range off {
			settings.Queue(`select set_config($1, 'off', true)`, name)
		}
		if deadline, ok := ctx.Deadline(); ok {
			left := max(time.Until(deadline)*9/10-100*time.Millisecond, time.Millisecond)
			settings.Queue(`select set_config('statement_timeout', $1, true)`,
				strconv.FormatInt(left.Milliseconds(), 10))
		}
		if err := tx.SendBatch(ctx, settings).Close(); err != nil {
			return err
		}
		return do(tx)
	})
}

// LookAll reads all rows of a query in such a transaction.
func LookAll[T any](ctx context.Context, d *DB, off []string, scan pgx.RowToFunc[T], sql string,
	args ...any) (found []T, err error) {
	err = d.Look(ctx, off, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, d.SQL(sql), args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, scan)
		return err
	})
	return found, err
}

// byIndex has what is looked for read by an index.
var byIndex = []string{"enable_seqscan", "enable_bitmapscan"}

// LookOne reads one row in such a transaction, by an index; no row leaves what into points to alone.
func (d *DB) LookOne(ctx context.Context, sql string, args []any, into ...any) error {
	err := d.Look(ctx, byIndex, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, d.SQL(sql), args...)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, into, func() error { return nil })
		return err
	})
	if err != nil {
		return fmt.Errorf("look into inbox %s: %w", d.Inbox, err)
	}
	return nil
}

// RolesAdvice tells what to do where a login may not have what is firstseen's own.
const RolesAdvice = "run `firstseen migrate roles`, again after each upgrade, " +
	"and grant the login its role: firstseen_consumer, or firstseen_operator to a person"

// RightsError adds to an error of our own statements what to do, where Postgres said that a right is missing.
func RightsError(err error) error {
	if failure.Denied(err) {
		return fmt.Errorf("%w: %s", err, RolesAdvice)
	}
	return err
}

// TimestampNumber is a stored timestamp as [dedup.Message.Stamp] takes it, null where there is none. Earlier
// versions stored what is out of a timestamptz's bounds as plus or minus infinity.
func TimestampNumber(produced, number string) string {
	return `coalesce(` + number + `, case ` + produced + ` when 'infinity' then 9223372036854775807::bigint
	when '-infinity' then (-9223372036854775808)::bigint else floor(extract(epoch from ` + produced + `) * 1000)::bigint end)`
}

// Deref returns a column's value, and the zero value where it is null.
func Deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// OrNull is a null where there is no ID.
func OrNull(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
