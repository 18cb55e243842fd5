package operate

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Filter picks messages of the inbox. Each field that is set narrows it; the zero Filter picks all.
type Filter struct {
	// Topic, Handler and Tenant are exact. The empty tenant picks all tenants.
	Topic, Handler, Tenant string
	// Reason is that of the last failure. Conflicts and processed messages have none.
	Reason string
	// Key is exact, byte for byte; an empty one that is not nil picks empty keys. Null keys can't be asked for.
	Key []byte
	// From (included) and To (excluded) bound when a message died, or when a conflict was seen, or else when the
	// message's ID was first seen.
	From, To time.Time
	// IDs picks messages by their ID.
	IDs []uuid.UUID
}

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

// conditions are the filter's, over the table that is called m with its scope as s; at is the column of its times. The
// inbox is $1, and the IDs are $2 where there are any.
func (f Filter) conditions(inbox, at string) *condition {
	c := &condition{}
	c.add("s.inbox = $%d", inbox)
	if f.IDs != nil {
		c.add("m.message_id = any ($%d::text[]::uuid[])", texts(f.IDs))
	}
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
	return c
}

// texts makes IDs a parameter that works in all of pgx's query modes.
func texts(ids []uuid.UUID) []string {
	ts := make([]string, len(ids))
	for i, id := range ids {
		ts[i] = id.String()
	}
	return ts
}
