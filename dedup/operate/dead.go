package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// DeadLetter is a message that was given up: byte for byte as it came, with why.
type DeadLetter struct {
	Inbox, Handler string
	// Message is as a handler would get it. Its Tenant completes the scope.
	Message dedup.Message
	// ReceivedAt is when its ID was first seen, DiedAt when it was given up, the last time.
	ReceivedAt, DiedAt time.Time
	// Attempts is how often its handler failed on it since it was last redriven.
	Attempts int
	// Reason is a short code and Error the text of the last failure, empty where there was none.
	Reason, Error string
}

var deadSQL = `
select s.inbox, s.handler, s.tenant, m.message_id, m.raw_id, m.topic, m."partition", m."offset", ` + timestampColumn + `,
	m.key, m.headers, m.payload, m.received_at, m.died_at, m.attempts, m.reason, m.error
from firstseen.dead_letters m
join firstseen.scopes s using (scope_id)`

// DeadLetters lists dead letters, those that died last first: up to limit of them, behind the cursor of the page
// before (empty: the first page). next is empty on the last page. While messages die or are redriven one who pages
// gets none twice, misses none that was there from the beginning to the end, and sees none that died later. A page
// carries keys, headers and values whole; it is shorter where those are more than 16 MiB.
func (in *Inbox) DeadLetters(ctx context.Context, f Filter, after Cursor,
	limit int) (letters []DeadLetter, next Cursor, err error) {
	found, next, err := in.list(ctx, Listing{Status: StatusDead, Filter: f, After: after, Limit: limit, Content: true})
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters of inbox %s: %w", in.db.Inbox, err)
	}
	for _, m := range found {
		letters = append(letters, DeadLetter{Inbox: m.Inbox, Handler: m.Handler, Message: m.Message,
			ReceivedAt: m.ReceivedAt, DiedAt: m.At, Attempts: m.Attempts, Reason: m.Reason, Error: m.Error})
	}
	return letters, next, nil
}

// DeadLetter gives one dead letter, or nil where there is none of that ID in the scope.
func (in *Inbox) DeadLetter(ctx context.Context, scope dedup.ScopeKey, id uuid.UUID) (*DeadLetter, error) {
	c := Filter{IDs: []uuid.UUID{id}, Handler: scope.Handler}.conditions(in.db.Inbox, "")
	c.add("s.tenant = $%d", scope.Tenant)
	letters, err := db.Collect(ctx, in.db, scanDead, deadSQL+c.where(), c.args...)
	if err != nil {
		return nil, fmt.Errorf("look for dead letter %s of handler %s: %w", id, scope.Handler, err)
	}
	if len(letters) == 0 {
		return nil, nil
	}
	return &letters[0], nil
}

// CountDeadLetters counts what a Redrive or Discard with the same filter would find.
func (in *Inbox) CountDeadLetters(ctx context.Context, f Filter) (n int, err error) {
	c := f.conditions(in.db.Inbox, "m.died_at")
	sql := `select count(*) from firstseen.dead_letters m join firstseen.scopes s using (scope_id)` + c.where()
	if err := in.db.Pool.QueryRow(ctx, in.db.SQL(sql), c.args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count dead letters of inbox %s: %w", in.db.Inbox, err)
	}
	return n, nil
}

func scanDead(row pgx.CollectableRow) (d DeadLetter, err error) {
	var content contentRow
	var text *string
	err = row.Scan(append(append([]any{&d.Inbox, &d.Handler, &d.Message.Tenant}, content.columns(&d.Message)...),
		&d.ReceivedAt, &d.DiedAt, &d.Attempts, &d.Reason, &text)...)
	if err != nil {
		return d, err
	}
	d.Error = db.Deref(text)
	return d, content.into(&d.Message)
}
