package idempotency

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/internal/handlertx"
	"github.com/firstseen/firstseen/dedup/internal/session"
	"github.com/firstseen/firstseen/dedup/savepoint"
	"github.com/firstseen/firstseen/dedup/wait"
)

// txKey is the key of a request's transaction in its context.
type txKey struct{}

// Tx is the transaction of a request that [InTransaction] runs; nil in the context of any other. A handler can do
// anything in it but end it: Commit and Rollback answer an error, and a COMMIT in a statement fails. One that makes it
// read-only fails too, for a request with a key: the answer is written in it. What it leaves in the session (settings,
// a role, temporary tables, LISTEN, session locks) is gone after the transaction.
func Tx(ctx context.Context) pgx.Tx {
	tx, _ := ctx.Value(txKey{}).(pgx.Tx)
	return tx
}

// transaction is one request's. With a key it has made the key's row, or taken it over, and marked it so that nothing
// commits before the answer is stored. It is not safe for concurrent use.
type transaction struct {
	db      *db.DB
	conn    *pgxpool.Conn
	handler handlertx.Tx
	entry   *Entry // nil: the request has no key
	session *session.Session
}

// begin opens a transaction in which a handler may take work for, in one round trip, and with a key (nil: none) claims
// that. Where it is not to be had there is no transaction, and found says why.
func (p *Postgres) begin(ctx context.Context, e *Entry,
	work, ttl time.Duration) (t *transaction, found Finding, err error) {
	t = &transaction{db: p.db, entry: e}
	var r row
	q := &pgx.Batch{}
	q.BeginTx(db.Pinned)
	if e != nil {
		p.queueClaim(q, e, nil, ttl, &r)
	}
	q.Queue(db.LimitSQL, strconv.FormatInt(work.Milliseconds()+1000, 10))
	q.Queue(savepoint.Keep())
	err = p.ask(ctx, func(ctx context.Context) error { return t.open(ctx, p, q) })
	switch {
	case err == nil && (e == nil || r.fence != nil):
		return t, Finding{}, nil
	case err == nil:
		t.forgo(ctx)
		found, err = r.finding(InProgress)
	default:
		t.rollback(ctx)
	}
	return nil, found, storeError("begin a request's transaction", err)
}

func (t *transaction) open(ctx context.Context, p *Postgres, q *pgx.Batch) (err error) {
	if t.conn, err = p.db.Pool.Acquire(ctx); err != nil {
		return err
	}
	if t.session, err = p.sessions.Get(ctx, t.conn.Conn()); err != nil {
		t.conn.Release()
		t.conn = nil
		return err
	}
	t.handler = handlertx.New(t.session.Role)
	results := t.conn.SendBatch(ctx, q)
	t.handler.Tx = results.Tx()
	return results.Close()
}

// errBroken says that a handler has left its transaction so that it can't be committed.
var errBroken = errors.New("the handler's transaction can't be committed")

