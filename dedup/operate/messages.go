package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Status is a message's state, for lists.
type Status string

const (
	// StatusPending is parked, with no attempt that failed: it waits behind another message of its key, or for a call.
	// In the outbox's inbox it may also not have been taken by a relay yet; it has no handler then.
	StatusPending Status = "pending"
	// StatusFailed is parked, for an attempt after one that failed.
	StatusFailed Status = "failed"
	// StatusProcessed is done, and in the inbox.
	StatusProcessed Status = "processed"
	// StatusDead is given up, and in the dead letters.
	StatusDead Status = "dead"
)

// Statuses are all of them, in the order of a message's life.
var Statuses = []Status{StatusPending, StatusFailed, StatusProcessed, StatusDead}

// Listing says which messages to list.
type Listing struct {
	// Status is required.
	Status Status
	// Filter narrows them. Its times bound At for dead letters, and else ReceivedAt. Its Reason does not count for
	// processed messages, which have none.
	Filter Filter
	// After is the cursor of the page before, of the same status. Zero: the first page.
	After Cursor
	// Limit caps the messages.
	Limit int
	// Content brings keys, headers and values along, whole; a page is shorter where those are more than 16 MiB.
	Content bool
}

// Listed is a message of a list.
type Listed struct {
	Inbox, Handler string
	Stored
	Status Status
	// DueAt is the time of the next try of a parked message's lane, or while it is at work, that from which others may
	// take it; or that before which a message of the outbox is not to be sent. Zero where the message is neither.
	DueAt time.Time
	// Bytes is the size of key, encoded headers and value, also where they are left out.
	Bytes int

	seq int64
}

// statusList finds the messages of one status: in which table, in the order of which time, and with which of the
// planner's ways off.
type statusList struct {
	name, at, from string
	columns        string // state, at, reason, error, lane, due_at
	term           string
	off            []string
}

const parkedFrom = `firstseen.parked m join firstseen.scopes s using (scope_id)`

// parkedColumns ask for the lane of the rows that are given only.
const parkedColumns = `1, m.parked_at, m.reason, m.error, m.lane,
	(select l.due_at from firstseen.lanes l where l.scope_id = m.scope_id and l.lane = m.lane)`

var lists = map[Status]statusList{
	StatusPending: {name: parkedList, at: "m.received_at", from: parkedFrom, columns: parkedColumns,
		term: "m.attempts = 0"},
	StatusFailed: {name: parkedList, at: "m.received_at", from: parkedFrom, columns: parkedColumns,
		term: "m.attempts > 0"},
	StatusDead: {name: deadList, at: "m.died_at",
		from:    `firstseen.dead_letters m join firstseen.scopes s using (scope_id)`,
		columns: `2, m.died_at, m.reason, m.error, m.lane, null::timestamptz`,
		term:    "true"},
	// Without a sort the partitions are read back by their primary keys, the newest rows first, and no further than
	// needed.
	StatusProcessed: {name: processedList, at: "m.received_at",
		from:    `firstseen.inbox m join firstseen.scopes s using (scope_id)`,
		columns: `0, m.processed_at, null::text, null::text, null::uuid, null::timestamptz`,
		term:    "true",
		off:     []string{"enable_sort"}},
}

// byIDs has the planner go by the IDs, and not back through all that died.
var byIDs = []string{"enable_indexscan", "enable_seqscan"}

// byIDFrom finds processed messages of known IDs: the inbox has no index by ID, but the time at which an ID was first
// seen leads to it.
const byIDFrom = `(
	with seen as materialized (
		select d.scope_id, d.message_id, d.first_seen_at
		from firstseen.message_dedup d
		where d.scope_id in (select scope_id from firstseen.scopes where inbox = $1) and d.message_id = any ($2::text[]::uuid[]))
	select i.* from seen join firstseen.inbox i
		on i.received_at = seen.first_seen_at and i.scope_id = seen.scope_id and i.message_id = seen.message_id) m
join firstseen.scopes s using (scope_id)`

