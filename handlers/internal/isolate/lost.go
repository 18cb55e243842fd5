package isolate

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/firstseen/firstseen/dedup"
)

// LostError is a handler's failure that cost the transaction: it has to run again, knowing what failed.
type LostError struct {
	// Of is the message; zero: not known which it was.
	Of  Message
	Err error

	apart    []Message // one of these it was, and none is to be tried with others again
	atCommit bool
}

func (e *LostError) Error() string { return e.Err.Error() }
func (e *LostError) Unwrap() error { return e.Err }

// GivenUp says that nothing more can be found out about a commit that fails.
func (e *LostError) GivenUp(known *Findings) bool {
	return e.Of == Message{} && e.atCommit && known != nil && known.alone && known.deferred
}

// repeatError is a failure that may be gone when the transaction runs again.
type repeatError struct{ err error }

func (e *repeatError) Error() string { return e.err.Error() }
func (e *repeatError) Unwrap() error { return e.err }

// AtCommit marks a commit's error, of the kind that it is, where it is a handler's failure.
func AtCommit(err error, kind Kind, known *Findings) error {
	switch {
	case kind == OfInfrastructure, kind == OfConcurrency && (known == nil || !known.patient()):
		return err
	case errors.As(err, new(*pgconn.PgError)), errors.Is(err, dedup.ErrBusy), errors.Is(err, dedup.ErrAborted):
		return &LostError{atCommit: true, Err: err}
	}
	return err
}

// Findings of lost transactions over the same messages.
type Findings struct {
	failed map[Message]error // messages that cost a transaction
	// one of them took a handler's whole time: each is to be handled by itself, in its lane
	apart     map[Message]bool
	alone     bool // it is not known which message does: handle them one at a time
	deferred  bool // the commit failed: check after each call what would be checked there
	deadlocks int  // so many times it was to run again as it is
}

// Concurrent says of an error of a transaction that it is gone when the transaction runs again.
type Concurrent func(ctx context.Context, err error) bool

// Run runs a transaction, and anew where it is lost: see [Again].
func Run(ctx context.Context, messages int, concurrent Concurrent, transaction func(*Findings) error) error {
	if err := transaction(nil); err != nil {
		return Again(ctx, err, messages, concurrent, transaction)
	}
	return nil
}

// Again runs a transaction that has failed with err until it is through or fails in a way that only time can mend:
// anew after a deadlock, and anew, with what was found out, after a handler that cost it. Each loss settles a message
// or has them handled alone, so that there is an end.
func Again(ctx context.Context, err error, messages int, concurrent Concurrent,
	transaction func(*Findings) error) error {
	known := &Findings{failed: map[Message]error{}, apart: map[Message]bool{}}
	for left := 2*messages + 7; err != nil; left-- {
		if err := known.add(ctx, err, concurrent); err != nil {
			return err
		}
		if left == 0 {
			return ErrLost
		}
		err = transaction(known)
	}
	return nil
}

// ErrLost is the end of a transaction that was lost again and again.
var ErrLost = errors.New("the batch's transaction was lost again and again")

// add learns from the error that a transaction was lost with. It returns the error where the transaction is not to run
// again.
func (f *Findings) add(ctx context.Context, err error, concurrent Concurrent) error {
	var lost *LostError
	switch {
	case errors.As(err, &lost) && lost.GivenUp(f):
		return err
	case errors.As(err, &lost) && lost.atCommit:
		f.alone, f.deferred = f.alone || f.deferred, true
	case errors.As(err, &lost) && lost.apart != nil:
		for _, of := range lost.apart {
			f.apart[of] = true
		}
	case errors.As(err, &lost) && lost.Of != Message{}:
		f.failed[lost.Of] = lost.Err
	case errors.As(err, &lost):
		f.alone = true
	case errors.As(err, new(*repeatError)), concurrent(ctx, err):
		f.deadlocks++
	default:
		return err
	}
	return nil
}

// patient says whether the transaction has met three deadlocks: they are the handler's failure now.
func (f *Findings) patient() bool { return f.deadlocks >= 3 }
