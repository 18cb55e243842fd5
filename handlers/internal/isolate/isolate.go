// Package isolate is the slow path of a batch: it finds the messages that a handler fails on. It is entered with a
// failure, or where a handler has failed lately.
//
// In come the entries of a transaction and the [Handler] in its turn at them; when [Isolation.Handle] returns, each has
// its state. What the handler did is rolled back to a savepoint, the messages between that and the culprit are handled
// again, the culprit is parked or buried, and the rest goes on, without the later messages of its lane. A failure that
// costs the transaction is a [LostError]: [Run] runs it again, and the [Findings] say what is not to be tried again.
//
// What an error means, when the next attempt is, and what an outage is, the handler knows.
//
// # Files, in reading order
//
//	turn.go     what an isolation is given: the handler, its traits, the transaction's savepoint
//	isolate.go  call after call, each with what the one before has left
//	plan.go     which entries a call gets
//	narrow.go   after a call that failed: whose doing it was
//	verdict.go  what becomes of an entry, when its turn comes
//	pace.go     how far apart failures lie
//	lost.go     a transaction that was lost runs again
package isolate

import (
	"context"

	"github.com/firstseen/firstseen/dedup"
)

// Isolation brings the entries of one handler in one transaction to their states. It is not safe for concurrent use.
type Isolation struct {
	Handler
	Turn

	// Tries that failed, and are settled.
	Tries Tries
	// Away is what failed as in an outage, and is settled.
	Away map[Message]error

	failed   map[*dedup.Entry]*verdict // on messages that failed; they are settled in their turn
	blocked  map[Lane]*dedup.Entry     // the first unfinished entry of each lane
	suspects int                       // so many of the next messages hide one that fails, and it is not known which
	passed   bool                      // a message was handled
	undo     bool                      // what was done since the savepoint is still to be taken back

	row  []Message // what failed as in an outage since a message was handled
	held error     // of an outage that has begun: the rest waits
}

// Tries are failed tries of messages, by reason. The zero value has none, and can't be added to.
type Tries map[string]int

// Sum counts all of them.
func (t Tries) Sum() (n int) {
	for _, failed := range t {
		n += failed
	}
	return n
}

// New begins one.
func New(h Handler, t Turn) *Isolation {
	if t.Known == nil {
		t.Known = &Findings{}
	}
	return &Isolation{Handler: h, Turn: t}
}

// Handle brings every entry to a state. An error means that the transaction must be rolled back.
func (s *Isolation) Handle(ctx context.Context, entries []*dedup.Entry) error {
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

// GoOn is Handle where a call has failed already, of n entries behind so many that are done, of which some are kept.
func (s *Isolation) GoOn(ctx context.Context, entries []*dedup.Entry, done, n, kept int, cause error) error {
	s.passed = done > 0
	entries = entries[done:]
	settled, err := s.failedOn(ctx, call{entries, []stretch{{0, n}}}, kept, cause)
	if err != nil {
		return err
	}
	s.settle(ctx, entries[:settled])
	return s.Handle(ctx, entries[settled:])
}

// SetApart parks the entries of a call that took all of its time, and gives the others.
func (s *Isolation) SetApart(entries []*dedup.Entry) (others []*dedup.Entry) {
	if len(s.Known.apart) == 0 {
		return entries
	}
	for _, e := range entries {
		if !s.Known.apart[Of(e)] {
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
func (s *Isolation) try(ctx context.Context, c call) (done int, err error) {
	if len(c.stretches) == 0 {
		return len(c.entries), nil
	}
	if err := s.BeforeCall(ctx); err != nil {
		return 0, err
	}
	if s.Traits.Singly.Load() {
		if err := s.dropTemp(ctx); err != nil {
			return 0, ended(err)
		}
	}
	kept, cause := s.Call(ctx, s.undo, c.parts())
	if cause == nil && s.Known.deferred {
		cause = s.checkAsCommit(ctx)
	}
	if cause == nil {
		s.succeeded(c)
		return c.end(), nil
	}
	return s.failedOn(ctx, c, kept, cause)
}

func (s *Isolation) succeeded(c call) {
	s.Handled(c.size())
	s.undo, s.row, s.passed = false, nil, true
	s.suspects = max(0, s.suspects-c.size())
}

func (s *Isolation) dropTemp(ctx context.Context) error {
	if err := s.takeBack(ctx); err != nil {
		return err
	}
	return s.Tx.DropTemp(ctx)
}

// checkAsCommit finds out now what would cost the transaction later, when it is no longer known whose doing it was.
func (s *Isolation) checkAsCommit(ctx context.Context) error {
	if err := s.Tx.CheckDeferred(ctx); err != nil {
		return err
	}
	return s.Tx.Keep(ctx)
}

// takeBack undoes what a failed call did. It is left to a queue's next call where that can do it on its way: in a
// failed transaction only statements that pgx knows already can be sent along.
func (s *Isolation) takeBack(ctx context.Context) error {
	if !s.undo {
		return nil
	}
	s.undo = false
	return ended(s.Tx.Undo(ctx))
}
