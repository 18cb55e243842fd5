package dedup

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// savepointName is the savepoint that a failed handler is rolled back to. Every transaction has it from its first round
// trip on. It is another one in each process, so that none of a handler's own is taken for it.
var savepointName = fmt.Sprintf("firstseen_%08x", rand.Uint32()) //nolint:gosec // it is no secret

var (
	savepoint = `savepoint ` + savepointName
	undo      = `rollback to savepoint ` + savepointName
	release   = `release savepoint ` + savepointName
)

// rehearse runs statements and takes back what they did. Which constraints are deferred is part of that, and so is that
// deferred triggers have fired: the commit will fire them. To name no constraint needs no right, and the session's own
// search_path is in force for the triggers, as in the commit.
func rehearse(sql string) string {
	name := savepointName + `_rehearsal`
	return `savepoint ` + name + `; ` + sql + `; rollback to savepoint ` + name + `; release savepoint ` + name
}

// Undo takes back what was done since the transaction was opened, or since the last Keep. It returns
// ErrEnded where a handler did away with the savepoint.
func (t *Tx) Undo(ctx context.Context) error {
	return positionError(t.exec(ctx, undo))
}

// Keep has what was done so far outlive a later Undo, and the next handler begin with the role that the first one had. Its
// errors are Undo's.
func (t *Tx) Keep(ctx context.Context) error {
	return positionError(t.exec(ctx, t.session.role+`; `+release+`; `+savepoint))
}

// KeepSQL does what [Tx.Keep] does, for who sends it together with a handler's statements. It leaves the savepoint that was
// there below its own, where ReleaseSQL brings it back.
func KeepSQL() string { return savepoint }

// ReleaseSQL does away with the last KeepSQL, and with nothing that was done.
func ReleaseSQL() string { return release }

// UndoSQL does what [Tx.Undo] does. It can be sent where the transaction has failed, but only before other statements.
func UndoSQL() string { return undo }
