package dedup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/savepoint"
)

// session puts back, in statements that go along with others, what a handler has left in a connection's session:
// else the next transaction's handler, of another partition, would have it.
type session struct {
	role  string // the role alone, before the store works on its own tables
	reset string // everything, after the commit
}

// left is what a handler can leave beside settings and the role: locks, temporary tables, cursors and LISTEN. Prepared
// statements stay: pgx' own are among them.
const left = `unlisten *; close all; discard temp; select pg_advisory_unlock_all()`

var plainSession = &session{
	role:  savepoint.PlainRole,
	reset: `reset session authorization; reset all; ` + left,
}

// madeSQL is what the pool's AfterConnect has set: reset all would undo that too.
const madeSQL = `
select case current_setting('role') when 'none' then 'reset role' else format('set role %I', current_setting('role')) end,
	coalesce('select ' || string_agg(format('set_config(%L, %L, false)', name, setting), ', ') || '; ', '')
from pg_settings
where source = 'session'`

// madeSession is what a connection keeps its session by.
const madeSession = "firstseen.session"

// sessionOf is that of a connection that the store has just been given.
func (s *Store) sessionOf(ctx context.Context, conn *pgx.Conn) (*session, error) {
	if !s.makesSessions {
		return plainSession, nil
	}
	custom := conn.PgConn().CustomData()
	if made, ok := custom[madeSession].(*session); ok {
		return made, nil
	}
	var role, settings string
	if err := conn.QueryRow(ctx, madeSQL).Scan(&role, &settings); err != nil {
		return nil, fmt.Errorf("read the session's settings: %w", err)
	}
	made := &session{role: role, reset: `reset session authorization; reset all; ` + role + `; ` + settings + left}
	custom[madeSession] = made
	return made, nil
}

// DropTemp drops the temporary tables that handlers have made, as if their transaction had ended.
func (t *Tx) DropTemp(ctx context.Context) error { return positionError(t.exec(ctx, `discard temp`)) }
