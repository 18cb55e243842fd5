package handlers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// Permanent marks an error that trying again can't mend: the message goes to the dead letters at once.
func Permanent(err error) error { return &permanentError{err, reasonPermanent} }

// Undecodable is [Permanent] for a message that can't be read: its dead letter has the reason undecodable. The error
// says where the fault is, and never what is there.
func Undecodable(err error) error { return &permanentError{err, reasonUndecodable} }

type permanentError struct {
	err    error
	reason string
}

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Unavailable marks an error that is not the message's fault, such as a dependency that does not answer: the message
// waits in its lane and is tried again, and no attempt is counted, however long it takes.
func Unavailable(err error) error { return &unavailableError{err} }

type unavailableError struct{ err error }

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// After marks an error with the time that the next attempt has to wait at least, for a dependency that says when to
// come back. It is at most an hour. Whether an attempt is counted is up to what it is combined with.
func After(err error, wait time.Duration) error { return &afterError{err, wait} }

type afterError struct {
	err  error
	wait time.Duration
}

func (e *afterError) Error() string { return e.err.Error() }
func (e *afterError) Unwrap() error { return e.err }

// ReasonOf is the reason that a message is kept with whose handler has returned the error: permanent, undecodable,
// unavailable, or failed where the error says none of these, and attempts are left. Of nil it is empty.
func ReasonOf(err error) string {
	var permanent *permanentError
	switch {
	case err == nil:
		return ""
	case errors.As(err, new(*unavailableError)):
		return reasonUnavailable
	case errors.As(err, &permanent):
		return permanent.reason
	}
	return reasonFailed
}

// classify decides on an error that a handler returned, or that came up while it ran. It is decided here and nowhere
// else; but whether what is OfInfrastructure is a message's doing all the same is found by evidence (suspect.go), and
// of what is OfDependency by what becomes of others (circuit.go). ctx is the processor's own, not the one with the
// handler's time limit: its end is a shutdown. disconnected says that the transaction's connection has ended: while it
// stands, an error of the network came from elsewhere, and must not hold a partition.
func classify(ctx context.Context, err error, disconnected bool) isolate.Kind {
	switch {
	case ctx.Err() != nil, errors.Is(err, dedup.ErrNoAnswer), errors.Is(err, ErrNoConnection):
		return isolate.OfInfrastructure
	case errors.Is(err, ErrHandlerTimeout):
		return isolate.OfTime
	case errors.As(err, new(*permanentError)), errors.As(err, new(*unavailableError)),
		errors.As(err, new(*PanicError)),
		errors.Is(err, ErrGoexit), errors.Is(err, dedup.ErrAborted), errors.Is(err, dedup.ErrEnded),
		errors.Is(err, dedup.ErrBusy), errors.Is(err, dedup.ErrNotYours):
		return isolate.OfMessage
	}
	switch sign := failure.Of(err); {
	case sign == failure.Concurrent, errors.Is(err, dedup.ErrOtherServer):
		return isolate.OfConcurrency
	case sign == failure.Short, sign == failure.ReadOnly:
		return isolate.OfInfrastructure
	case disconnected:
		return classifyDisconnected(err, sign)
	case sign == failure.Missing, sign == failure.Away, sign == failure.Ended && saysSo(err):
		return isolate.OfDependency
	}
	return isolate.OfMessage
}

// classifyDisconnected classifies an error that came with the end of the transaction's connection. An error of a
// statement does not come from that end. pgx closes a connection itself where the handler's own time limit for a
// statement is over.
func classifyDisconnected(err error, sign failure.Sign) isolate.Kind {
	ofStatement := sign == failure.Other || sign == failure.Missing || sign == failure.Locked
	if sign == failure.Silent || ofStatement && failure.Code(err) != "" {
		return isolate.OfMessage
	}
	return isolate.OfInfrastructure
}

// classifyCommit classifies an error of a commit. What a deferred trigger raises may look like an outage, of a server
// that it has asked by dblink, say; our own connection stands then. A time limit that is over may be that of all
// messages together.
func classifyCommit(ctx context.Context, err error) isolate.Kind {
	stands := failure.Raised(err) && failure.Of(err) != failure.TooSlow
	return classify(ctx, err, !stands)
}

// HoldCode is the code of the hold (package holds) that an error of [Processor.Process] begins. What says nothing else
// comes from Postgres, or from the way to it.
func HoldCode(err error) string {
	switch {
	case errors.Is(err, ErrNoConnection):
		return holds.Pool
	case errors.Is(err, ErrHandlerTimeout):
		return holds.Handler
	case errors.Is(err, dedup.ErrLocked):
		return holds.Locked
	case errors.Is(err, dedup.ErrNotHome):
		return holds.NotHome
	}
	return holds.OfPostgres(err)
}

// saysEnded adds that the connection has ended, where that is so and the handler did not pass it on.
func saysEnded(err error, disconnected bool) error {
	if disconnected && failure.Of(err) == failure.Other {
		return fmt.Errorf("%w: %w", dedup.ErrConnectionLost, err)
	}
	return err
}

// saysSo says whether an error is one of the network or of Postgres: io.ErrUnexpectedEOF is also a JSON decoder's
// error for a payload that was cut off.
func saysSo(err error) bool { return failure.Code(err) != "" || errors.As(err, new(net.Error)) }

// maxErrorRunes bounds the text of an error that is kept with its message.
const maxErrorRunes = 2000

// clip makes an error's text fit for a text column: valid UTF-8, no NUL, whole runes, bounded.
func clip(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if utf8.RuneCountInString(text) <= maxErrorRunes {
		return text
	}
	runes := 0
	for at := range text {
		if runes == maxErrorRunes {
			return text[:at]
		}
		runes++
	}
	return text
}

type handlerError struct {
	Handler string
	Err     error
}

func (e *handlerError) Error() string { return fmt.Sprintf("handler %s: %v", e.Handler, e.Err) }

func (e *handlerError) Unwrap() error { return e.Err }

// PanicError is a handler's panic.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

var (
	// ErrGoexit is the error of a handler that ended its goroutine by runtime.Goexit, as testing's FailNow does.
	ErrGoexit = errors.New("the handler called runtime.Goexit")
	// ErrAbandoned is the error of a handler that went on after its context had ended, and was cut off.
	ErrAbandoned = errors.New("the handler ignored the end of its context and was cut off")
	// ErrNoConnection is the error of a handler that waited in vain for another connection of the store's pool. It is
	// no failure of the handler.
	ErrNoConnection = errors.New("the handler waited for a connection of the pool in vain: all were in use; " +
		"make the pool larger, and say in Registration.Connections how many a call takes")
	// ErrHandlerTimeout is the cause of a handler's context ending after Config.HandlerTimeout.
	ErrHandlerTimeout = errors.New("the handler took longer than its time limit")
)
