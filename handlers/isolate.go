package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/firstseen/firstseen/dedup"
)

// run is one handler's turn at the entries of one transaction. A handler's failure is narrowed down to the messages
// that cause it: what it did is rolled back to a savepoint, the messages before the culprit are handled again, the
// culprit is parked or buried, and the rest goes on, without the later messages of its key.
type run struct {
	p      *Processor
	tx     *dedup.Tx
	target *registered
	// known is what earlier transactions over the same messages have found out.
	known *findings

	all     []dedup.Message         // the batch's, to hand over without a copy where nothing is left out
	blocked map[laneOf]*dedup.Entry // the first unfinished entry of each lane
	limit   int                     // entries in one call, where failures come often; 0: all
	keep    bool                    // what was done since the savepoint must survive the next Undo
}

type laneOf struct {
	scope int32
	lane  uuid.UUID
}

// lostError is a handler's failure that cost the transaction: it has to run again, knowing what failed.
type lostError struct {
	of       messageOf // zero: not known which message it was
	atCommit bool
	err      error
}

// repeatError is a failure that may be gone when the transaction runs again.
type repeatError struct{ err error }

func (e *repeatError) Error() string { return e.err.Error() }
func (e *repeatError) Unwrap() error { return e.err }

// messageOf is one message for one handler.
type messageOf struct {
	scope int32
	id    uuid.UUID
}

func of(e *dedup.Entry) messageOf { return messageOf{e.Scope, e.Message.ID} }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// handle brings every entry to a state. An error means that the transaction must be rolled back.
func (r *run) handle(ctx context.Context, entries []*dedup.Entry) error {
	for len(entries) > 0 {
		if r.isBlocked(entries[0]) {
			entries = entries[1:]
			continue
		}
		n := r.stretch(entries)
		if err := r.known.failed[of(entries[0])]; err != nil {
			r.fail(entries[0], err)
			entries = entries[1:]
			continue
		}
		done, err := r.try(ctx, entries[:n])
		if err != nil {
			return err
		}
		entries = entries[done:]
	}
	return nil
}

// stretch is how many entries can be handed to the handler in one call: up to the first that is blocked or known to
// fail, and one where messages are handled alone.
func (r *run) stretch(entries []*dedup.Entry) int {
	if r.known.alone {
		return 1
	}
	if r.limit > 0 && r.limit < len(entries) {
		entries = entries[:r.limit]
	}
	if len(r.blocked) == 0 && len(r.known.failed) == 0 {
		return len(entries)
	}
	for i, e := range entries[1:] {
		if r.known.failed[of(e)] != nil || r.blocks(e) != nil {
			return i + 1
		}
	}
	return len(entries)
}

// leastLimit keeps calls from becoming too short to be worth a round trip.
const leastLimit = 8

// adapt makes calls about as long as failures are apart: what comes after a failure was sent in vain.
func (r *run) adapt(handled, culprit int) {
	switch {
	case culprit >= 0:
		r.limit = max(leastLimit, 2*(culprit+1))
	case handled >= r.limit:
		r.limit *= 2
	}
}

// try hands entries to the handler, and returns for how many of them the state is settled.
func (r *run) try(ctx context.Context, entries []*dedup.Entry) (done int, err error) {
	if r.keep {
		if err := r.tx.Keep(ctx); err != nil {
			return 0, ended(err)
		}
		r.keep = false
	}
	failure := r.p.call(ctx, r.tx, r.target, r.messages(entries))
	if failure == nil && r.known.deferred {
		failure = r.checkAsCommit(ctx)
	}
	if failure == nil {
		for _, e := range entries {
			e.State, e.Reason, e.Error = dedup.Processed, "", ""
		}
		r.keep = true
		r.adapt(len(entries), -1)
		return len(entries), nil
	}
	switch kind := classify(ctx, failure, r.tx.Disconnected()); {
	case kind == ofInfrastructure:
		return 0, failure
	case kind == ofConcurrency && !r.known.patient:
		return 0, &repeatError{failure}
	case kind == ofDependency:
		failure = Unavailable(failure)
	}
	culprit := r.culprit(entries, failure)
	r.adapt(0, culprit)
	if r.tx.Lost() || errors.Is(failure, dedup.ErrEnded) {
		return 0, r.lost(entries, culprit, failure)
	}
	if err := r.tx.Undo(ctx); err != nil {
		return 0, ended(err)
	}
	return r.narrow(ctx, entries, culprit, failure)
}

