// Package session puts back what a handler has left in a connection's session: else the next transaction on that
// connection, of another partition or request, would have it. [Sessions.Get] gives the SQL for that.
package session

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/savepoint"
)

// Session is SQL that goes along with other statements, and puts a connection's session back.
type Session struct {
	// Role puts back the role alone, before the owner of a transaction works on tables of its own.
	Role string
	// Reset are statements that put back everything, as one text.
	Reset string
	// Settings put back what the pool has set in the connection, after a reset of all settings.
	Settings []string
}

// left ends all that a handler can leave beside settings and the role: locks, temporary tables, cursors and LISTEN.
// Prepared statements stay: pgx' own are among them.
var left = []string{`unlisten *`, `close all`, `discard temp`, `select pg_advisory_unlock_all()`}

var plain = made(savepoint.PlainRole)

// made makes a session of its own settings: reset all would undo those too.
func made(role string, settings ...string) *Session {
	statements := slices.Concat([]string{`reset session authorization`, `reset all`, role}, settings, left)
	return &Session{Role: role, Reset: strings.Join(statements, `; `), Settings: settings}
}

// madeSQL reads the role and the settings that the pool's AfterConnect has set.
const madeSQL = `
select case current_setting('role') when 'none' then 'reset role' else format('set role %I', current_setting('role')) end,
	array_remove(array['select ' || string_agg(format('set_config(%L, %L, false)', name, setting), ', ')], null)
from pg_settings
where source = 'session'`

// key is the key of a connection's session in its custom data.
const key = "firstseen.session"

// Sessions are those of a pool's connections.
type Sessions struct {
	makes bool // the pool sets something in each
}

// Of makes those of a pool.
func Of(pool *pgxpool.Pool) Sessions { return Sessions{makes: pool.Config().AfterConnect != nil} }

// Get returns the session of a connection that the pool has just given.
func (s Sessions) Get(ctx context.Context, conn *pgx.Conn) (*Session, error) {
	if !s.makes {
		return plain, nil
	}
	custom := conn.PgConn().CustomData()
	if known, ok := custom[key].(*Session); ok {
		return known, nil
	}
	var role string
	var settings []string
	if err := conn.QueryRow(ctx, madeSQL).Scan(&role, &settings); err != nil {
		return nil, fmt.Errorf("read the session's settings: %w", err)
	}
	known := made(role, settings...)
	custom[key] = known
	return known, nil
}
