package dedup

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotYours is what Commit and Rollback of a handler's transaction answer.
var ErrNotYours = errors.New("the transaction is committed by firstseen: return nil to commit it, an error to roll it back")

// handlerTx is a batch's transaction in the hands of a handler: it can't be ended, and it answers ErrTxClosed
// once the batch is over. Begin makes a savepoint, which the handler may commit or roll back as it likes.
type handlerTx struct {
	pgx.Tx
	over atomic.Bool
}

var _ pgx.Tx = (*handlerTx)(nil)

func (t *handlerTx) Commit(context.Context) error   { return ErrNotYours }
func (t *handlerTx) Rollback(context.Context) error { return ErrNotYours }

func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.over.Load() {
		return nil, pgx.ErrTxClosed
	}
	return t.Tx.Begin(ctx)
}

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.over.Load() {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.over.Load() {
		return pgx.FailedBatchResults(&pgx.Batch{}, pgx.ErrTxClosed).Query()
	}
	return t.Tx.Query(ctx, sql, args...)
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.over.Load() {
		return pgx.FailedBatchResults(&pgx.Batch{}, pgx.ErrTxClosed).QueryRow()
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.over.Load() {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return t.Tx.SendBatch(ctx, b)
}

func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if t.over.Load() {
		return 0, pgx.ErrTxClosed
	}
	return t.Tx.CopyFrom(ctx, table, columns, src)
}

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.over.Load() {
		return nil, pgx.ErrTxClosed
	}
	return t.Tx.Prepare(ctx, name, sql)
}
