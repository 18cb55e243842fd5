package dedup

import (
	"context"
	"fmt"

	"github.com/firstseen/firstseen/dedup/internal/handlertx"
)

// Commit writes the inbox rows of the batch's new messages and commits, in one round trip. After an error
// whose cause is the connection it is not known whether the transaction took effect: the next Accept from the
// same position tells, by a *MovedError.
func (t *Tx) Commit(ctx context.Context) error {
	defer t.release()
	if err := t.shut(); err != nil {
		return fmt.Errorf("commit %s: %w", t.batch, err)
	}
	err := t.store.Answered(ctx, t.batch.bytes(), t.writeAndCommit)
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

// end sends the last statements as one simple query: the role, COPY, seal, commit and what puts the session back are
// one round trip, and Postgres stops at the first that fails. In a transaction that has failed that is the first of
// all.
func (t *Tx) end(ctx context.Context, sql string, rows *copyRows) error {
	conn := t.conn.Conn().PgConn()
	sql = t.session.Role + `; ` + sql + `; ` + t.session.Reset
	if rows == nil {
		_, err := conn.Exec(ctx, sql).ReadAll()
		return err
	}
	_, err := conn.CopyFrom(ctx, rows.reader(), sql)
	if err != nil {
		// pgx may go on reading them: it does not wait for its writer where the connection broke
		rows.buf, rows.large = nil, nil
	}
	return err
}
