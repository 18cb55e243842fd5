package handlers

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/firstseen/firstseen/dedup"
)

// lostError is a handler's failure that cost the transaction: it has to run again, knowing what failed.
type lostError struct {
	of       messageOf   // zero: not known which message it was
	apart    []messageOf // one of these it was, and none is to be tried with others again
	atCommit bool
	err      error
}

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// givenUp says that nothing more can be found out about a commit that fails.
func (e *lostError) givenUp(known *findings) bool {
	return e.of == messageOf{} && e.atCommit && known != nil && known.alone && known.deferred
}

// repeatError is a failure that may be gone when the transaction runs again.
type repeatError struct{ err error }

func (e *repeatError) Error() string { return e.err.Error() }
func (e *repeatError) Unwrap() error { return e.err }

type messageOf struct {
	scope int32
	id    uuid.UUID
}

func of(e *dedup.Entry) messageOf { return messageOf{e.Scope, e.Message.ID} }

// ended says of a savepoint that is gone, because a handler has put another transaction in the first one's place, what
// a commit would have said of it: it is not known which message it was.
func ended(err error) error {
	if errors.Is(err, dedup.ErrEnded) {
		return &lostError{atCommit: true, err: err}
	}
	return err
}

// lostAtCommit says of a commit's error whether it is a handler's failure.
func lostAtCommit(ctx context.Context, err error, known *findings) error {
	switch kind := classifyCommit(ctx, err); {
	case kind == ofInfrastructure, kind == ofConcurrency && (known == nil || !known.patient()):
		return err
	case errors.As(err, new(*pgconn.PgError)), errors.Is(err, dedup.ErrBusy), errors.Is(err, dedup.ErrAborted):
		return &lostError{atCommit: true, err: err}
	}
	return err
}

// transactAgain goes on where a batch's transaction has failed.
func (p *Processor) transactAgain(ctx context.Context, b *Batch, targets []*registered, err error) (Result, error) {
	var result Result
	err = again(ctx, err, len(b.Messages)*len(targets), func(known *findings) (err error) {
		result, err = p.transact(ctx, b, targets, known)
		return err
	})
	if err != nil && len(b.Messages) > 0 {
		p.work.failed(spanOf(&b.Messages[0], &b.Messages[len(b.Messages)-1]), err, targets...)
	}
	return result, err
}

// findings are what transactions over the same messages have found out before they were lost.
type findings struct {
	failed map[messageOf]error // messages that cost a transaction
	// one of them took a handler's whole time: each is to be handled by itself, in its lane
	apart     map[messageOf]bool
	alone     bool // it is not known which message does: handle them one at a time
	deferred  bool // the commit failed: check after each call what would be checked there
	deadlocks int  // so many times it was to run again as it is
}

// runTransaction runs a transaction, and anew where it is lost: see again.
func runTransaction(ctx context.Context, messages int, transaction func(*findings) error) error {
	if err := transaction(nil); err != nil {
		return again(ctx, err, messages, transaction)
	}
	return nil
}

// again runs a transaction that has failed with err until it is through or fails in a way that only time can mend:
// anew after a deadlock, and anew, with what was found out, after a handler that cost it. Each loss settles a message
// or has them handled alone, so that there is an end.
func again(ctx context.Context, err error, messages int, transaction func(*findings) error) error {
	known := &findings{failed: map[messageOf]error{}, apart: map[messageOf]bool{}}
	for left := 2*messages + 7; err != nil; left-- {
		if err := known.add(ctx, err); err != nil {
			return err
		}
		if left == 0 {
			return errLost
		}
		err = transaction(known)
	}
	return nil
}

var errLost = errors.New("the batch's transaction was lost again and again")

// add learns from the error that a transaction was lost with. It returns that of one that is not to run again.
func (f *findings) add(ctx context.Context, err error) error {
	var lost *lostError
	switch {
	case errors.As(err, &lost) && lost.givenUp(f):
		return err
	case errors.As(err, &lost) && lost.atCommit:
		f.alone, f.deferred = f.alone || f.deferred, true
	case errors.As(err, &lost) && lost.apart != nil:
		for _, of := range lost.apart {
			f.apart[of] = true
		}
	case errors.As(err, &lost) && lost.of != messageOf{}:
		f.failed[lost.of] = lost.err
	case errors.As(err, &lost):
		f.alone = true
	case errors.As(err, new(*repeatError)), classify(ctx, err, false) == ofConcurrency:
		f.deadlocks++
	default:
		return err
	}
	return nil
}

// patient says that the transaction has met three deadlocks: they are the handler's failure now.
func (f *findings) patient() bool { return f.deadlocks >= 3 }
