package dedup

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/internal/handlertx"
	"github.com/firstseen/firstseen/dedup/internal/session"
	"github.com/firstseen/firstseen/dedup/savepoint"
)

// ErrNotYours is returned by Commit and Rollback of a handler's transaction.
var ErrNotYours = handlertx.ErrNotYours

// Tx is the open transaction of an accepted batch. It is not safe for concurrent use.
type Tx struct {
	store   *Store
	conn    *pgxpool.Conn
	batch   *Batch
	cols    *columns
	handler handlertx.Tx
	session *session.Session

	hasLanes bool
	seq      int64   // the number of the batch's first new message
	lanes    []Claim // of a lane worker's transaction; nil for a batch's
	rest     []part  // of its messages, that was not loaded
}

// Handler is the transaction as handlers get it: they can do anything in it but end it.
func (t *Tx) Handler() pgx.Tx { return &t.handler }

// Check says whether the transaction can still be committed: ErrAborted, ErrEnded or ErrBusy where a handler broke
// it. It asks the connection's state, not the server.
func (t *Tx) Check() error {
	return t.handler.Check()
}

const checkDeferredSQL = `select firstseen.seal(); set constraints all immediate`

// CheckDeferred finds out what the commit would fail on: a constraint that a handler has deferred, or another
// transaction in this one's place. It changes nothing.
func (t *Tx) CheckDeferred(ctx context.Context) error {
	return positionError(t.exec(ctx, savepoint.Rehearse(t.session.Role+`; `+t.store.db.SQL(checkDeferredSQL))))
}

// Undo takes back what was done since the transaction was opened, or since the last Keep. It returns
// ErrEnded where a handler did away with the savepoint.
func (t *Tx) Undo(ctx context.Context) error {
	return positionError(t.exec(ctx, savepoint.Undo()))
}

// DropTemp drops the temporary tables that handlers have made, as if their transaction had ended.
func (t *Tx) DropTemp(ctx context.Context) error { return positionError(t.exec(ctx, `discard temp`)) }

// Keep has what was done so far outlive a later Undo, and the next handler begin with the role that the first one
// had. Its errors are Undo's.
func (t *Tx) Keep(ctx context.Context) error {
	return positionError(t.exec(ctx, t.session.Role+`; `+savepoint.Release()+`; `+savepoint.Keep()))
}

// exec runs statements that return nothing, in one round trip.
func (t *Tx) exec(ctx context.Context, sql string) error {
	return t.store.Answered(ctx, 0, func(ctx context.Context) error {
		_, err := t.conn.Conn().PgConn().Exec(ctx, sql).ReadAll()
		return err
	})
}

// Disconnected says that the transaction's connection has ended.
func (t *Tx) Disconnected() bool { return t.conn == nil || t.conn.Conn().PgConn().IsClosed() }

// Lost says that nothing can be done in the transaction any more, not even Undo.
func (t *Tx) Lost() bool {
	return t.conn == nil || t.handler.Lost()
}

// Rollback undoes everything, and needs no error: where the server can't be told, the connection is thrown
// away, which has the same effect. After Commit it does nothing.
func (t *Tx) Rollback(ctx context.Context) {
	if t.conn == nil {
		return
	}
	defer t.release()
	if t.shut() == nil {
		handlertx.Rollback(ctx, t.conn)
	}
}

// shut keeps handlers from the connection from now on. A connection that one of them still uses is cut.
func (t *Tx) shut() error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	if busy := t.handler.Shut(); busy || t.conn.Conn().PgConn().IsBusy() {
		t.cut()
		return ErrBusy
	}
	return nil
}

// Abandon cuts the transaction's connection while a handler is still using it. The server rolls back; the
// handler's next statement fails; the pool may open a connection in its place. It is the one way to get rid of a
// handler that ignores its context.
func (t *Tx) Abandon() {
	t.handler.Shut()
	t.cut()
}

// cut takes the connection from the pool and closes its socket.
func (t *Tx) cut() {
	handlertx.Cut(t.conn)
	t.conn, t.cols = nil, nil
}

func (t *Tx) release() {
	if t.conn == nil {
		return
	}
	t.conn.Release()
	t.conn = nil
	if t.cols != nil {
		t.cols.release()
		t.cols = nil
	}
}
