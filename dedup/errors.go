package dedup

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/handlertx"
)

// ErrFenced is returned where another owner has acquired the position: nothing of the batch took effect, and
// nothing that this owner does will.
var ErrFenced = errors.New("another owner has acquired the position")

// ErrLocked is returned where another session holds the position's row and could not be ended; the error's text
// names it. It is somebody who works on the table by hand, or an owner of before that logged in as another role.
var ErrLocked = errors.New("another session has locked the position")

// MovedError says that the position is not where its owner thinks: a commit whose answer was lost did take
// effect (Next is higher), or the database was set back (Next is lower).
type MovedError struct {
	Next int64
}

func (e *MovedError) Error() string { return fmt.Sprintf("the position stands at offset %d", e.Next) }

// ErrEnded is returned where a handler ended, or tried to end, the transaction that it was given.
var ErrEnded = handlertx.ErrEnded

// ErrAborted is returned where a handler reported success though a statement of its transaction had failed:
// Postgres would answer its COMMIT with ROLLBACK.
var ErrAborted = handlertx.ErrAborted

// ErrBusy is returned where a handler left a statement running, or rows or a batch's results unclosed.
var ErrBusy = handlertx.ErrBusy

// ErrConnectionLost is returned where the transaction's connection ended under it.
var ErrConnectionLost = failure.ErrConnectionLost

// SQLSTATEs that firstseen's own functions raise.
const (
	codeFenced  = "FS001"
	codeMoved   = "FS002"
	codeSeal    = "FS003"
	codeLocked  = "FS005"
	codeNotHome = "FS006"
)

const (
	codeInFailedTransaction = "25P02"
	codeNoSavepoint         = "3B001"
)

func positionError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case codeFenced:
		return ErrFenced
	case codeMoved:
		if next, perr := strconv.ParseInt(pg.Detail, 10, 64); perr == nil {
			return &MovedError{Next: next}
		}
	case codeLocked:
		return fmt.Errorf("%w: %s", ErrLocked, pg.Message)
	case codeNotHome:
		return homeError(err)
	case codeSeal, codeNoSavepoint:
		return fmt.Errorf("%w: %w", ErrEnded, err)
	case codeInFailedTransaction:
		return fmt.Errorf("%w: %w", ErrAborted, err)
	}
	return err
}
