package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Cursor is the place behind a page of a list, newest first. The zero Cursor is the list's beginning, and as a next
// page says that there is none. Its text is not to be taken apart.
type Cursor string

// The lists whose cursors are a time and a number, by the letter that a cursor begins with.
const (
	deadList      = "d"
	parkedList    = "p"
	processedList = "i"
)

func timeCursor(list string, at time.Time, seq int64) Cursor {
	return Cursor(fmt.Sprintf("%s%d.%d", list, at.UnixMicro(), seq))
}

// behind narrows to the rows behind a list's cursor, whose order is by a column of times and then by seq.
func (c *condition) behind(after Cursor, list, at string) error {
	if after == "" {
		return nil
	}
	var micros, seq int64
	if _, err := fmt.Sscanf(string(after), list+"%d.%d", &micros, &seq); err != nil {
		return cursorError(after)
	}
	c.args = append(c.args, time.UnixMicro(micros))
	c.add(fmt.Sprintf("(%s, m.seq) < ($%d, $%%d)", at, len(c.args)), seq)
	return nil
}

// CursorError says that a text is no cursor of the list that it was given to.
type CursorError struct{ Cursor Cursor }

func (e *CursorError) Error() string {
	return fmt.Sprintf("cursor %q is not one that this list gave", string(e.Cursor))
}

func cursorError(c Cursor) error { return &CursorError{c} }

// pageBytes bounds the keys, headers and values that a page holds in memory.
const pageBytes = 16 << 20

// paging says how a list's rows are read.
type paging[T any] struct {
	scan   pgx.RowToFunc[T]
	size   func(*T) int
	cursor func(*T) Cursor
	limit  int
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// collectPage gives the first rows of a query that asks for one more than the limit, and the cursor behind them where
// there are more. Where their content is more than pageBytes it gives fewer, but at least one.
func collectPage[T any](ctx context.Context, q querier, p paging[T], sql string,
	args ...any) (list []T, next Cursor, err error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for bytes := 0; rows.Next(); {
		row, err := p.scan(rows)
		if err != nil {
			return nil, "", err
		}
		bytes += p.size(&row)
		if len(list) == p.limit || len(list) > 0 && bytes > pageBytes {
			return list, p.cursor(&list[len(list)-1]), nil
		}
		list = append(list, row)
	}
	return list, "", rows.Err()
}
