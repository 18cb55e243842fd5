package handlers

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/firstseen/firstseen/dedup"
)

// Permanent marks an error that trying again can't mend: the message goes to the dead letters at once.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Unavailable marks an error that is not the message's fault, such as a dependency that does not answer: the message
// waits in its lane and is tried again, and no attempt is counted, however long it takes.
func Unavailable(err error) error { return &unavailableError{err} }

type unavailableError struct{ err error }

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// After marks an error with the time that the next attempt has to wait at least, for a dependency that says when to come
// back. It is at most an hour. Whether an attempt is counted is up to what it is combined with.
func After(err error, wait time.Duration) error { return &afterError{err, wait} }

type afterError struct {
	err  error
	wait time.Duration
}

func (e *afterError) Error() string { return e.err.Error() }
func (e *afterError) Unwrap() error { return e.err }

// kind is what an error means for the messages at hand. It is decided here and nowhere else.
type kind int

const (
	// ofHandler counts an attempt on the message that caused it.
	ofHandler kind = iota
	// ofInfrastructure holds everything and counts nothing: Postgres or the way to it, or our own shutdown.
	ofInfrastructure
	// ofConcurrency is gone when the transaction runs again: a deadlock, a serialization failure, or a connection that was
	// lost under a handler that does not say so.
	ofConcurrency
	// ofDependency is an outage elsewhere, that a handler did not mark as Unavailable. It is treated as if it had.
	ofDependency
)

// classify decides on an error that a handler returned, or that came up while it ran. ctx is the processor's own, not
// the handler's with its time limit: its end is a shutdown. disconnected says that the transaction's connection has
// ended: while it stands, an error of the network came from elsewhere, and must not hold a partition.
func classify(ctx context.Context, err error, disconnected bool) kind {
	var pg *pgconn.PgError
	switch {
	case ctx.Err() != nil:
		return ofInfrastructure
	case errors.As(err, new(*permanentError)), errors.As(err, new(*unavailableError)), errors.As(err, new(*PanicError)),
		errors.Is(err, ErrGoexit), errors.Is(err, ErrHandlerTimeout), errors.Is(err, dedup.ErrAborted),
		errors.Is(err, dedup.ErrEnded), errors.Is(err, dedup.ErrBusy), errors.Is(err, dedup.ErrNotYours):
		return ofHandler
	case errors.As(err, &pg):
		return classifyCode(pg.Code, disconnected)
	case disconnected && (connectionBroke(err) || unreachable(err)):
		return ofInfrastructure
	case disconnected && !endedByHandler(err):
		return ofConcurrency
	case unreachable(err):
		return ofDependency
	}
	return ofHandler
}

// classifyCode goes by the classes of SQLSTATE (Postgres manual, "PostgreSQL Error Codes").
func classifyCode(code string, disconnected bool) kind {
	switch {
	case code == "40001", code == "40P01":
		return ofConcurrency
	case code == "53400": // a limit that one statement ran into, such as temp_file_limit
		return ofHandler
	case code == "25006", // read-only: a standby, or a failover under way
		strings.HasPrefix(code, "53"), // disk full, out of memory, too many connections
		strings.HasPrefix(code, "58"): // the server's own I/O
		return ofInfrastructure
	case strings.HasPrefix(code, "08"), // the connection
		strings.HasPrefix(code, "57P"): // shutting down, crashed, starting up: these end the connection they are said on
		if disconnected {
			return ofInfrastructure
		}
		return ofDependency
	}
	return ofHandler
}

// isOfValues says of an error from Postgres that it came from a statement's values, or was raised by a function: there is
// nothing wrong with the statement as such.
func isOfValues(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"22", "23", "P0"}, pg.Code[:min(2, len(pg.Code))])
}

// connectionBroke says that the connection ended under a statement, or before it. On other connections the same errors
// mean something else: io.ErrUnexpectedEOF is what a JSON decoder says of a payload that was cut off.
func connectionBroke(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, dedup.ErrConnectionLost) || pgconn.SafeToRetry(err)
}

// unreachable says that something could not be reached, or broke the connection off.
func unreachable(err error) bool {
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || errors.Is(err, puddle.ErrClosedPool) || errors.As(err, &network) && !network.Timeout()
}

// endedByHandler says that a statement's own time limit was over: pgx then closes the connection.
func endedByHandler(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || pgconn.Timeout(err)
}

// maxErrorRunes is how much of an error's text is kept with its message.
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
