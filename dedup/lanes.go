package dedup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/internal/handlertx"
	"github.com/firstseen/firstseen/dedup/savepoint"
)

// Claim is a lane that a worker has taken. It has to be loaded, and finished, before its lease ends; after that
// others may take it.
type Claim struct {
	Scope  int32
	Tenant string
	Lane   uuid.UUID
	// Times counts the claims of the lane since it last got anywhere, this one included. More than a few mean that a
	// message in it kills whoever handles it.
	Times int
	// Number tells this claim from earlier ones, and from later ones, which take the lane from it.
	Number int
}

const claimLanesSQL = `select scope_id, tenant, lane, claims, claim from firstseen.claim_lanes($1, $2, $3, $4)`

// ClaimLanes takes up to limit lanes of a handler whose next attempt is due, for as long as lease. Lanes that others
// are at work on are passed over.
func (s *Store) ClaimLanes(ctx context.Context, handler string, limit int, lease time.Duration) ([]Claim, error) {
	var claims []Claim
	err := s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.db.SQL(claimLanesSQL), s.cfg.Inbox, handler, limit, lease.Milliseconds())
		if err != nil {
			return err
		}
		claims, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Claim])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim lanes of handler %s: %w", handler, db.RightsError(err))
	}
	return claims, nil
}

// LoadBytes bounds the keys, headers and payloads that LoadLanes reads, where nothing less is asked for.
const LoadBytes = 16 << 20

// loadLanesSQL gives contents of up to $6 bytes and the sizes of all. It looks for a message's raw timestamp only
// where it has no other.
var loadLanesSQL = `select m.scope_id, m.lane, m.message_id, m.raw_id, m.topic, m."partition", m."offset", ` +
	db.TimestampNumber("m.produced_at", `(select p.raw_timestamp from firstseen.parked p where m.produced_at is null
		and p.scope_id = m.scope_id and p.lane = m.lane and p."offset" = m."offset" and p.message_id = m.message_id)`) + `,
		m.attempts, m.parked_at, octet_length(m.key), octet_length(m.headers), octet_length(m.payload),
		case when octet_length(m.key) <= $6 then m.key end, case when octet_length(m.headers) <= $6 then m.headers end,
		case when octet_length(m.payload) <= $6 then m.payload end
	from firstseen.load_lanes($1, $2, $3, $4, $5) m`

// LoadLanes opens a transaction on claimed lanes and reads up to each of the first messages of every lane, in order.
// Where that is more than so many bytes, 0 standing for LoadBytes, the last lanes get fewer or none. The first
// message comes however large it is; what is large of it, or of others, comes by [Tx.LoadRest] only. The
// transaction's entries are in the batch that it returns; who handles them sets their State, Attempts, Reason, Error
// and Due, or leaves one that was not tried Parked as it came, and ends the transaction like Accept's. Lanes that
// somebody else has taken since are left out.
func (s *Store) LoadLanes(ctx context.Context, claims []Claim, each, bytes int) (*Tx, *Batch, error) {
	return s.loadLanes(ctx, claims, each, cmp.Or(bytes, LoadBytes), sliceBytes)
}

// LockLanes is LoadLanes of the first message of every lane, without key, headers and payload.
func (s *Store) LockLanes(ctx context.Context, claims []Claim) (*Tx, *Batch, error) {
	return s.loadLanes(ctx, claims, 1, math.MaxInt64, -1)
}

func (s *Store) loadLanes(ctx context.Context, claims []Claim, each, bytes, content int) (*Tx, *Batch, error) {
	conn, err := s.db.Pool.Acquire(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("load lanes: %w", err)
	}
	session, err := s.sessions.Get(ctx, conn.Conn())
	if err != nil {
		conn.Release()
		return nil, nil, fmt.Errorf("load lanes: %w", err)
	}
	registerTypes(conn.Conn())
	batch := &Batch{}
	tx := &Tx{store: s, conn: conn, batch: batch, session: session,
		handler: handlertx.New(session.Role), lanes: claims}
	q := &pgx.Batch{}
	q.BeginTx(db.Pinned)
	// Nobody waits for the transaction of a process that has stopped, as a partition's new owner does, who would end
	// it.
	q.Queue(db.LimitSQL, s.idleAfter())
	q.Queue(s.db.SQL(loadLanesSQL), append(claimColumns(claims), each, bytes, content)...).
		Query(func(rows pgx.Rows) error { return tx.readLanes(rows, claims) })
	q.Queue(savepoint.Keep())
	err = s.Answered(ctx, LoadBytes, func(ctx context.Context) error {
		results := conn.SendBatch(ctx, q)
		tx.handler.Tx = results.Tx()
		return results.Close()
	})
	if err != nil {
		tx.Rollback(ctx)
		return nil, nil, fmt.Errorf("load lanes: %w", err)
	}
	return tx, batch, nil
}

