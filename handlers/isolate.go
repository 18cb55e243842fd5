package handlers

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
)

// run is one handler's turn at the entries of one transaction. A handler's failure is narrowed down to the messages
// that cause it: what it did is rolled back to a savepoint, the messages between that and the culprit are handled again,
// the culprit is parked or buried, and the rest goes on, without the later messages of its key.
type run struct {
	p      *Processor
	tx     *dedup.Tx
	target *registered
	// known is what earlier transactions over the same messages have found out.
	known *findings
	pace  *pace

	all      []dedup.Message           // the batch's, to hand over without a copy where nothing is left out
	failed   map[*dedup.Entry]*verdict // on messages that failed; they are settled in their turn
	blocked  map[laneOf]*dedup.Entry   // the first unfinished entry of each lane
	suspects int                       // so many of the next messages hide one that fails, and it is not known which
	tries    tries                     // that failed, and are settled
	passed   bool                      // a message was handled
	unkept   bool                      // what was done since the savepoint must survive the next Undo
	undo     bool                      // what was done since the savepoint is still to be taken back

	away map[messageOf]error // what failed as in an outage, and is settled
	row  []messageOf         // what did so since a message was handled
	held error               // of an outage that has begun: the rest waits
}

// lostError is a handler's failure that cost the transaction: it has to run again, knowing what failed.
type lostError struct {
	of       messageOf   // zero: not known which message it was
	apart    []messageOf // one of these it was, and none is to be tried with others again
	atCommit bool
	err      error
}

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

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

// handle brings every entry to a state. An error means that the transaction must be rolled back.
func (r *run) handle(ctx context.Context, entries []*dedup.Entry) (err error) {
	if len(entries) == 0 {
		return nil
	}
	entries = r.setApart(entries)
	ctx, span := r.p.telemetry.turn(ctx, r.target, len(entries))
	defer func(n int) { endTurn(span, r.tries.sum(), n, err) }(len(entries))
	for len(entries) > 0 && r.held == nil {
		done, err := r.try(ctx, r.plan(entries))
		if err != nil {
			return err
		}
		r.settle(ctx, entries[:done])
		entries = entries[done:]
	}
	r.putOff(ctx, entries)
	return r.takeBack(ctx)
}

// setApart parks the entries of a call that took all of its time, and gives the others.
func (r *run) setApart(entries []*dedup.Entry) (others []*dedup.Entry) {
	if len(r.known.apart) == 0 {
		return entries
	}
	for _, e := range entries {
		if !r.known.apart[of(e)] {
			others = append(others, e)
			continue
		}
		e.Lane, e.Alone = r.laneOf(e), true
		e.Park(0)
		r.block(e)
	}
	return others
}

// try makes a call, and returns how many of its entries can be settled. Of the others one was found to fail, or fewer
// are suspected.
func (r *run) try(ctx context.Context, c call) (done int, err error) {
	if len(c.stretches) == 0 {
		return len(c.entries), nil
	}
	if r.unkept {
		if err := r.tx.Keep(ctx); err != nil {
			return 0, ended(err)
		}
		r.unkept = false
	}
	if r.target.singly.Load() {
		if err := r.dropTemp(ctx); err != nil {
			return 0, ended(err)
		}
	}
	kept, cause := r.p.call(ctx, r.tx, r.target, r.attempt(c))
	if cause == nil && r.known.deferred {
		cause = r.checkAsCommit(ctx)
	}
	if cause == nil {
		r.succeeded(c)
		return c.end(), nil
	}
	switch kind := classify(ctx, cause, r.tx.Disconnected()); {
	case kind == ofInfrastructure:
		return 0, saysEnded(cause, r.tx.Disconnected())
	case kind == ofConcurrency && !r.known.patient:
		return 0, &repeatError{cause}
	case kind == ofDependency:
		cause = &awayError{cause}
	}
	return c.at(kept), r.narrow(ctx, c, kept, cause)
}

// attempt is how the messages of a call are handed over.
func (r *run) attempt(c call) attempt {
	messages, tx := r.messages(c), r.tx.Handler()
	if q, ok := r.pipelined(); ok {
		this := round{r.undo, messages}
		return func(ctx context.Context) (int, error) { return q.handle(ctx, tx, this) }
	}
	return func(ctx context.Context) (int, error) { return 0, r.target.handler.HandleBatch(ctx, tx, messages[0]) }
}

// pipelined says whether savepoints go along with what the handler sends. Where the commit has failed they can't: what is
// deferred has to be checked before.
func (r *run) pipelined() (q queue, ok bool) {
	q, ok = r.target.handler.(queue)
	return q, ok && !r.known.deferred
}

func (r *run) succeeded(c call) {
	_, pipelined := r.pipelined()
	r.undo, r.unkept, r.row, r.passed = false, !pipelined, nil, true
	r.suspects = max(0, r.suspects-c.size())
	r.pace.handled(c.size())
}