// check says whether the transaction can be committed.
func (t *transaction) check() error {
	if err := t.handler.Check(); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// undo takes back what the handler did, and keeps the key.
func (t *transaction) undo(ctx context.Context) error {
	if t.handler.Lost() {
		return t.check()
	}
	return db.Answered(ctx, t.db.Answer, func(ctx context.Context) error {
		_, err := t.conn.Exec(ctx, savepoint.Undo(), pgx.QueryExecModeSimpleProtocol)
		return err
	})
}

// answerSQL fails where the transaction is not the one that holds the key any more.
const answerSQL = `select firstseen.keep_answer($1, $2, $3, $4)`

// commit stores the answer, if the request has a key, commits, and puts the session back: all in one round trip. After
// an error that is no errBroken, and that Postgres did not raise, it is not known what became of it: see
// [Postgres.outcome].
func (t *transaction) commit(ctx context.Context, a Answer) error {
	if err := t.check(); err != nil {
		t.rollback(ctx)
		return err
	}
	t.handler.Shut()
	var committed bool
	err := db.Answered(ctx, t.db.Answer, func(ctx context.Context) (err error) {
		committed, err = lastOf(t.conn.Conn().PgConn().ExecBatch(ctx, t.last(a)))
		return err
	})
	t.end(ctx, err == nil)
	switch {
	case committed:
		return nil
	case err == nil:
		return fmt.Errorf("%w: Postgres rolled it back", errBroken)
	case failure.Raised(err) && failure.Of(err) == failure.ReadOnly: // it began with a write
		return fmt.Errorf("%w: the handler has made it read-only, and the answer is stored in it", errBroken)
	}
	return err
}

// tidySQL comes after the role was put back, and the commit.
const tidySQL = `select firstseen.tidy_session()`

// last makes the last statements. pgx' own batches won't do: it prepares their statements first, under the role and
// with the settings that the handler has left.
func (t *transaction) last(a Answer) *pgconn.Batch {
	q := &pgconn.Batch{}
	q.ExecParams(`reset session authorization`, nil, nil, nil, nil)
	q.ExecParams(t.session.Role, nil, nil, nil, nil)
	if t.entry != nil {
		const text, binary = 0, 1
		q.ExecParams(t.db.SQL(answerSQL), [][]byte{t.entry.ID[:], strconv.AppendInt(nil, int64(a.Status), 10),
			encodeHeader(a.Header), a.Body}, nil, []int16{binary, text, binary, binary}, nil)
	}
	q.ExecParams(`commit`, nil, nil, nil, nil)
	q.ExecParams(t.db.SQL(tidySQL), nil, nil, nil, nil)
	for _, sql := range t.session.Settings {
		q.ExecParams(sql, nil, nil, nil, nil)
	}
	return q
}

// lastOf reads the answers to the last statements.
func lastOf(results *pgconn.MultiResultReader) (committed bool, err error) {
	for results.NextResult() {
		tag, _ := results.ResultReader().Close() // the error is that of all
		committed = committed || tag.String() == "COMMIT"
	}
	return committed, results.Close()
}

// rollback undoes everything. Where a statement is still running the connection is cut, which has the same effect.
func (t *transaction) rollback(ctx context.Context) {
	if t.conn == nil {
		return
	}
	if busy := t.handler.Shut(); busy || t.conn.Conn().PgConn().IsBusy() {
		handlertx.Cut(t.conn)
		t.conn = nil
		return
	}
	t.end(ctx, false)
}

// forgo ends a transaction that no handler was given: its session is as it was.
func (t *transaction) forgo(ctx context.Context) {
	handlertx.Rollback(ctx, t.conn)
	t.conn.Release()
	t.conn = nil
}

// end gives the connection back: without a transaction, and its session as it was.
func (t *transaction) end(ctx context.Context, done bool) {
	if !done {
		handlertx.End(ctx, t.conn, `rollback; `+t.session.Reset)
	}
	t.conn.Release()
	t.conn = nil
}

// unknown says whether an error of commit leaves open what became of the transaction.
func unknown(err error) bool { return !errors.Is(err, errBroken) && !failure.Raised(err) }

// heldSQL says whether a transaction holds the key.
const heldSQL = `select not pg_try_advisory_xact_lock($1::integer, $2::integer)`

// outcome finds out what became of a transaction whose commit was not answered: Matching where it took effect, or a
// twin's has since, and NotFound where it did not. InProgress, after the time limit for an answer, is that Postgres
// still has it open: nobody knows.
func (p *Postgres) outcome(ctx context.Context, e Entry) (found Finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.db.Answer)
	defer cancel()
	class, object := e.lock()
	for {
		var held bool
		err = p.db.Pool.QueryRow(ctx, heldSQL, class, object).Scan(&held)
		if err == nil {
			found, err = p.Lookup(ctx, e) // after the look at the lock: what it has seen end is seen
		}
		switch {
		case err == nil && (found.State != NotFound || !held):
			return found, nil
		case !wait.Sleep(ctx, outcomePoll):
			return Finding{State: InProgress}, err
		}
	}
}

// outcomePoll is the time between two looks at what became of a transaction.
const outcomePoll = 20 * time.Millisecond