func claimColumns(claims []Claim) []any {
	var scopes, lanes, numbers array
	scopes.grow(pgtype.Int4OID, len(claims), 4*len(claims))
	lanes.grow(pgtype.UUIDOID, len(claims), 16*len(claims))
	numbers.grow(pgtype.Int4OID, len(claims), 4*len(claims))
	for _, c := range claims {
		scopes.int32(c.Scope)
		lanes.uuid(c.Lane)
		numbers.int32(int32(c.Number))
	}
	return []any{int32Array(scopes.bytes()), uuidArray(lanes.bytes()), int32Array(numbers.bytes())}
}

// readLanes builds the transaction's entries, and keeps of its lanes those that are still its own.
func (t *Tx) readLanes(rows pgx.Rows, claims []Claim) error {
	tenants := make(map[int32]string, len(claims))
	for _, c := range claims {
		tenants[c.Scope] = c.Tenant
	}
	held := []Claim{}
	for rows.Next() {
		e := Entry{Message: &Message{}, Outcome: New, State: Parked}
		m := e.Message
		var id *uuid.UUID
		var raw, topic *string
		var partition, attempts *int32
		var offset, timestamp *int64
		var parked *time.Time
		var headers []byte
		var sizes [3]*int32
		err := rows.Scan(&e.Scope, &e.Lane, &id, &raw, &topic, &partition, &offset, &timestamp, &attempts, &parked,
			&sizes[0], &sizes[1], &sizes[2], &m.Key, &headers, &m.Value)
		if err != nil {
			return err
		}
		if m.Headers, err = DecodeHeaders(headers); err != nil {
			return fmt.Errorf("parked message: %w", err)
		}
		if last := len(held) - 1; last < 0 || held[last].Lane != e.Lane || held[last].Scope != e.Scope {
			held = append(held, Claim{Scope: e.Scope, Lane: e.Lane})
		}
		if id == nil {
			continue // a lane without messages
		}
		m.ID, m.RawID, m.Topic, m.Partition, m.Offset = *id, db.Deref(raw), *topic, db.Deref(partition), *offset
		e.Attempts, e.ParkedAt, m.Tenant = int(*attempts), *parked, tenants[e.Scope]
		if timestamp != nil {
			m.Stamp(*timestamp)
		}
		t.batch.Entries = append(t.batch.Entries, e)
		t.leaveOut(sizes, m.Key == nil, headers == nil, m.Value == nil)
	}
	t.lanes = held
	return rows.Err()
}

// ErrNotClaimed is returned where somebody else has the lane by now.
var ErrNotClaimed = errors.New("the lane is no longer claimed")

// Answer is Announce's answer to an attempt.
type Answer string

// The answers. The zero value is NothingThere.
const (
	// NothingThere: the lane is empty.
	NothingThere Answer = ""
	// Counted: the attempt is counted, and is to be made.
	Counted Answer = "counted"
	// LastOne: nothing is counted. The process died in an earlier attempt and this one would be the last: announce
	// it again, with nobody else at work in the process.
	LastOne Answer = "last"
	// Killed: nothing is counted. The process died in the last attempt, with nobody else at work in it.
	Killed Answer = "killed"
)

const announceSQL = `select * from firstseen.announce_attempt($1, $2, $3, $4, $5, $6, $7)`

