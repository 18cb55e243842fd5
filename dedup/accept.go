package dedup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/internal/handlertx"
	"github.com/firstseen/firstseen/dedup/savepoint"
)

// maxEntries caps the numbers that accept gives a batch: the increment of message_seq.
const maxEntries = 1 << 20

// Accept opens a transaction, moves the batch's position under its epoch, inserts the IDs that were never seen
// in their scope and sets each entry's Outcome, all in one round trip. The transaction is READ COMMITTED
// whatever the database's default. On success the caller ends it with Commit or Rollback; on error nothing has
// taken effect. An empty batch moves the position only.
//
// Errors: ErrFenced, *MovedError, ErrLocked, ErrOtherServer, ErrNoAnswer, or what Postgres said. Duplicates within a
// batch are told apart by their place: the first copy is the new one. Two batches with common IDs wait for each other,
// never in a circle: IDs are inserted in order.
func (s *Store) Accept(ctx context.Context, b *Batch) (*Tx, error) {
	if len(b.Entries) > maxEntries {
		return nil, fmt.Errorf("accept %s: %d messages for handlers are more than %d", b, len(b.Entries), maxEntries)
	}
	cols := columnPool.Get().(*columns)
	cols.sort(b.Entries)
	tx, err := s.accept(ctx, b, cols)
	if err != nil && b.Position != nil {
		err = s.confirm(ctx, b.Position, s.lockedBy(ctx, b.Position, positionError(err)))
	}
	if err != nil {
		cols.release()
		return nil, fmt.Errorf("accept %s: %w", b, db.RightsError(err))
	}
	return tx, nil
}

const acceptSQL = `
select outcomes, has_lanes, seq, pg_postmaster_start_time() from firstseen.accept($1, $2, $3, $4, $5, $6, $7, $8, $9)`

func (s *Store) accept(ctx context.Context, b *Batch, cols *columns) (*Tx, error) {
	conn, err := s.db.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	session, err := s.sessions.Get(ctx, conn.Conn())
	if err != nil {
		conn.Release()
		return nil, err
	}
	registerTypes(conn.Conn())
	tx := &Tx{store: s, conn: conn, batch: b, cols: cols, session: session,
		handler: handlertx.New(session.Role)}

	var outcomes []int16
	var seq *int64 // null where nothing is new
	var server time.Time
	q := &pgx.Batch{}
	q.BeginTx(db.Pinned)
	if b.Position == nil { // nobody ends its transaction as a position's next owner does, and twins wait for it
		q.Queue(db.LimitSQL, s.idleAfter())
	}
	q.Queue(s.db.SQL(acceptSQL), b.acceptArgs(cols)...).QueryRow(func(row pgx.Row) error {
		return row.Scan(&outcomes, &tx.hasLanes, &seq, &server)
	})
	q.Queue(savepoint.Keep())
	err = s.Answered(ctx, 0, func(ctx context.Context) error {
		results := conn.SendBatch(ctx, q)
		tx.handler.Tx = results.Tx()
		return results.Close()
	})
	if err == nil && b.isOfOther(server) {
		s.scopes.forget(b.Server)
		err = ErrOtherServer
	}
	if err != nil {
		tx.cols = nil // the caller's again
		tx.Rollback(ctx)
		return nil, err
	}
	tx.seq = db.Deref(seq)
	b.setOutcomes(cols, outcomes)
	return tx, nil
}

// isOfOther says whether the batch's scopes or its position were found on another server than the one that answers.
func (b *Batch) isOfOther(server time.Time) bool {
	return !b.Server.IsZero() && !b.Server.Equal(server) || b.Position != nil && !b.Position.server.Equal(server)
}

func (b *Batch) acceptArgs(cols *columns) []any {
	scopes, ids, fingerprints := cols.acceptKeys(b.Entries)
	if p := b.Position; p != nil {
		return []any{p.id, p.Epoch, p.Next, b.Next, p.expected(), scopes, ids, fingerprints, b.LeaderEpoch}
	}
	return []any{nil, nil, nil, nil, nil, scopes, ids, fingerprints, nil}
}

// optimisticAfter counts the batches without a duplicate after which accept tries a plain insert again. A plain insert
// of new IDs is cheaper than one with a conflict clause, a failed one leaves dead rows behind.
const optimisticAfter = 8

// What accept can be told to expect of a batch; nil: nothing. It answers the same whether that is right or not.
var expectSeen, expectNew = new(int32(0)), new(int32(1))

// expected guesses the next batch's outcomes by those of the batches before.
func (p *Position) expected() *int32 {
	switch {
	case p.allSeen:
		return expectSeen
	case p.sinceDuplicate >= optimisticAfter:
		return expectNew
	}
	return nil
}

// setOutcomes spreads accept's answers, one for each ID that was sent; nil: all of them are new.
func (b *Batch) setOutcomes(cols *columns, outcomes []int16) {
	for i := range b.Entries {
		b.Entries[i].Outcome = Duplicate
	}
	for at, i := range cols.order {
		b.Entries[i].Outcome = New
		if outcomes != nil {
			b.Entries[i].Outcome = Outcome(outcomes[at])
		}
	}
	if p := b.Position; p != nil {
		p.sinceDuplicate++
		if outcomes != nil {
			p.sinceDuplicate = 0
		}
		p.allSeen = len(outcomes) > 0 && !slices.ContainsFunc(outcomes,
			func(o int16) bool { return Outcome(o) != Duplicate })
	}
}
