package operate

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Slice is a part of a message's value.
type Slice struct {
	Bytes []byte
	// Size is that of the whole value.
	Size int
	// Null says that there is no value.
	Null bool
}

// ValueSlice gives up to n bytes of a value from the byte on that is counted from 0, so that it need not be in memory
// whole. The message is one that Messages has listed, without its content say, and not one of the outbox that no relay
// has taken yet. nil: it has not that status any more.
func (in *Inbox) ValueSlice(ctx context.Context, m *Listed, from, n int) (*Slice, error) {
	list, ok := lists[m.Status]
	if !ok {
		return nil, fmt.Errorf("status %q is none of %v", m.Status, Statuses)
	}
	if m.Status == StatusProcessed {
		list.from, list.off = byIDFrom, nil
	}
	c := Filter{Handler: m.Handler, IDs: []uuid.UUID{m.Message.ID}}.conditions(in.db.Inbox, list.at)
	c.add("s.tenant = $%d", m.Message.Tenant)
	c.terms = append(c.terms, list.term)
	c.args = append(c.args, from+1, n)
	places := len(c.args)
	sql := `select octet_length(m.payload), substring(m.payload from $` + strconv.Itoa(places-1) + ` for $` +
		strconv.Itoa(places) + `) from ` + list.from + c.where() + ` limit 1`
	var size *int
	var s Slice
	err := in.db.Look(ctx, list.off, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(sql), c.args...).Scan(&size, &s.Bytes)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the value of message %s of inbox %s: %w", m.Message.ID, in.db.Inbox, err)
	case size == nil:
		s.Null = true
	default:
		s.Size = *size
	}
	return &s, nil
}
