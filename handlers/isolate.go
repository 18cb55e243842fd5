package handlers

import (
	"context"
	"errors"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
)

// isolation narrows a handler's failure down to the messages that cause it: what it did is rolled back to a savepoint,
// the messages between that and the culprit are handled again, the culprit is parked or buried, and the rest goes on,
// without the later messages of its key. It begins with a failure, or where a handler has failed lately.
type isolation struct {
	*run

	failed   map[*dedup.Entry]*verdict // on messages that failed; they are settled in their turn
	blocked  map[laneOf]*dedup.Entry   // the first unfinished entry of each lane
	suspects int                       // so many of the next messages hide one that fails, and it is not known which
	passed   bool                      // a message was handled
	undo     bool                      // what was done since the savepoint is still to be taken back

	row  []messageOf // what failed as in an outage since a message was handled
	held error       // of an outage that has begun: the rest waits
}

func newIsolation(r *run) *isolation {
	if r.known == nil {
		r.known = &findings{}
	}
	return &isolation{run: r}
}

// isolate is [run.handle] for a handler that has failed lately, or has cost a transaction over these messages.
func (r *run) isolate(ctx context.Context, entries []*dedup.Entry) (err error) {
	s := newIsolation(r)
	entries = s.setApart(entries)
	ctx, span := r.p.telemetry.turn(ctx, r.target, len(entries))
	defer func(n int) { endTurn(span, r.tries.sum(), n, err) }(len(entries))
	return s.handle(ctx, entries)
}

// isolateFailed goes on where a call has failed, of n entries behind those that are done, of which some are kept.
func (r *run) isolateFailed(ctx context.Context, entries []*dedup.Entry, done, n, kept int, cause error) error {
	s := newIsolation(r)
	s.passed = done > 0
	entries = entries[done:]
	settled, err := s.failedOn(ctx, call{entries, []stretch{{0, n}}}, kept, cause)
	if err != nil {
		return err
	}
	s.settle(ctx, entries[:settled])
	return s.handle(ctx, entries[settled:])
}

// handle brings every entry to a state. An error means that the transaction must be rolled back.
func (s *isolation) handle(ctx context.Context, entries []*dedup.Entry) error {
	for len(entries) > 0 && s.held == nil {
		done, err := s.try(ctx, s.plan(entries))
		if err != nil {
			return err
		}
		s.settle(ctx, entries[:done])
		entries = entries[done:]
	}
	s.putOff(ctx, entries)
	return s.takeBack(ctx)
}

// setApart parks the entries of a call that took all of its time, and gives the others.
func (s *isolation) setApart(entries []*dedup.Entry) (others []*dedup.Entry) {
	if len(s.known.apart) == 0 {
		return entries
	}
	for _, e := range entries {
		if !s.known.apart[of(e)] {
			others = append(others, e)
			continue
		}
		e.Lane, e.Alone = s.laneOf(e), true
		e.Park(0)
		s.block(e)
	}
	return others
}

// try makes a call, and returns how many of its entries can be settled. Of the others one was found to fail, or fewer
// are suspected.
func (s *isolation) try(ctx context.Context, c call) (done int, err error) {
	if len(c.stretches) == 0 {
		return len(c.entries), nil
	}
	if err := s.keep(ctx); err != nil {
		return 0, err
	}
	if s.target.singly.Load() {
		if err := s.dropTemp(ctx); err != nil {
			return 0, ended(err)
		}
	}
	kept, cause := s.p.call(ctx, s.tx, s.target, s.attempt(s.undo, s.messages(c)...))
	if cause == nil && s.known.deferred {
		cause = s.checkAsCommit(ctx)
	}
	if cause == nil {
		s.succeeded(c)
		return c.end(), nil
	}
	return s.failedOn(ctx, c, kept, cause)
}

// failedOn says what a call's failure means, behind so many messages that are kept.
func (s *isolation) failedOn(ctx context.Context, c call, kept int, cause error) (done int, err error) {
	switch kind := classify(ctx, cause, s.tx.Disconnected()); {
	case kind == ofInfrastructure:
		return 0, saysEnded(cause, s.tx.Disconnected())
	case kind == ofConcurrency && !s.known.patient():
		return 0, &repeatError{cause}
	case kind == ofDependency:
		cause = &awayError{cause}
	}
	return c.at(kept), s.narrow(ctx, c, kept, cause)
}

func (s *isolation) succeeded(c call) {
	s.handled(c.size())
	s.undo, s.row, s.passed = false, nil, true
	s.suspects = max(0, s.suspects-c.size())
}

