package dedup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/internal/handlertx"
	"github.com/firstseen/firstseen/dedup/savepoint"
)

// Outcome is accept's answer for one entry of a batch.
type Outcome uint8

// The outcomes. The zero value is Duplicate: an entry counts as new only where Postgres said so.
const (
	// Duplicate: the ID was seen before in its scope, in an earlier batch or earlier in this one.
	Duplicate Outcome = iota
	// New: the ID was never seen in its scope; if the transaction commits, it has been.
	New
	// Conflict: the ID was seen before, with another fingerprint. The first one won; Commit records this one.
	Conflict
	// Buried: the ID was seen before, and its message lies in the dead letters.
	Buried
)

// State is what a transaction leaves a message in.
type State uint8

// The states. The zero value is Processed.
const (
	// Processed: handled, never to be handled again.
	Processed State = iota
	// Parked: in its lane, to be handled later.
	Parked
	// Dead: given up, in the dead letters.
	Dead
)

// Entry is one message for one scope (see [Store.Scopes]), and what becomes of it. Accept sets Outcome; who opened the
// transaction sets the rest before Commit.
type Entry struct {
	Scope   int32
	Message *Message
	Outcome Outcome

	// Lane is the queue that the message belongs to (see [Ordering.Lane]). It is needed where State is not Processed.
	Lane  uuid.UUID
	State State
	// Attempts is how often a handler has failed on the message.
	Attempts int
	// ParkedAt is when the message was parked first; zero where it was not.
	ParkedAt time.Time
	// Reason is a short code and Error the text of the last failure; empty where there was none.
	Reason, Error string
	// Due is how long from now the lane's next attempt is, where State is Parked.
	Due time.Duration
	// Alone says, where State is Parked, that the message may take down what handles it: ClaimLanes will give its
	// lane with Times more than 1.
	Alone bool
}

// Batch is what one transaction takes in: messages of one partition, in the order of their offsets.
type Batch struct {
	// Position is moved to Next by the transaction. Nil for messages that come from elsewhere than a partition.
	Position *Position
	// Next is the offset after the last one that this batch covers, gaps and broker-internal records included.
	Next int64
	// LeaderEpoch is that of the last message before Next, or of what the broker keeps for itself there. Nil: not
	// known.
	LeaderEpoch *int32
	Entries     []Entry
	// Replayed says that newer messages of the partition may have been accepted before these: they wait only for
	// unfinished messages that are older.
	Replayed bool
}

// optimisticAfter is how many batches without a duplicate it takes until accept tries a plain insert again. A
// plain insert of new IDs is cheaper than one with a conflict clause, a failed one leaves dead rows behind.
const optimisticAfter = 8

// What accept can be told to expect of a batch; nil: nothing. It answers the same whether that is right or not.
var expectSeen, expectNew = new(int32(0)), new(int32(1))

// expected is what the batches before make likely.
func (p *Position) expected() *int32 {
	switch {
	case p.allSeen:
		return expectSeen
	case p.sinceDuplicate >= optimisticAfter:
		return expectNew
	}
	return nil
}

// maxEntries is how many numbers accept gives a batch: the increment of message_seq.
const maxEntries = 1 << 20

// Accept opens a transaction, moves the batch's position under its epoch, inserts the IDs that were never seen
// in their scope and sets each entry's Outcome, all in one round trip. The transaction is READ COMMITTED
// whatever the database's default. On success the caller ends it with Commit or Rollback; on error nothing has
// taken effect. An empty batch moves the position only.
//
// Errors: ErrFenced, *MovedError, ErrLocked, ErrNoAnswer, or what Postgres said. Duplicates within a batch are told
// apart by their place: the first copy is the new one. Two batches with common IDs wait for each other, never in a
// circle: IDs are inserted in order.
func (s *Store) Accept(ctx context.Context, b *Batch) (*Tx, error) {
	if len(b.Entries) > maxEntries {
		return nil, fmt.Errorf("accept %s: %d messages for handlers are more than %d", b, len(b.Entries), maxEntries)
	}
	cols := columnPool.Get().(*columns)
	cols.sort(b.Entries)
	tx, err := s.accept(ctx, b, cols)
	if err != nil && b.Position != nil {
		err = s.lockedBy(ctx, b.Position, err)
	}
	if err != nil {
		cols.release()
		return nil, fmt.Errorf("accept %s: %w", b, db.RightsError(positionError(err)))
	}
	return tx, nil
}

const acceptSQL = `select outcomes, has_lanes, seq from firstseen.accept($1, $2, $3, $4, $5, $6, $7, $8, $9)`

