package dedup

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Filter picks messages of the store's inbox. Each field that is set narrows it; the zero Filter picks all.
type Filter struct {
	// Topic, Handler and Tenant are exact. The empty tenant picks all tenants.
	Topic, Handler, Tenant string
	// Reason is that of the last failure. It is for dead letters only: conflicts have none.
	Reason string
	// Key is exact, byte for byte; an empty one that is not nil picks empty keys. Null keys can't be asked for.
	Key []byte
	// From (included) and To (excluded) bound when a message died, or when a conflict was seen.
	From, To time.Time
	// IDs picks messages by their ID.
	IDs []uuid.UUID
}

// Cursor is the place behind a page of a list, newest first. The zero Cursor is the list's beginning, and as a next
// page says that there is none. Its text is not to be taken apart.
type Cursor string

// condition is the end of a statement whose first parameters are args.
type condition struct {
	terms []string
	args  []any
}

// add narrows by one term, whose %d is the place of its argument.
func (c *condition) add(term string, arg any) {
	c.args = append(c.args, arg)
	c.terms = append(c.terms, fmt.Sprintf(term, len(c.args)))
}

func (c *condition) where() string { return "\nwhere " + strings.Join(c.terms, "\n  and ") }

// limit is the limit clause that asks for one row more than a page has, to see whether there is another page.
func (c *condition) limit(n int) string {
	c.args = append(c.args, n+1)
	return "\nlimit $" + strconv.Itoa(len(c.args))
}

// conditions are the filter's, over the table that is called m with its scope as s; at is the column of its times.
func (f Filter) conditions(inbox, at string) *condition {
	c := &condition{}
	c.add("s.inbox = $%d", inbox)
	for _, t := range []struct{ column, value string }{
		{"m.topic", f.Topic}, {"s.handler", f.Handler}, {"s.tenant", f.Tenant}, {"m.reason", f.Reason},
	} {
		if t.value != "" {
			c.add(t.column+" = $%d", t.value)
		}
	}
	if f.Key != nil {
		c.add("m.key = $%d", f.Key)
	}
	if !f.From.IsZero() {
		c.add(at+" >= $%d", f.From)
	}
	if !f.To.IsZero() {
		c.add(at+" < $%d", f.To)
	}
	if f.IDs != nil {
		c.add("m.message_id = any ($%d::text[]::uuid[])", texts(f.IDs))
	}
	return c
}

// texts are IDs as a parameter that works in all of pgx's query modes.
func texts(ids []uuid.UUID) []string {
	ts := make([]string, len(ids))
	for i, id := range ids {
		ts[i] = id.String()
	}
	return ts
}

// page cuts the row off that was asked for beyond the limit, and gives the cursor to ask for it.
func page[T any](rows []T, limit int, cursor func(*T) Cursor) ([]T, Cursor) {
	if len(rows) <= limit {
		return rows, ""
	}
	rows = rows[:limit]
	return rows, cursor(&rows[limit-1])
}

// cursorError says that a text is no cursor of the list that it was given to.
func cursorError(c Cursor) error {
	return fmt.Errorf("cursor %q is not one that this list gave", string(c))
}