// checkAsCommit finds out now what would cost the transaction later, when it is no longer known whose doing it was.
func (r *run) checkAsCommit(ctx context.Context) error {
	if err := r.tx.CheckDeferred(ctx); err != nil {
		return err
	}
	return r.tx.Keep(ctx)
}

// narrow settles entries of which the handler failed on one: before it, it, and none after it.
func (r *run) narrow(ctx context.Context, entries []*dedup.Entry, culprit int, failure error) (done int, err error) {
	switch {
	case culprit >= 0:
		if err := r.handle(ctx, entries[:culprit]); err != nil {
			return 0, err
		}
		if !r.isBlocked(entries[culprit]) { // by a message before it that failed only now
			r.fail(entries[culprit], failure)
		}
		return culprit + 1, nil
	default: // a handler that does not say which: halve
		half := len(entries) / 2
		if err := r.handle(ctx, entries[:half]); err != nil {
			return 0, err
		}
		return len(entries), r.handle(ctx, entries[half:])
	}
}

// ended says of a savepoint that is gone, because a handler has put another transaction in the first one's place, what a
// commit would have said of it: it is not known which message it was.
func ended(err error) error {
	if errors.Is(err, dedup.ErrEnded) {
		return &lostError{atCommit: true, err: err}
	}
	return err
}

// lost turns a failure that cost the transaction into what the next one has to know.
func (r *run) lost(entries []*dedup.Entry, culprit int, failure error) error {
	lost := &lostError{err: failure}
	if culprit >= 0 {
		lost.of = of(entries[culprit])
	}
	return lost
}

// culprit finds the entry that a handler's error is about, or -1.
func (r *run) culprit(entries []*dedup.Entry, failure error) int {
	if len(entries) == 1 {
		return 0
	}
	var about *MessageError
	if !errors.As(failure, &about) || inFailedTransaction(failure) {
		return -1
	}
	for i, e := range entries {
		if m := e.Message; m.Topic == about.Topic && m.Partition == about.Partition && m.Offset == about.Offset {
			return i
		}
	}
	return -1
}

// inFailedTransaction says that the error is the echo of an earlier one, which the handler has dropped: the message
// that it came up with is not the one to blame.
func inFailedTransaction(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "25P02"
}

// fail settles an entry that its handler failed on. While it is unfinished its lane waits behind it.
func (r *run) fail(e *dedup.Entry, err error) {
	r.target.retry.fail(e, err)
	e.Lane = r.laneOf(e)
	log := r.p.cfg.Logger.With("handler", r.target.name, "message", place(e.Message))
	log.Warn("handler failed", "state", e.Reason, "attempts", e.Attempts, "error", e.Error)
	if p := (*PanicError)(nil); errors.As(err, &p) {
		log.Error("handler panicked", "stack", string(p.Stack))
	}
	if e.State == dedup.Parked {
		r.block(e)
	}
}

func (r *run) block(e *dedup.Entry) {
	if r.blocked == nil {
		r.blocked = map[laneOf]*dedup.Entry{}
	}
	r.blocked[laneOf{e.Scope, e.Lane}] = e
}

// blocks gives the unfinished entry that e has to wait behind.
func (r *run) blocks(e *dedup.Entry) *dedup.Entry {
	if len(r.blocked) == 0 {
		return nil
	}
	return r.blocked[laneOf{e.Scope, r.laneOf(e)}]
}

// laneOf is the lane that a message lies in already, whatever the ordering was then, or belongs to.
func (r *run) laneOf(e *dedup.Entry) uuid.UUID {
	if e.Lane != uuid.Nil {
		return e.Lane
	}
	return r.target.ordering.Lane(e.Message)
}

// isBlocked parks an entry that has to wait.
func (r *run) isBlocked(e *dedup.Entry) bool {
	first := r.blocks(e)
	if first == nil {
		return false
	}
	e.Lane = first.Lane
	e.Park(first.Due)
	return true
}

// messages are those of entries: the batch's own slice where that is all of it.
func (r *run) messages(entries []*dedup.Entry) []dedup.Message {
	if len(entries) == len(r.all) && entries[0].Message == &r.all[0] {
		return r.all
	}
	ms := make([]dedup.Message, len(entries))
	for i, e := range entries {
		ms[i] = *e.Message
	}
	return ms
}

// place names a message for the log.
func place(m *dedup.Message) string { return fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset) }