// Messages lists the messages of one status, the last received first, or for dead letters those that died last: up
// to a limit, behind the cursor of the page before. next is empty on the last page. While messages come and go one
// who pages gets none twice, and misses none that had the status from the beginning to the end.
//
// Processed messages are read back from the newest, or from the filter's To, until there are enough of them or the
// filter's From is reached: no index leads to them by topic, handler or key, on purpose, for it would cost every
// insert. Parked messages are read and sorted, as many as there are. Dead letters are read back too, but where their
// topic, or handler and tenant, have few: an index leads to these, and what is rare by its key or reason alone is
// looked for among all. So a list may take long; ctx's deadline bounds it.
func (in *Inbox) Messages(ctx context.Context, l Listing) (messages []Listed, next Cursor, err error) {
	if messages, next, err = in.list(ctx, l); err != nil {
		return nil, "", fmt.Errorf("list %s messages of inbox %s: %w", l.Status, in.db.Inbox, err)
	}
	return messages, next, nil
}

func (in *Inbox) list(ctx context.Context, l Listing) (messages []Listed, next Cursor, err error) {
	from, ok := lists[l.Status]
	switch {
	case !ok:
		return nil, "", fmt.Errorf("status %q is none of %v", l.Status, Statuses)
	case l.Status == StatusPending && in.hasOutbox():
		return in.waiting(ctx, l)
	}
	if l.Status == StatusDead {
		if l.Filter, err = in.fewDead(ctx, l.Filter); err != nil {
			return nil, "", err
		}
		if l.Filter.IDs != nil {
			from.off = byIDs
		}
	}
	if l.Status == StatusProcessed {
		l.Filter.Reason = ""
		if l.Filter.IDs != nil {
			from.from, from.off = byIDFrom, nil
		}
	}
	sql, args, err := from.statement(in.db.Inbox, l)
	if err != nil {
		return nil, "", err
	}
	err = in.db.Look(ctx, from.off, func(tx pgx.Tx) (err error) {
		messages, next, err = collectPage(ctx, tx, from.paging(l), in.db.SQL(sql), args...)
		return err
	})
	return messages, next, err
}

const bytesColumn = `coalesce(octet_length(m.key), 0) + coalesce(octet_length(m.headers), 0) + coalesce(octet_length(m.payload), 0)`

func (from statusList) statement(inbox string, l Listing) (sql string, args []any, err error) {
	c := l.Filter.conditions(inbox, from.at)
	c.terms = append(c.terms, from.term)
	if err := c.behind(l.After, from.name, from.at); err != nil {
		return "", nil, err
	}
	content := "null::bytea, null::bytea, null::bytea"
	if l.Content {
		content = "m.key, m.headers, m.payload"
	}
	sql = `select s.inbox, s.handler, s.tenant, ` + placeColumns + `, ` + content +
		`, m.received_at, m.attempts, m.seq, ` + bytesColumn + `, ` + from.columns + ` from ` + from.from + c.where() +
		` order by ` + from.at + ` desc, m.seq desc` + c.limit(l.Limit)
	return sql, c.args, nil
}

func (from statusList) paging(l Listing) paging[Listed] {
	return paging[Listed]{
		limit: l.Limit,
		size:  func(m *Listed) int { return m.Message.Size() },
		cursor: func(m *Listed) Cursor {
			if l.Status == StatusDead {
				return timeCursor(from.name, m.At, m.seq)
			}
			return timeCursor(from.name, m.ReceivedAt, m.seq)
		},
		scan: func(row pgx.CollectableRow) (Listed, error) {
			m, err := scanListed(row)
			m.Status = l.Status
			return m, err
		},
	}
}

func scanListed(row pgx.CollectableRow) (m Listed, err error) {
	var content contentRow
	var state stateRow
	var due *time.Time
	err = row.Scan(append(append(append([]any{&m.Inbox, &m.Handler, &m.Message.Tenant},
		content.columns(&m.Message)...),
		&m.ReceivedAt, &m.Attempts, &m.seq, &m.Bytes), append(state.columns(&m.Stored), &due)...)...)
	if err != nil {
		return m, err
	}
	m.DueAt = db.Deref(due)
	state.into(&m.Stored)
	return m, content.into(&m.Message)
}
