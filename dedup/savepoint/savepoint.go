// Package savepoint is what dedup and handlers agree on about the savepoint that every batch's transaction has from
// its first round trip on: what failed is rolled back to it. The statements can be sent together with a handler's
// own.
package savepoint

import (
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// name is another one in each process, so that none of a handler's own is taken for it.
var name = fmt.Sprintf("firstseen_%08x", rand.Uint32()) //nolint:gosec // it is no secret

var (
	keep    = `savepoint ` + name
	release = `release savepoint ` + name
	undo    = `rollback to savepoint ` + name
)

// Keep has what was done so far outlive a later Undo. It leaves the savepoint that was there below its own, where
// Release brings it back.
func Keep() string { return keep }

// Release does away with the last Keep, and with nothing that was done.
func Release() string { return release }

// Undo takes back what was done since the last Keep. It can be sent where the transaction has failed, but only
// before other statements.
func Undo() string { return undo }

// Rehearse runs statements and takes back what they did. Which constraints are deferred is part of that, and so is
// that deferred triggers have fired: the commit will fire them. To name no constraint needs no right, and the
// session's own search_path is in force for the triggers, as in the commit.
func Rehearse(sql string) string {
	name := name + `_rehearsal`
	return `savepoint ` + name + `; ` + sql + `; rollback to savepoint ` + name + `; release savepoint ` + name
}

// PlainRole puts the login's own role back.
const PlainRole = `reset role`

// Role puts the role back that a handler's transaction began with.
func Role(tx pgx.Tx) string {
	if t, ok := tx.(interface{ RoleSQL() string }); ok {
		return t.RoleSQL()
	}
	return PlainRole
}
