package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/savepoint"
)

// Queued handles a message by queueing statements on b; they run in the order they were queued in. It is the cheapest
// kind of per-message handler, for effects that need no more of the database than a look at each statement's result: a
// function given to pgx's QueuedQuery.Exec, Query or QueryRow is called with it, and an error of its is the message's.
// Messages queue before the first of these is called.
type Queued interface {
	Queue(b *pgx.Batch, m dedup.Message) error
}

// QueuedFunc is a function as a Queued handler.
type QueuedFunc func(b *pgx.Batch, m dedup.Message) error

// Queue calls f.
func (f QueuedFunc) Queue(b *pgx.Batch, m dedup.Message) error { return f(b, m) }

// Queue turns a Queued handler into a BatchHandler that sends all that was queued in one round trip. Where messages
// have failed lately, savepoints go along with it.
func Queue(h Queued) BatchHandler { return queue{h} }

type queue struct{ handler Queued }

func (q queue) HandleBatch(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
	p := &pipeline{batch: &pgx.Batch{}}
	if err := p.queue(q.handler, ms); err != nil {
		return err
	}
	p.guard(savepoint.Role(tx), savepoint.Keep(), savepoint.Release())
	_, err := p.send(ctx, tx)
	return err
}

// round is one round trip: stretches of messages, with a savepoint behind each.
type round struct {
	undo      bool // first, what an earlier round did since the savepoint is taken back
	stretches [][]dedup.Message
}

// handle queues what the handler does for a round's messages, sends it, and sees how it went. Where it fails, so many
// of the messages as it returns are done and behind a savepoint.
func (q queue) handle(ctx context.Context, tx pgx.Tx, r round) (kept int, err error) {
	p := &pipeline{batch: &pgx.Batch{}, undo: r.undo}
	failure := p.fill(q.handler, savepoint.Role(tx), r)
	kept, err = p.send(ctx, tx)
	if errors.As(err, new(*undoError)) {
		if _, err := tx.Exec(ctx, savepoint.Undo()); err != nil {
			return 0, err
		}
		p = p.withoutUndo()
		kept, err = p.send(ctx, tx)
	}
	if err != nil {
		if err := p.takeBack(ctx, tx); err != nil {
			return 0, err
		}
	}
	return kept, cmp.Or(err, failure)
}

// pipeline is a round's statements, and whose they are.
type pipeline struct {
	batch *pgx.Batch
	undo  bool // is its first statement
	parts []part

	behind int // savepoints that Postgres has set behind a failure that it knows nothing of
}

type part struct {
	message    *dedup.Message // nil: the savepoint
	statements int
}

// fill queues everything, up to the first message that the handler has an error for.
func (p *pipeline) fill(h Queued, role string, r round) error {
	if r.undo {
		p.batch.Queue(savepoint.Undo())
	}
	for _, ms := range r.stretches {
		err := p.queue(h, ms)
		p.guard(role, savepoint.Keep())
		if err != nil {
			return err
		}
	}
	return nil
}

// guard queues statements about the role and the savepoint. Where a message before them has ended the transaction
// Postgres refuses them, and with them what came behind that message: else it would take effect by itself.
func (p *pipeline) guard(statements ...string) {
	if p.batch.Len() == 0 {
		return
	}
	for _, sql := range statements {
		p.batch.Queue(sql)
	}
	p.parts = append(p.parts, part{statements: len(statements)})
}

func (p *pipeline) queue(h Queued, ms []dedup.Message) (err error) {
	at, queued := 0, p.batch.Len()
	defer func() {
		if v := recover(); v != nil {
			err = messageError(&ms[at], &PanicError{Value: v, Stack: debug.Stack()})
		}
		if err != nil {
			p.batch.QueuedQueries = p.batch.QueuedQueries[:queued]
		}
	}()
	for at = range ms {
		if err := h.Queue(p.batch, ms[at]); err != nil {
			return messageError(&ms[at], err)
		}
		p.parts = append(p.parts, part{&ms[at], p.batch.Len() - queued})
		queued = p.batch.Len()
	}
	return nil
}

func (p *pipeline) send(ctx context.Context, tx pgx.Tx) (kept int, err error) {
	if p.batch.Len() == 0 {
		return 0, nil
	}
	results := tx.SendBatch(ctx, p.batch)
	sent := tx.Conn().PgConn().IsBusy()
	switch {
	case p.undo:
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			return 0, &undoError{err}
		}
	case !sent: // pgx could not encode or prepare a statement, and does not say whose
		return 0, cmp.Or(results.Close(), dedup.ErrBusy)
	}
	kept, err = p.read(ctx, results)
	if failure.IsOfValues(err) {
		p.batch.QueuedQueries = nil // else pgx would prepare all its statements again
	}
	return kept, cmp.Or(err, results.Close()) // Close repeats the first error
}

// read names the message that a statement failed for. Where the time is over it names none: Postgres holds answers
// back until there are many, so the message that is waited for may be through already.
func (p *pipeline) read(ctx context.Context, results pgx.BatchResults) (kept int, err error) {
	handled, statements := 0, p.batch.QueuedQueries
	if p.undo {
		statements = statements[1:]
	}
	var failed error
	for _, part := range p.parts {
		for range part.statements {
			if failed != nil {
				statements[0].Fn = nil
			}
			err := result(results, statements[0])
			statements = statements[1:]
			switch {
			case err == nil:
			case failed != nil: // Postgres has not run what comes behind
				return kept, failed
			case part.message == nil:
				return kept, savepointError(err)
			case ctx.Err() != nil:
				return kept, err
			default:
				failed = messageError(part.message, err)
			}
		}
		switch {
		case part.message != nil:
			handled++
		case failed != nil:
			p.behind++
		default:
			kept = handled
		}
	}
	return kept, failed
}

// result reads a statement's result, by the function that it was queued with where it has one.
func result(results pgx.BatchResults, q *pgx.QueuedQuery) (err error) {
	if q.Fn == nil {
		_, err = results.Exec()
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return q.Fn(results)
}

// savepointError marks the error of a savepoint that is refused because the handler has ended the transaction.
func savepointError(err error) error {
	if failure.Code(err) == "25P01" { // outside of a transaction
		return fmt.Errorf("%w: %w", dedup.ErrEnded, err)
	}
	return err
}

// undoError says that a pipeline did nothing: not even the effects of an earlier one were taken back.
type undoError struct{ err error }

func (e *undoError) Error() string { return e.err.Error() }
func (e *undoError) Unwrap() error { return e.err }

// takeBack undoes what Postgres has run behind the last savepoint that is kept, where a function that was given a
// result has found it wrong, and Postgres has not.
func (p *pipeline) takeBack(ctx context.Context, tx pgx.Tx) error {
	if p.behind == 0 && tx.Conn().PgConn().TxStatus() != 'T' {
		return nil
	}
	for range p.behind {
		for _, sql := range []string{savepoint.Undo(), savepoint.Release()} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
	}
	_, err := tx.Exec(ctx, savepoint.Undo())
	return err
}

// withoutUndo is the pipeline for a transaction whose failed part was taken back by other means. pgx needs it where it
// has to prepare a statement, which a failed transaction refuses.
func (p *pipeline) withoutUndo() *pipeline {
	again := &pipeline{batch: &pgx.Batch{}, parts: p.parts}
	for _, q := range p.batch.QueuedQueries[1:] {
		again.batch.Queue(q.SQL, q.Arguments...).Fn = q.Fn
	}
	return again
}