// checkAsCommit finds out now what would cost the transaction later, when it is no longer known whose doing it was.
func (s *isolation) checkAsCommit(ctx context.Context) error {
	if err := s.tx.CheckDeferred(ctx); err != nil {
		return err
	}
	return s.tx.Keep(ctx)
}

// narrow takes back what a failed call did behind the messages that are kept, and judges the culprit or, where the
// handler does not say which it is, suspects fewer messages.
func (s *isolation) narrow(ctx context.Context, c call, kept int, cause error) error {
	culprit := c.culprit(cause)
	if culprit < 0 && s.tookAll(cause) {
		return s.lostTime(c, cause)
	}
	cause = s.excuse(c, culprit, cause)
	if s.tx.Lost() || errors.Is(cause, dedup.ErrEnded) || kept == c.size() {
		return s.lost(c, culprit, cause)
	}
	if failure.Code(cause) == codeDuplicateTable && !s.target.singly.Swap(true) {
		return s.singly(ctx)
	}
	_, named := s.pipelined()
	named = named && culprit >= 0
	// Nothing is to be undone where a queue's own error came before it sent anything.
	s.undo = !named || kept < c.before(culprit) || s.tx.Check() != nil
	if !named || !failure.IsOfValues(cause) {
		if err := s.takeBack(ctx); err != nil {
			return err
		}
	}
	if culprit < 0 {
		s.suspects = c.size() - kept
		return nil
	}
	s.suspects = 0
	s.pace.failed(c.before(culprit))
	s.judge(c.entries[culprit], cause)
	return nil
}

// codeDuplicateTable is what a handler meets that makes a temporary table for each message: the one for the message
// before is there until the commit.
const codeDuplicateTable = "42P07"

// singly has the handler's messages handled one at a time from now on, with no temporary table left by the one before.
func (s *isolation) singly(ctx context.Context) error {
	s.p.cfg.Logger.Warn("a handler makes a table for each message that is still there at the next one: "+
		"its messages are handled one at a time, which is slow", "handler", s.target.name,
		"do", "have it drop the table itself, or create it if not exists and truncate it")
	s.undo = true
	return s.takeBack(ctx)
}

func (s *isolation) dropTemp(ctx context.Context) error {
	if err := s.takeBack(ctx); err != nil {
		return err
	}
	return s.tx.DropTemp(ctx)
}

// excuse marks a failure that may be an outage's so that it counts no attempt, unless the message's siblings pass.
// Several in a row have the rest wait.
func (s *isolation) excuse(c call, culprit int, failure error) error {
	if culprit < 0 || !errors.As(failure, new(*awayError)) {
		return failure
	}
	if c.before(culprit) > 0 {
		s.row, s.passed = nil, true
	}
	circuit, m := s.p.circuits[s.target], of(c.entries[culprit])
	s.row = append(s.row, m)
	if len(s.row) >= outageAfter || !s.passed && circuit.opensWith(s.row) {
		s.held = failure
	}
	if circuit.counts(m) {
		return failure
	}
	return Unavailable(failure)
}

// takeBack undoes what a failed call did. It is left to a queue's next call where that can do it on its way: in a
// failed transaction only statements that pgx knows already can be sent along.
func (s *isolation) takeBack(ctx context.Context) error {
	if !s.undo {
		return nil
	}
	s.undo = false
	return ended(s.tx.Undo(ctx))
}

// tookAll says that the handler's time was over, and it is not known whether one message hangs or all are slow. Of
// messages that were handled one after the other it is: none took half of it.
func (s *isolation) tookAll(cause error) bool {
	_, each := s.target.handler.(each)
	return !each && errors.Is(cause, ErrHandlerTimeout)
}

// lostTime has the messages of a call handled each by itself: others would lose as much time again.
func (s *isolation) lostTime(c call, cause error) error {
	lost := &lostError{err: cause}
	for _, part := range c.stretches {
		for _, e := range c.entries[part.from:part.to] {
			lost.apart = append(lost.apart, of(e))
		}
	}
	s.p.cfg.Logger.Warn("a handler took all of its time; the messages of its call are handled one at a time",
		"handler", s.target.name, "first", place(c.entries[c.stretches[0].from].Message), "messages", len(lost.apart),
		"error", cause)
	return lost
}

// lost turns a failure that cost the transaction into what the next one has to know.
func (s *isolation) lost(c call, culprit int, cause error) error {
	lost := &lostError{err: cause}
	if culprit >= 0 {
		lost.of = of(c.entries[culprit])
	}
	return lost
}
