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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Outcome is accept's answer for one entry of a batch.
type Outcome uint8

// The outcomes. The zero value is Duplicate: an entry counts as new only where Postgres said so.
const (
	// Duplicate: the ID was seen before in its scope, in an earlier batch or earlier in this one.
	Duplicate Outcome = iota
	// New: the ID was never seen in its scope; if the transaction commits, it has been.
	New
)

// Entry is one message for one scope (see [Store.Scopes]).
type Entry struct {
	Scope   int32
	Message *Message
	// Outcome is set by Accept.
	Outcome Outcome
}

// Batch is what one transaction takes in: messages of one partition, in the order of their offsets.
type Batch struct {
	// Position is moved to Next by the transaction. Nil for messages that come from elsewhere than a partition.
	Position *Position
	// Next is the offset after the last one that this batch covers, gaps and broker-internal records included.
	Next    int64
	Entries []Entry
}

// optimisticAfter is how many batches without a duplicate it takes until accept tries a plain insert again. A
// plain insert of new IDs is cheaper than one with a conflict clause, a failed one leaves dead rows behind.
const optimisticAfter = 8

// Accept opens a transaction, moves the batch's position under its epoch, inserts the IDs that were never seen
// in their scope and sets each entry's Outcome, all in one round trip. The transaction is READ COMMITTED
// whatever the database's default. On success the caller ends it with Commit or Rollback; on error nothing has
// taken effect. An empty batch moves the position only.
//
// Errors: ErrFenced, *MovedError, or what Postgres said. Duplicates within a batch are told apart by their place:
// the first copy is the new one. Two batches with common IDs wait for each other, never in a circle: IDs are
// inserted in order.
func (s *Store) Accept(ctx context.Context, b *Batch) (*Tx, error) {
	cols := columnPool.Get().(*columns)
	cols.sort(b.Entries)
	tx, err := s.accept(ctx, b, cols)
	if err != nil {
		cols.release()
		return nil, fmt.Errorf("accept %s: %w", b, positionError(err))
	}
	return tx, nil
}

func (s *Store) accept(ctx context.Context, b *Batch, cols *columns) (*Tx, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	registerArrays(conn.Conn())
	tx := &Tx{store: s, conn: conn, batch: b, cols: cols, handler: handlerTx{gate: &gate{}}}

	var fresh []int32
	q := &pgx.Batch{}
	q.BeginTx(pinned)
	q.Queue(s.sql.accept, b.acceptArgs(cols)...).QueryRow(func(row pgx.Row) error { return row.Scan(&fresh) })
	results := conn.SendBatch(ctx, q)
	tx.handler.Tx = results.Tx()
	if err := results.Close(); err != nil {
		tx.cols = nil // the caller's again
		tx.Rollback(ctx)
		return nil, err
	}
	b.setOutcomes(cols, fresh)
	return tx, nil
}

func (b *Batch) acceptArgs(cols *columns) []any {
	scopes, ids := cols.acceptKeys(b.Entries)
	if p := b.Position; p != nil {
		return []any{p.id, p.Epoch, p.Next, b.Next, p.sinceDuplicate >= optimisticAfter, scopes, ids, nil}
	}
	return []any{nil, nil, nil, nil, false, scopes, ids, nil}
}

// setOutcomes marks the entries that accept found new: all that were sent where fresh is nil.
func (b *Batch) setOutcomes(cols *columns, fresh []int32) {
	for i := range b.Entries {
		b.Entries[i].Outcome = Duplicate
	}
	if fresh == nil {
		for _, i := range cols.order {
			b.Entries[i].Outcome = New
		}
	}
	for _, ordinal := range fresh {
		b.Entries[cols.order[ordinal-1]].Outcome = New
	}
	if p := b.Position; p != nil {
		p.sinceDuplicate++
		if fresh != nil {
			p.sinceDuplicate = 0
		}
	}
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
)

const codeInFailedTransaction = "25P02"

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
	case codeSeal:
		return fmt.Errorf("%w: %w", ErrEnded, err)
	case codeInFailedTransaction:
		return fmt.Errorf("%w: %w", ErrAborted, err)
	}
	return err
}

// columns are a batch's parameters and its inbox rows, encoded; kept for the next batch.
type columns struct {
	order       []int32 // entries to insert, by (scope, id), without twins
	scopes, ids array
	inbox       copyRows
}

var columnPool = sync.Pool{New: func() any { return new(columns) }}

// maxPooled keeps one giant batch from holding its memory for ever.
const maxPooled = 16 << 20

func (c *columns) release() {
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
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), bytes.Compare(a.Message.ID[:], b.Message.ID[:]))
	}
	slices.SortFunc(c.order, func(i, j int32) int { return cmp.Or(compare(i, j), cmp.Compare(i, j)) })
	c.order = slices.CompactFunc(c.order, func(i, j int32) bool { return compare(i, j) == 0 })
}

func (c *columns) acceptKeys(entries []Entry) (int32Array, uuidArray) {
	c.scopes.reset(pgtype.Int4OID)
	c.ids.reset(pgtype.UUIDOID)
	for _, i := range c.order {
		c.scopes.int32(entries[i].Scope)
		c.ids.uuid(entries[i].Message.ID)
	}
	return c.scopes.bytes(), c.ids.bytes()
}
