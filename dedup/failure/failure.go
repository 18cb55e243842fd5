// Package failure says what an error from Postgres, or from the way to it, is a sign of. Everybody who has to decide
// what an error means asks here, so that the codes are listed once: see the table below. It does not say whose fault
// an error is: that needs to be known where it came up, and is decided in package handlers.
package failure

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// Sign is the class of an error, as Of finds it.
type Sign int

// The signs. The zero value is Other.
const (
	// Other: the statement, its values, what a function raised; or no error of Postgres at all.
	Other Sign = iota
	// Concurrent: gone when the transaction runs again.
	Concurrent
	// TooSlow: Postgres' time limit for a statement, a transaction or a pause in one was over.
	TooSlow
	// Locked: a lock was not granted in time.
	Locked
	// Missing: something is not there, or not what the statement was written for, or the login has no right to it.
	Missing
	// ReadOnly: the transaction may not write; the server may be a standby.
	ReadOnly
	// Short: the server has too little of something, or its disk fails.
	Short
	// Ended: the session was ended or the connection broke, while it was used.
	Ended
	// Silent: no answer came within a time limit of our own.
	Silent
	// Away: the server was not reached, or is going down or coming up.
	Away
)

var names = [...]string{"other", "concurrent", "too_slow", "locked", "missing", "read_only", "short",
	"ended", "silent", "away"}

// String is the sign's name, for logs.
func (s Sign) String() string { return names[s] }

// table has the signs of SQLSTATEs and their classes (Postgres manual, "PostgreSQL Error Codes"); the longest that
// fits counts, and what is not listed is Other.
var table = map[string]Sign{
	"40001": Concurrent, // serialization_failure
	"40P01": Concurrent, // deadlock_detected
	"40003": Ended,      // statement_completion_unknown

	"57014": TooSlow, // query_canceled: statement_timeout
	"25P03": TooSlow, // idle_in_transaction_session_timeout
	"25P04": TooSlow, // transaction_timeout
	"55P03": Locked,  // lock_not_available

	"42501": Missing, // insufficient_privilege
	"42P01": Missing, // undefined_table
	"42703": Missing, // undefined_column
	"42704": Missing, // undefined_object
	"42883": Missing, // undefined_function
	"42725": Missing, // ambiguous_function
	"42804": Missing, // datatype_mismatch
	"42809": Missing, // wrong_object_type
	"3F000": Missing, // invalid_schema_name

	"25006": ReadOnly, // read_only_sql_transaction: also on a standby

	"53":    Short, // disk full, out of memory, too many connections
	"53400": Other, // configuration_limit_exceeded: what one statement ran into, such as temp_file_limit
	"58":    Short, // system and I/O errors

	"08":    Ended, // the connection; a pooler says so when it has lost the server
	"08001": Away,  // sqlclient_unable_to_establish_sqlconnection
	"08004": Away,  // sqlserver_rejected_establishment_of_sqlconnection
	"57":    Away,  // an operator's work
	"57P01": Ended, // admin_shutdown: also pg_terminate_backend
	"57P05": Ended, // idle_session_timeout
}

// ErrConnectionLost says that a connection has ended under who used it, where nothing else does.
var ErrConnectionLost = errors.New("the transaction's connection was lost")

// Of classifies an error. One that comes from elsewhere than Postgres may look like one of the connection:
// io.ErrUnexpectedEOF is also a JSON decoder's error for a payload that was cut off. The caller knows whether its
// connection still stands.
func Of(err error) Sign {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgconn.ErrStandbyConnection), errors.Is(err, pgconn.ErrReadOnlyConnection):
		return ReadOnly
	case errors.As(err, new(*pgconn.ConnectError)), errors.Is(err, puddle.ErrClosedPool):
		return Away
	case errors.As(err, &pg) && pg.Code == "0A000" && strings.Contains(pg.Message, "during recovery"):
		return ReadOnly // begin read write, on a standby
	case errors.As(err, &pg):
		// a table was altered under a prepared statement
		if pg.Code == "0A000" && pg.Routine == "RevalidateCachedQuery" {
			return Concurrent
		}
		// a day's partition was made while the row was on its way
		if pg.Code == "23514" && pg.TableName == "inbox_default" {
			return Concurrent
		}
		return ofCode(pg.Code)
	}
	return ofConnection(err)
}

func ofCode(code string) Sign {
	for n := len(code); n > 0; n-- {
		if sign, ok := table[code[:n]]; ok {
			return sign
		}
	}
	return Other
}

func ofConnection(err error) Sign {
	var network net.Error
	var operation *net.OpError
	switch isNetwork := errors.As(err, &network); {
	case errors.As(err, new(*net.DNSError)), errors.As(err, &operation) && operation.Op == "dial":
		return Away
	case errors.Is(err, syscall.ETIMEDOUT): // of TCP itself: the other side is gone
		return Ended
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, os.ErrDeadlineExceeded),
		pgconn.Timeout(err), isNetwork && network.Timeout():
		return Silent
	case isNetwork, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, ErrConnectionLost), errors.Is(err, pgconn.ErrConnClosed), pgconn.SafeToRetry(err):
		return Ended
	}
	return Other
}

// Passes says of an error that it passes by itself, where nobody's message is to blame for it: an outage of Postgres
// or of the way to it, or work of others. What remains is somebody's to put right, a login that is refused among it: a
// wrong password, no such role or database.
func Passes(err error) bool {
	// whoever connects is told so
	if code := Code(err); strings.HasPrefix(code, "28") || strings.HasPrefix(code, "3D") {
		return false
	}
	switch Of(err) {
	case Concurrent, TooSlow, Locked, ReadOnly, Short, Ended, Silent, Away:
		return true
	}
	return Code(err) == "53400"
}

// Unanswered says that Postgres did not answer: it can't be reached, or is going down or coming up.
func Unanswered(err error) bool {
	sign := Of(err)
	return sign == Ended || sign == Away
}

// Raised says of an error from Postgres that it was one of a statement, after which the session goes on: what its code
// says of a connection or a server is said of another one.
func Raised(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}

// Denied says that the login has no right to something.
func Denied(err error) bool { return Code(err) == "42501" }

// NoObject says that a role, a database or another object is not there: one that is no table, schema or function.
func NoObject(err error) bool { return Code(err) == "42704" }

// NoTable says that a table is not there, or the schema that it would be in.
func NoTable(err error) bool {
	code := Code(err)
	return code == "42P01" || code == "3F000"
}

// Code is the SQLSTATE of an error from Postgres, "" for others.
func Code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// IsOfValues says of an error from Postgres that it came from a statement's values, or was raised by a function: there
// is nothing wrong with the statement as such.
func IsOfValues(err error) bool {
	code := Code(err)
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "P0")
}