// checkAsCommit finds out now what would cost the transaction later, when it is no longer known whose doing it was.
func (r *run) checkAsCommit(ctx context.Context) error {
	if err := r.tx.CheckDeferred(ctx); err != nil {
		return err
	}
	return r.tx.Keep(ctx)
}

// narrow takes back what a failed call did behind the messages that are kept, and judges the culprit or, where the
// handler does not say which it is, suspects fewer messages.
func (r *run) narrow(ctx context.Context, c call, kept int, cause error) error {
	culprit := c.culprit(cause)
	if culprit < 0 && r.tookAll(cause) {
		return r.lostTime(c, cause)
	}
	cause = r.excuse(c, culprit, cause)
	if r.tx.Lost() || errors.Is(cause, dedup.ErrEnded) || kept == c.size() {
		return r.lost(c, culprit, cause)
	}
	if failure.Code(cause) == codeDuplicateTable && !r.target.singly.Swap(true) {
		return r.singly(ctx)
	}
	_, named := r.pipelined()
	named = named && culprit >= 0
	r.undo = !named || kept < c.before(culprit) || r.tx.Check() != nil // not where a queue's own error came before it sent anything
	if !named || !failure.IsOfValues(cause) {
		if err := r.takeBack(ctx); err != nil {
			return err
		}
	}
	if culprit < 0 {
		r.suspects = c.size() - kept
		return nil
	}
	r.suspects = 0
	r.pace.failed(c.before(culprit))
	r.judge(c.entries[culprit], cause)
	return nil
}

// codeDuplicateTable is what a handler meets that makes a temporary table for each message: the one for the message before
// is there until the commit.
const codeDuplicateTable = "42P07"

// singly has the handler's messages handled one at a time from now on, with no temporary table left by the one before.
func (r *run) singly(ctx context.Context) error {
	r.p.cfg.Logger.Warn("a handler makes a table for each message that is still there at the next one: its messages are handled one at a "+
		"time, which is slow", "handler", r.target.name, "do", "have it drop the table itself, or create it if not exists and truncate it")
	r.undo = true
	return r.takeBack(ctx)
}

func (r *run) dropTemp(ctx context.Context) error {
	if err := r.takeBack(ctx); err != nil {
		return err
	}
	return r.tx.DropTemp(ctx)
}

// excuse marks a failure that may be an outage's so that it counts no attempt, unless the message's siblings pass. Several in a
// row have the rest wait.
func (r *run) excuse(c call, culprit int, failure error) error {
	if culprit < 0 || !errors.As(failure, new(*awayError)) {
		return failure
	}
	if c.before(culprit) > 0 {
		r.row, r.passed = nil, true
	}
	circuit, m := r.p.circuits[r.target], of(c.entries[culprit])
	r.row = append(r.row, m)
	if len(r.row) >= outageAfter || !r.passed && circuit.opensWith(r.row) {
		r.held = failure
	}
	if circuit.counts(m) {
		return failure
	}
	return Unavailable(failure)
}

// takeBack undoes what a failed call did. It is left to a queue's next call where that can do it on its way: in a failed
// transaction only statements that pgx knows already can be sent along.
func (r *run) takeBack(ctx context.Context) error {
	if !r.undo {
		return nil
	}
	r.undo = false
	return ended(r.tx.Undo(ctx))
}

// ended says of a savepoint that is gone, because a handler has put another transaction in the first one's place, what a
// commit would have said of it: it is not known which message it was.
func ended(err error) error {
	if errors.Is(err, dedup.ErrEnded) {
		return &lostError{atCommit: true, err: err}
	}
	return err
}

// tookAll says that the handler's time was over, and it is not known whether one message hangs or all are slow. Of
// messages that were handled one after the other it is: none took half of it.
func (r *run) tookAll(cause error) bool {
	_, each := r.target.handler.(each)
	return !each && errors.Is(cause, ErrHandlerTimeout)
}

// lostTime has the messages of a call handled each by itself: others would lose as much time again.
func (r *run) lostTime(c call, cause error) error {
	lost := &lostError{err: cause}
	for _, s := range c.stretches {
		for _, e := range c.entries[s.from:s.to] {
			lost.apart = append(lost.apart, of(e))
		}
	}
	r.p.cfg.Logger.Warn("a handler took all of its time; the messages of its call are handled one at a time",
		"handler", r.target.name, "first", place(c.entries[c.stretches[0].from].Message), "messages", len(lost.apart), "error", cause)
	return lost
}

// lost turns a failure that cost the transaction into what the next one has to know.
func (r *run) lost(c call, culprit int, cause error) error {
	lost := &lostError{err: cause}
	if culprit >= 0 {
		lost.of = of(c.entries[culprit])
	}
	return lost
}
