package dedup

import "context"

// savepoint is the one that a failed handler is rolled back to. Every transaction has it from its first round trip
// on; its name is not one that handlers would pick.
const savepoint = `savepoint firstseen_handler`

// Undo takes back what was done since the transaction was opened, or since the last Keep. It returns
// ErrEnded where a handler did away with the savepoint.
func (t *Tx) Undo(ctx context.Context) error {
	_, err := t.conn.Exec(ctx, `rollback to savepoint firstseen_handler`)
	return positionError(err)
}

// Keep has what was done so far outlive a later Undo. Its errors are Undo's.
func (t *Tx) Keep(ctx context.Context) error {
	_, err := t.conn.Conn().PgConn().Exec(ctx, `release savepoint firstseen_handler; `+savepoint).ReadAll()
	return positionError(err)
}
