// Package handlertx is a transaction in the hands of somebody who must not end it: see [Tx]. Whoever owns the
// connection shuts the transaction before he commits it, or cuts the connection where it can't be shut.
package handlertx

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// What a transaction says where a handler broke it, or tried to end it.
var (
	ErrEnded   = errors.New("the handler ended the transaction that it was given")
	ErrAborted = errors.New("a statement failed in the transaction and its error was dropped")
	ErrBusy    = errors.New("a statement of the transaction is still running, or its rows were not closed")
	// ErrNotYours is returned by Commit and Rollback.
	ErrNotYours = errors.New("the transaction is committed by firstseen: return nil to commit it, " +
		"an error to roll it back")
)

// Tx is its owner's transaction in the hands of a handler: it can't be ended, and it answers ErrTxClosed once the
// owner has shut it. Begin makes a savepoint, which the handler may commit or roll back as it likes.
type Tx struct {
	pgx.Tx
	gate      *gate
	role      string
	savepoint bool
}

var _ pgx.Tx = (*Tx)(nil)

// New is a transaction whose owner has yet to begin it, and then sets Tx. role is the SQL that puts the role back that
// it begins with.
func New(role string) Tx { return Tx{gate: &gate{}, role: role} }

// RoleSQL puts the role back that the transaction began with: see savepoint.Role.
func (t *Tx) RoleSQL() string { return t.role }

// gate lets one statement at a time through to a connection, and none once the transaction is over: a goroutine that a
// handler left behind must not reach the connection's next user.
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

// Shut lets no statement in any more, and says whether one is still running.
func (t *Tx) Shut() (busy bool) { return t.gate.shut() }

// Lost says that nothing can be done in the transaction any more, not even a rollback to a savepoint.
func (t *Tx) Lost() bool {
	if t.gate.enter() != nil {
		return true
	}
	defer t.gate.leave()
	pg := t.Conn().PgConn()
	return pg.IsBusy() || pg.IsClosed() || pg.TxStatus() == 'I'
}

// Check says whether the transaction can still be committed, without asking the server.
func (t *Tx) Check() error {
	if err := t.gate.enter(); err != nil {
		return err
	}
	defer t.gate.leave()
	pg := t.Conn().PgConn()
	switch {
	case pg.IsBusy():
		return ErrBusy
	case pg.IsClosed():
		return failure.ErrConnectionLost
	case pg.TxStatus() == 'E':
		return ErrAborted
	case pg.TxStatus() != 'T':
		return ErrEnded
	}
	return nil
}

// enter is the gate's, and says ErrEnded where no transaction is open any more: a statement would take effect by
// itself, outside of it.
func (t *Tx) enter() error {
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
func (t *Tx) Commit(ctx context.Context) error { return t.end(ctx, t.Tx.Commit) }

// Rollback undoes what was done since a savepoint; the transaction itself is not the handler's to roll back.
func (t *Tx) Rollback(ctx context.Context) error { return t.end(ctx, t.Tx.Rollback) }

func (t *Tx) end(ctx context.Context, how func(context.Context) error) error {
	if !t.savepoint {
		return ErrNotYours
	}
	if err := t.enter(); err != nil {
		return err
	}
	defer t.gate.leave()
	return how(ctx)
}

func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.gate.leave()
	nested, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &Tx{Tx: nested, gate: t.gate, role: t.role, savepoint: true}, nil
}

// Do does something on the connection as a statement would be run.
func (t *Tx) Do(do func(*pgx.Conn) error) error {
	if err := t.enter(); err != nil {
		return err
	}
	defer t.gate.leave()
	return do(t.Conn())
}

func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.gate.leave()
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	defer t.gate.leave()
	return t.Tx.Query(ctx, sql, args...)
}

func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	defer t.gate.leave()
	return t.Tx.QueryRow(ctx, sql, args...)
}

func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer t.gate.leave()
	return t.Tx.SendBatch(ctx, b)
}

func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	src pgx.CopyFromSource) (int64, error) {
	if err := t.enter(); err != nil {
		return 0, err
	}
	defer t.gate.leave()
	return t.Tx.CopyFrom(ctx, table, columns, src)
}

func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.gate.leave()
	return t.Tx.Prepare(ctx, name, sql)
}

// Rollback rolls back what is open on a connection whose transaction was shut. Where the server can't be told the
// connection is closed, which has the same effect.
func Rollback(ctx context.Context, conn *pgxpool.Conn) {
	if !conn.Conn().IsClosed() && conn.Conn().PgConn().TxStatus() != 'I' {
		End(ctx, conn, `rollback`)
	}
}

// End runs the last statements on a connection. Where the server can't be told the connection is closed.
func End(ctx context.Context, conn *pgxpool.Conn, sql string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), db.RollbackTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		_ = conn.Conn().Close(ctx)
	}
}

// Cut takes a connection from its pool and severs it.
func Cut(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), db.RollbackTimeout)
	defer cancel()
	db.Sever(ctx, conn.Hijack().PgConn())
}