func (s *Store) accept(ctx context.Context, b *Batch, cols *columns) (*Tx, error) {
	conn, err := s.db.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	session, err := s.sessionOf(ctx, conn.Conn())
	if err != nil {
		conn.Release()
		return nil, err
	}
	registerTypes(conn.Conn())
	tx := &Tx{store: s, conn: conn, batch: b, cols: cols, session: session,
		handler: handlertx.New(session.role)}

	var outcomes []int16
	var seq *int64 // null where nothing is new
	q := &pgx.Batch{}
	q.BeginTx(db.Pinned)
	q.Queue(s.db.SQL(acceptSQL), b.acceptArgs(cols)...).QueryRow(func(row pgx.Row) error {
		return row.Scan(&outcomes, &tx.hasLanes, &seq)
	})
	q.Queue(savepoint.Keep())
	err = db.Answered(ctx, s.cfg.AnswerTimeout, func(ctx context.Context) error {
		results := conn.SendBatch(ctx, q)
		tx.handler.Tx = results.Tx()
		return results.Close()
	})
	if err != nil {
		tx.cols = nil // the caller's again
		tx.Rollback(ctx)
		return nil, err
	}
	tx.seq = db.Deref(seq)
	b.setOutcomes(cols, outcomes)
	return tx, nil
}

func (b *Batch) acceptArgs(cols *columns) []any {
	scopes, ids, fingerprints := cols.acceptKeys(b.Entries)
	if p := b.Position; p != nil {
		return []any{p.id, p.Epoch, p.Next, b.Next, p.expected(), scopes, ids, fingerprints, b.LeaderEpoch}
	}
	return []any{nil, nil, nil, nil, nil, scopes, ids, fingerprints, nil}
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

// bytes is how much its commit has to send.
func (b *Batch) bytes() (n int) {
	for i := range b.Entries {
		n += b.Entries[i].Message.Size()
	}
	return n
}

// String names the batch for errors: topic/partition@first offset.
func (b *Batch) String() string {
	if p := b.Position; p != nil {
		return fmt.Sprintf("%s/%d@%d-%d", p.Topic, p.Partition, p.Next, b.Next)
	}
	return "batch of " + strconv.Itoa(len(b.Entries))
}

// SQLSTATEs that firstseen's own functions raise.
const (
	codeFenced = "FS001"
	codeMoved  = "FS002"
	codeSeal   = "FS003"
	codeLocked = "FS005"
)

const (
	codeInFailedTransaction = "25P02"
	codeNoSavepoint         = "3B001"
)

func positionError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case codeFenced:
		return ErrFenced
	case codeMoved:
		if next, perr := strconv.ParseInt(pg.Detail, 10, 64); perr == nil {
			return &MovedError{Next: next}
		}
	case codeLocked:
		return fmt.Errorf("%w: %s", ErrLocked, pg.Message)
	case codeSeal, codeNoSavepoint:
		return fmt.Errorf("%w: %w", ErrEnded, err)
	case codeInFailedTransaction:
		return fmt.Errorf("%w: %w", ErrAborted, err)
	}
	return err
}

// columns are a batch's parameters and its inbox rows, encoded; kept for the next batch.
type columns struct {
	order                     []int32 // entries to insert, by (scope, id), without twins that are known to be duplicates
	scopes, ids, fingerprints array
	inbox                     copyRows
}

var columnPool = sync.Pool{New: func() any { return new(columns) }}

// maxPooled keeps one giant batch from holding its memory for ever.
const maxPooled = 16 << 20

func (c *columns) release() {
	c.inbox.large = nil
	if cap(c.inbox.buf) <= maxPooled {
		columnPool.Put(c)
	}
}

// sort orders the entries by (scope, id) and drops all but the first of each.
func (c *columns) sort(entries []Entry) {
	c.order = c.order[:0]
	for i := range entries {
		c.order = append(c.order, int32(i))
	}
	compare := func(i, j int32) int {
		a, b := &entries[i], &entries[j]
		if a.Scope != b.Scope {
			return cmp.Compare(a.Scope, b.Scope)
		}
		return bytes.Compare(a.Message.ID[:], b.Message.ID[:])
	}
	slices.SortFunc(c.order, func(i, j int32) int {
		if by := compare(i, j); by != 0 {
			return by
		}
		return cmp.Compare(i, j)
	})
	// A twin with a fingerprint is Postgres' to judge: it may be a duplicate of the one that won, or a conflict.
	c.order = slices.CompactFunc(c.order, func(i, j int32) bool {
		return compare(i, j) == 0 && entries[j].Message.Fingerprint == nil
	})
}

func (c *columns) acceptKeys(entries []Entry) (int32Array, uuidArray, any) {
	c.scopes.reset(pgtype.Int4OID)
	c.ids.reset(pgtype.UUIDOID)
	c.fingerprints.reset(pgtype.ByteaOID)
	for _, i := range c.order {
		c.scopes.int32(entries[i].Scope)
		c.ids.uuid(entries[i].Message.ID)
		c.fingerprints.bytea(entries[i].Message.Fingerprint)
	}
	if c.fingerprints.nulls == c.fingerprints.n {
		return c.scopes.bytes(), c.ids.bytes(), nil
	}
	return c.scopes.bytes(), c.ids.bytes(), byteaArray(c.fingerprints.bytes())
}
