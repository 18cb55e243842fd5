package isolate

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
)

// Handler is a handler in its turn at messages of one transaction, as an Isolation sees it.
type Handler interface {
	// Call hands stretches of entries over, one after the other; of a handler that is no queue there is one. A queue
	// sets a savepoint behind each, and first takes back what was done since the last one where undo says so. Where
	// that fails, so many of the entries as it gives are done and behind a savepoint.
	Call(ctx context.Context, undo bool, stretches [][]*dedup.Entry) (kept int, err error)
	// Meaning says what an error of Call means, and gives it with a mark where it is an outage's.
	Meaning(ctx context.Context, err error) (Kind, error)
	// IsAbout says whether an error of Call names the message.
	IsAbout(err error, m *dedup.Message) bool
	// Lane is the lane that a message belongs to.
	Lane(m *dedup.Message) uuid.UUID
	// Decide brings an entry that has failed to its state: it is parked, or dead.
	Decide(e *dedup.Entry, err error)
	// PutOff parks an entry that was not tried, for an outage.
	PutOff(e *dedup.Entry, outage error)
	// Outage hears of messages that have failed in a row as in an outage, the last one with err, and whether one was
	// handled before in the transaction. It gives the error as it counts for that message, and whether an outage has
	// begun.
	Outage(row []Message, passed bool, err error) (counts error, begun bool)
	// Tell logs that an entry has failed, and what became of it.
	Tell(ctx context.Context, e *dedup.Entry, err error)
}

// Kind is what a handler's error means for the messages at hand.
type Kind int

const (
	// OfMessage counts an attempt on the message that caused it.
	OfMessage Kind = iota
	// OfTime is a handler's time limit: whether one message hangs or all are slow is not known.
	OfTime
	// OfInfrastructure rolls everything back and counts nothing: Postgres or the way to it, or our own shutdown.
	OfInfrastructure
	// OfConcurrency is gone when the transaction runs again: a deadlock, a serialization failure, another server.
	OfConcurrency
	// OfDependency is an outage elsewhere, or a grant, a table, a function that is missing: the database and the handler
	// do not belong together. A message may bring either about too.
	OfDependency
)

// AwayError marks an error that may be an outage's, or a half-done deployment's, not the message's.
type AwayError struct{ Err error }

func (e *AwayError) Error() string { return e.Err.Error() }
func (e *AwayError) Unwrap() error { return e.Err }

// Turn is what a handler's turn at messages of one transaction needs beside the handler.
type Turn struct {
	*Savepoint
	Traits *Traits
	Pace   *Pace
	// Known was found out by transactions over the same messages that were lost; nil: none was.
	Known *Findings
	Log   *slog.Logger // has the handler's name
}

// Traits are a handler's own. They outlive its turns.
type Traits struct {
	// Each says that it handles one message after the other, and names the one that fails.
	Each bool
	// Queue says that it queues statements, and that savepoints go along with them.
	Queue bool
	// Singly says that its temporary tables are in the way of its next call in the same transaction.
	Singly atomic.Bool
}

// Pipelined says whether savepoints go along with what the handler sends. Where the commit has failed they can't: what
// is deferred has to be checked before.
func (t *Turn) Pipelined() bool { return t.Traits.Queue && (t.Known == nil || !t.Known.deferred) }

// Handled notes a call that went well, of so many messages.
func (t *Turn) Handled(n int) {
	t.Unkept = !t.Pipelined()
	t.Pace.Handled(n)
}

// Tx is the transaction, a *dedup.Tx.
type Tx interface {
	Keep(ctx context.Context) error
	Undo(ctx context.Context) error
	DropTemp(ctx context.Context) error
	CheckDeferred(ctx context.Context) error
	Check() error
	Lost() bool
}

// Savepoint is the one of a transaction that failures are taken back to.
type Savepoint struct {
	Tx Tx
	// Unkept says that what was done since must survive the next Undo.
	Unkept bool
}

// BeforeCall has what was done before a call outlive an Undo.
func (s *Savepoint) BeforeCall(ctx context.Context) error {
	if !s.Unkept {
		return nil
	}
	s.Unkept = false
	return ended(s.Tx.Keep(ctx))
}

// ended marks the loss of a savepoint, which a handler causes by putting another transaction in the place of the first
// one, as a failed commit is marked: it is not known which message it was.
func ended(err error) error {
	if errors.Is(err, dedup.ErrEnded) {
		return &LostError{atCommit: true, Err: err}
	}
	return err
}

// Message is one of a scope.
type Message struct {
	Scope int32
	ID    uuid.UUID
}

// Of is an entry's message.
func Of(e *dedup.Entry) Message { return Message{e.Scope, e.Message.ID} }

// Lane is one of a scope.
type Lane struct {
	Scope int32
	Lane  uuid.UUID
}
