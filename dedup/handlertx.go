package dedup

import (
	"context"
	"errors"
	"sync"
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
	gate      *gate
	session   *session
	savepoint bool
}

var _ pgx.Tx = (*handlerTx)(nil)

// gate lets one statement at a time through to a batch's connection, and none once the batch is over: a goroutine
// that a handler left behind must not reach the connection's next user.
type gate struct {
	running sync.Mutex
	over    atomic.Bool
}

func (g *gate) enter() error {
	if g.over.Load() {
		return pgx.ErrTxClosed
	}
	if !g.running.TryLock() {
		return ErrBusy
	}
	if g.over.Load() {
		g.running.Unlock()
		return pgx.ErrTxClosed
	}
	return nil
}

func (g *gate) leave() { g.running.Unlock() }

// shut lets nothing in any more, and says whether a statement is still running.
func (g *gate) shut() (busy bool) {
	g.over.Store(true)
	if !g.running.TryLock() {
		return true
	}
	g.running.Unlock()
	return false
}

// Check says whether the transaction can still be committed, without asking the server: see [Tx.Check].
func (t *handlerTx) Check() error {
	if err := t.gate.enter(); err != nil {
		return err
	}
	defer t.gate.leave()
	pg := t.Conn().PgConn()
	switch {
	case pg.IsBusy():
		return ErrBusy
	case pg.IsClosed():
		return ErrConnectionLost
	case pg.TxStatus() == 'E':
		return ErrAborted
	case pg.TxStatus() != 'T':
		return ErrEnded
	}
	return nil
}

// enter is the gate's, and says ErrEnded where no transaction is open any more: a statement would take effect by
// itself, outside of the batch.
func (t *handlerTx) enter() error {
	if err := t.gate.enter(); err != nil {
		return err
	}
	if pg := t.Conn().PgConn(); !pg.IsBusy() && !pg.IsClosed() && pg.TxStatus() == 'I' {
		t.gate.leave()
		return ErrEnded
	}
	return nil
}

// Commit releases a savepoint; the transaction itself is not the handler's to commit.
func (t *handlerTx) Commit(ctx context.Context) error { return t.end(ctx, t.Tx.Commit) }

// Rollback undoes what was done since a savepoint; the transaction itself is not the handler's to roll back.
func (t *handlerTx) Rollback(ctx context.Context) error { return t.end(ctx, t.Tx.Rollback) }

func (t *handlerTx) end(ctx context.Context, how func(context.Context) error) error {
	if !t.savepoint {
		return ErrNotYours
	}
	if err := t.enter(); err != nil {
		return err
	}
	defer t.gate.leave()
	return how(ctx)
}

func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.gate.leave()
	nested, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &handlerTx{Tx: nested, gate: t.gate, session: t.session, savepoint: true}, nil
}

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.gate.leave()
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	defer t.gate.leave()
	return t.Tx.Query(ctx, sql, args...)
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	defer t.gate.leave()
	return t.Tx.QueryRow(ctx, sql, args...)
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer t.gate.leave()
	return t.Tx.SendBatch(ctx, b)
}

func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	src pgx.CopyFromSource) (int64, error) {
	if err := t.enter(); err != nil {
		return 0, err
	}
	defer t.gate.leave()
	return t.Tx.CopyFrom(ctx, table, columns, src)
}

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.gate.leave()
	return t.Tx.Prepare(ctx, name, sql)
}
