package dedup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/internal/handlertx"
	"github.com/firstseen/firstseen/dedup/savepoint"
)

// ErrEnded is returned where a handler ended, or tried to end, the transaction that it was given.
var ErrEnded = handlertx.ErrEnded

// ErrAborted is returned where a handler reported success though a statement of its transaction had failed:
// Postgres would answer its COMMIT with ROLLBACK.
var ErrAborted = handlertx.ErrAborted

// ErrBusy is returned where a handler left a statement running, or rows or a batch's results unclosed.
var ErrBusy = handlertx.ErrBusy

// ErrNotYours is what Commit and Rollback of a handler's transaction answer.
var ErrNotYours = handlertx.ErrNotYours

// ErrConnectionLost is returned where the transaction's connection ended under it.
var ErrConnectionLost = failure.ErrConnectionLost

// Tx is the open transaction of an accepted batch. It is not safe for concurrent use.
type Tx struct {
	store   *Store
	conn    *pgxpool.Conn
	batch   *Batch
	cols    *columns
	handler handlertx.Tx
	session *session

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
	return positionError(t.exec(ctx, savepoint.Rehearse(t.session.role+`; `+t.store.db.SQL(checkDeferredSQL))))
}

// Undo takes back what was done since the transaction was opened, or since the last Keep. It returns
// ErrEnded where a handler did away with the savepoint.
func (t *Tx) Undo(ctx context.Context) error {
	return positionError(t.exec(ctx, savepoint.Undo()))
}

// Keep has what was done so far outlive a later Undo, and the next handler begin with the role that the first one
// had. Its errors are Undo's.
func (t *Tx) Keep(ctx context.Context) error {
	return positionError(t.exec(ctx, t.session.role+`; `+savepoint.Release()+`; `+savepoint.Keep()))
}

// exec runs statements that return nothing, in one round trip.
func (t *Tx) exec(ctx context.Context, sql string) error {
	return db.Answered(ctx, t.store.cfg.AnswerTimeout, func(ctx context.Context) error {
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

// Commit writes the inbox rows of the batch's new messages and commits, in one round trip. After an error
// whose cause is the connection it is not known whether the transaction took effect: the next Accept from the
// same position tells, by a *MovedError.
func (t *Tx) Commit(ctx context.Context) error {
	defer t.release()
	if err := t.shut(); err != nil {
		return fmt.Errorf("commit %s: %w", t.batch, err)
	}
	err := db.Answered(ctx, t.store.answerTo(t.batch.bytes()), t.writeAndCommit)
	if err != nil {
		handlertx.Rollback(ctx, t.conn)
		return fmt.Errorf("commit %s: %w", t.batch, positionError(err))
	}
	if p := t.batch.Position; p != nil {
		p.Next, p.LeaderEpoch, p.unmoved = t.batch.Next, t.batch.LeaderEpoch, false
	}
	return nil
}

const (
	copyInboxSQL = `copy firstseen.inbox (seq, scope_id, message_id, raw_id, topic, "partition", "offset", produced_at,
		raw_timestamp, key, headers, payload) from stdin binary; `
	commitSQL = `select firstseen.seal(); commit`
)

func (t *Tx) writeAndCommit(ctx context.Context) error {
	if t.lanes != nil {
		if err := t.finishLanes(ctx); err != nil {
			return err
		}
		return t.end(ctx, t.store.db.SQL(commitSQL), nil)
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if rows := t.inboxRows(); rows.n > 0 {
		return t.end(ctx, t.store.db.SQL(copyInboxSQL+commitSQL), rows)
	}
	return t.end(ctx, t.store.db.SQL(commitSQL), nil)
}

// end sends the last statements as one simple query: the role, COPY, seal, commit and what puts the session back are
// one round trip, and Postgres stops at the first that fails. In a transaction that has failed that is the first of
// all.
func (t *Tx) end(ctx context.Context, sql string, rows *copyRows) error {
	conn := t.conn.Conn().PgConn()
	sql = t.session.role + `; ` + sql + `; ` + t.session.reset
	if rows == nil {
		_, err := conn.Exec(ctx, sql).ReadAll()
		return err
	}
	_, err := conn.CopyFrom(ctx, rows.reader(), sql)
	if err != nil {
		rows.buf, rows.large = nil, nil // pgx may still be reading them: it does not wait for its writer where the connection broke
	}
	return err
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

// inboxRows encodes the batch's new messages as inbox rows, in the order that they came in.
func (t *Tx) inboxRows() *copyRows {
	rows := &t.cols.inbox
	rows.reset()
	for i := range t.batch.Entries {
		if e := &t.batch.Entries[i]; e.Outcome == New && e.State == Processed {
			rows.add(e, t.seq+int64(rows.n))
		}
	}
	return rows
}