// Announce counts an attempt on a lane's first message, in a transaction of its own, before the attempt is made: so
// it stays counted where the process dies. attempt is a new ID, which CancelAttempt knows it by, also where the answer
// to Announce was lost. It returns the message's ID and its attempts. The claim lasts for lease
// again. most is how many attempts a message has, and alone says that nobody else is at work in the process. It
// returns ErrNotClaimed where the claim was lost.
func (s *Store) Announce(ctx context.Context, c Claim, attempt uuid.UUID, lease time.Duration, most int,
	alone bool) (id uuid.UUID, attempts int, a Answer, err error) {
	var first *uuid.UUID
	var counted *int
	var answer *Answer
	err = s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.db.SQL(announceSQL), c.Scope, c.Lane, c.Number, lease.Milliseconds(), most, alone,
			attempt).
			Scan(&first, &counted, &answer)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotClaimed
	}
	if err != nil {
		return uuid.Nil, 0, "", fmt.Errorf("announce attempt: %w", err)
	}
	return db.Deref(first), db.Deref(counted), db.Deref(answer), nil
}

const keepLaneSQL = `update firstseen.lanes set due_at = greatest(due_at, clock_timestamp() + $4::bigint * interval '1 ms')
	where scope_id = $1 and lane = $2 and claim = $3`

// KeepLane makes a claim last for lease again, where it has not been lost.
func (s *Store) KeepLane(ctx context.Context, c Claim, lease time.Duration) error {
	err := s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.SQL(keepLaneSQL), c.Scope, c.Lane, c.Number, lease.Milliseconds())
		return err
	})
	if err != nil {
		return fmt.Errorf("keep a lane: %w", err)
	}
	return nil
}

const cancelSQL = `select firstseen.cancel_attempt($1, $2, $3)`

// CancelAttempt takes back what Announce has counted, where the attempt was none and the process lives: once, however
// often it is called, whoever has the lane by now, and nothing where Announce did not come to it.
func (s *Store) CancelAttempt(ctx context.Context, c Claim, attempt uuid.UUID) error {
	err := s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.SQL(cancelSQL), c.Scope, c.Lane, attempt)
		return err
	})
	if err != nil {
		return fmt.Errorf("take back an attempt: %w", err)
	}
	return nil
}

const releaseLanesSQL = `select firstseen.release_lanes($1, $2, $3, $4)`

// ReleaseLanes gives claimed lanes back before they got anywhere, to be due after a while: the process lived, so the
// claim does not count.
func (s *Store) ReleaseLanes(ctx context.Context, claims []Claim, due time.Duration) error {
	err := s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		registerTypes(tx.Conn())
		_, err := tx.Exec(ctx, s.db.SQL(releaseLanesSQL), append(claimColumns(claims), due.Milliseconds())...)
		return err
	})
	if err != nil {
		return fmt.Errorf("release lanes: %w", err)
	}
	return nil
}

// What finish_lanes knows a result by.
const (
	resultProcessed = 1
	resultFailed    = 2
	resultDead      = 3
)

const finishLanesSQL = `select firstseen.finish_lanes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

// hastenSQL has Postgres end a transaction soon that hears no more of its process, in milliseconds.
const hastenSQL = `select set_config('idle_in_transaction_session_timeout', $1, true)`

// finishLanes writes what became of a lane worker's messages and sets its lanes free. From here on others wait for a
// lane that is removed, and a whole partition with them: nothing but the commit is to come, so if it does not Postgres
// ends the transaction, whose answer or whose process was lost.
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
	args := []any{&scopes, &lanes, &offsets, &ids, &results, &attempts, &reasons, &errs}
	soon := strconv.FormatInt(min(t.store.cfg.IdleAfter, t.store.cfg.AnswerTimeout+time.Second).Milliseconds(), 10)
	statements := []statement{{sql: t.session.Role}, {hastenSQL, []any{soon}},
		{t.store.db.SQL(finishLanesSQL), append(args, t.laneColumns(due)...)}}
	if lanes := apart(parked); lanes != nil {
		statements = append(statements, statement{t.store.db.SQL(setApartSQL), lanes})
	}
	return run(ctx, t.conn.Conn(), statements...)
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
	return []any{&scopes, &lanes, &dues}
}
