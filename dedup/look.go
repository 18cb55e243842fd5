package dedup

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// reading is what a transaction is that only looks.
var reading = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}

// look reads in one transaction, in which the planner does without what off names, settings such as enable_seqscan, where
// it can. A little before ctx's deadline Postgres ends the statement, so that the connection outlives it.
func (s *Store) look(ctx context.Context, off []string, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, reading, func(tx pgx.Tx) error {
		settings := &pgx.Batch{}
		for _, name := range off {
			settings.Queue(`select set_config($1, 'off', true)`, name)
		}
		if deadline, ok := ctx.Deadline(); ok {
			left := max(time.Until(deadline)*9/10-100*time.Millisecond, time.Millisecond)
			settings.Queue(`select set_config('statement_timeout', $1, true)`, strconv.FormatInt(left.Milliseconds(), 10))
		}
		if err := tx.SendBatch(ctx, settings).Close(); err != nil {
			return err
		}
		return do(tx)
	})
}

// lookAll reads all rows of a query in such a transaction.
func lookAll[T any](ctx context.Context, s *Store, off []string, scan pgx.RowToFunc[T], sql string, args ...any) (found []T, err error) {
	err = s.look(ctx, off, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.inSchema(sql), args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, scan)
		return err
	})
	return found, err
}
