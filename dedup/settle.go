package dedup

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Park makes a new entry's state Parked: its lane's next attempt is due after a while.
func (e *Entry) Park(due time.Duration) { e.State, e.Due = Parked, due }

const (
	joinSQL      = `select firstseen.join_lanes($1, $2, $3)`
	joinOlderSQL = `select firstseen.join_older_lanes($1, $2, $3, $4)`
)

const takeTurnsSQL = `select firstseen.take_turns($1, $2)`

// TakeTurns waits until no other transaction has the turn of one of these entries' lanes, for as long as ctx lets it,
// and has them until this one ends. It is for messages from no partition, which no position keeps in line, and comes
// before Join: what the transaction before has parked is found then. The entries are of different lanes.
func (t *Tx) TakeTurns(ctx context.Context, entries []*Entry) error {
	scopes, lanes := lanesOf(entries)
	_, err := t.conn.Exec(ctx, t.store.db.SQL(takeTurnsSQL), scopes, lanes)
	return err
}

// lanesOf are the entries' lanes, for a statement.
func lanesOf(entries []*Entry) (int32Array, uuidArray) {
	var scopes, lanes array
	scopes.grow(pgtype.Int4OID, len(entries), 4*len(entries))
	lanes.grow(pgtype.UUIDOID, len(entries), 16*len(entries))
	for _, e := range entries {
		scopes.int32(e.Scope)
		lanes.uuid(e.Lane)
	}
	return int32Array(scopes.bytes()), uuidArray(lanes.bytes())
}

// Join finds the new entries whose key has unfinished earlier messages, and parks them behind those. Their Lane must
// be set. It is for a transaction whose HasLanes says yes, and comes before the handlers.
func (t *Tx) Join(ctx context.Context, entries []*Entry) error {
	scopes, lanes := lanesOf(entries)
	sql, args := t.store.db.SQL(joinSQL), []any{t.positionID(), scopes, lanes}
	if t.batch.Replayed {
		offsets := make([]int64, len(entries))
		for i, e := range entries {
			offsets[i] = e.Message.Offset
		}
		sql, args = t.store.db.SQL(joinOlderSQL), append(args, offsets)
	}
	var found []int32
	err := t.store.Answered(ctx, 0, func(ctx context.Context) error {
		q := &pgx.Batch{}
		q.Queue(t.session.Role)
		q.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&found) })
		return t.conn.SendBatch(ctx, q).Close()
	})
	if err != nil {
		return err
	}
	for _, ordinal := range found {
		entries[ordinal-1].Park(0)
	}
	return nil
}

// HasLanes says whether the batch's partition may have unfinished messages that new ones have to wait for.
func (t *Tx) HasLanes() bool { return t.hasLanes }

func (t *Tx) positionID() *int32 {
	if p := t.batch.Position; p != nil {
		return &p.id
	}
	return nil
}

const (
	parkSQL = `select firstseen.park($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
		$17)`
	setApartSQL        = `select firstseen.set_apart($1, $2)`
	burySQL            = `select firstseen.bury($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`
	recordConflictsSQL = `select firstseen.record_conflicts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
)

// settle writes what is not simply processed: parked and dead messages, and conflicts. It costs a round trip only
// where there are any.
func (t *Tx) settle(ctx context.Context) error {
	var parked, dead, conflicts []*Entry
	for i := range t.batch.Entries {
		switch e := &t.batch.Entries[i]; {
		case e.Outcome == Conflict:
			conflicts = append(conflicts, e)
		case e.Outcome != New:
		case e.State == Parked:
			parked = append(parked, e)
		case e.State == Dead:
			dead = append(dead, e)
		}
	}
	statements := []statement{{sql: t.session.Role}}
	add := func(sql string, args []any) {
		statements = append(statements, statement{t.store.db.SQL(sql), args})
	}
	if len(parked) > 0 {
		add(parkSQL, append([]any{t.positionID()}, parkColumns(parked)...))
	}
	if lanes := apart(parked); lanes != nil {
		add(setApartSQL, lanes)
	}
	if len(dead) > 0 {
		add(burySQL, buryColumns(dead))
	}
	if len(conflicts) > 0 {
		add(recordConflictsSQL, conflictColumns(conflicts))
	}
	if len(statements) == 1 {
		return nil
	}
	return run(ctx, t.conn.Conn(), statements...)
}

// apart are the lanes of entries that are to be handled by themselves; nil: there are none.
func apart(parked []*Entry) []any {
	var scopes, lanes array
	scopes.reset(pgtype.Int4OID)
	lanes.reset(pgtype.UUIDOID)
	for _, e := range parked {
		if e.Alone {
			scopes.int32(e.Scope)
			lanes.uuid(e.Lane)
		}
	}
	if scopes.n == 0 {
		return nil
	}
	return []any{&scopes, &lanes}
}

func parkColumns(entries []*Entry) []any {
	scopes, lanes, attempts, reasons, errs := failureColumns(entries)
	var due array
	due.grow(pgtype.Int8OID, len(entries), 8*len(entries))
	for _, e := range entries {
		due.int64(e.Due.Milliseconds())
	}
	return append([]any{scopes, lanes, attempts, &due, reasons, errs}, contentColumns(entries)...)
}

func buryColumns(entries []*Entry) []any {
	scopes, lanes, attempts, reasons, errs := failureColumns(entries)
	return append([]any{scopes, lanes, attempts, reasons, errs}, contentColumns(entries)...)
}

func conflictColumns(entries []*Entry) []any {
	var scopes, fingerprints array
	scopes.grow(pgtype.Int4OID, len(entries), 4*len(entries))
	fingerprints.grow(pgtype.ByteaOID, len(entries), 32*len(entries))
	for _, e := range entries {
		scopes.int32(e.Scope)
		fingerprints.bytea(e.Message.Fingerprint)
	}
	content := contentColumns(entries)
	content = append(content[:1:1], content[2:]...) // conflicts keep no raw ID
	return append([]any{&scopes, &fingerprints}, content...)
}

func failureColumns(entries []*Entry) (scopes, lanes, attempts, reasons, errs *array) {
	var s, l, a, r, e array
	s.grow(pgtype.Int4OID, len(entries), 4*len(entries))
	l.grow(pgtype.UUIDOID, len(entries), 16*len(entries))
	a.grow(pgtype.Int4OID, len(entries), 4*len(entries))
	r.grow(pgtype.TextOID, len(entries), 0)
	e.grow(pgtype.TextOID, len(entries), 0)
	for _, entry := range entries {
		s.int32(entry.Scope)
		l.uuid(entry.Lane)
		a.int32(int32(entry.Attempts))
		r.text(entry.Reason)
		e.text(entry.Error)
	}
	return &s, &l, &a, &r, &e
}

// contentColumns are the messages themselves, without their tenants, which their scopes say, and with their raw
// timestamps.
func contentColumns(entries []*Entry) []any {
	ms := make([]Message, len(entries))
	for i, e := range entries {
		ms[i] = *e.Message
	}
	var numbers array
	numbers.grow(pgtype.Int8OID, len(ms), 0)
	for i := range ms {
		numbers.number(&ms[i])
	}
	columns := columnsOf(ms, false)
	return append(append(columns[:2:2], columns[3:]...), &numbers)
}
