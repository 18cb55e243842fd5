package dedup

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// What finish_lanes knows a result by.
const (
	resultProcessed = 1
	resultFailed    = 2
	resultDead      = 3
)

const finishLanesSQL = `select firstseen.finish_lanes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

// finishLanes writes what became of a lane worker's messages and sets its lanes free.
func (t *Tx) finishLanes(ctx context.Context) error {
	var scopes, lanes, offsets, ids, results, attempts, reasons, errs array
	for _, a := range []struct {
		to      *array
		element uint32
	}{{&scopes, pgtype.Int4OID}, {&lanes, pgtype.UUIDOID}, {&offsets, pgtype.Int8OID}, {&ids, pgtype.UUIDOID},
		{&results, pgtype.Int4OID}, {&attempts, pgtype.Int4OID}, {&reasons, pgtype.TextOID}, {&errs, pgtype.TextOID}} {
		a.to.reset(a.element)
	}
	due := make(map[Claim]int64, len(t.lanes))
	var parked []*Entry
	for i := range t.batch.Entries {
		e := &t.batch.Entries[i]
		lane := Claim{Scope: e.Scope, Lane: e.Lane}
		if e.State == Parked {
			parked = append(parked, e)
		}
		if _, waiting := due[lane]; e.State == Parked && !waiting {
			due[lane] = e.Due.Milliseconds() // of the first that is not finished
		}
		result := e.result()
		if result == 0 {
			continue
		}
		scopes.int32(e.Scope)
		lanes.uuid(e.Lane)
		offsets.int64(e.Message.Offset)
		ids.uuid(e.Message.ID)
		results.int32(result)
		attempts.int32(int32(e.Attempts))
		reasons.text(e.Reason)
		errs.text(e.Error)
	}
	args := []any{int32Array(scopes.bytes()), uuidArray(lanes.bytes()), int64Array(offsets.bytes()), uuidArray(ids.bytes()),
		int32Array(results.bytes()), int32Array(attempts.bytes()), textArray(reasons.bytes()), textArray(errs.bytes())}
	q := &pgx.Batch{}
	q.Queue(t.session.role)
	q.Queue(t.store.db.SQL(finishLanesSQL), append(args, t.laneColumns(due)...)...)
	if scopes, lanes := apart(parked); scopes != nil {
		q.Queue(t.store.db.SQL(setApartSQL), scopes, lanes)
	}
	return t.conn.SendBatch(ctx, q).Close()
}

func (e *Entry) result() int32 {
	switch {
	case e.State == Processed:
		return resultProcessed
	case e.State == Dead:
		return resultDead
	case e.Reason != "":
		return resultFailed
	}
	return 0 // not tried
}

func (t *Tx) laneColumns(due map[Claim]int64) []any {
	var scopes, lanes, dues array
	scopes.reset(pgtype.Int4OID)
	lanes.reset(pgtype.UUIDOID)
	dues.reset(pgtype.Int8OID)
	for _, l := range t.lanes {
		scopes.int32(l.Scope)
		lanes.uuid(l.Lane)
		dues.int64(due[Claim{Scope: l.Scope, Lane: l.Lane}])
	}
	return []any{int32Array(scopes.bytes()), uuidArray(lanes.bytes()), int64Array(dues.bytes())}
}
