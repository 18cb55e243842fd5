package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// DeadLetter is a message that was given up: byte for byte as it came, with why.
type DeadLetter struct {
	Inbox, Handler string
	// Message is as a handler would get it. Its Tenant completes the scope.
	Message Message
	// ReceivedAt is when its ID was first seen, DiedAt when it was given up, the last time.
	ReceivedAt, DiedAt time.Time
	// Attempts is how often its handler failed on it since it was last redriven.
	Attempts int
	// Reason is a short code and Error the text of the last failure, empty where there was none.
	Reason, Error string

	seq int64
}

var deadSQL = `
select s.inbox, s.handler, s.tenant, m.message_id, m.raw_id, m.topic, m."partition", m."offset", ` + timestampColumn + `,
	m.key, m.headers, m.payload, m.received_at, m.died_at, m.attempts, m.reason, m.error, m.seq
from firstseen.dead_letters m
join firstseen.scopes s using (scope_id)`

// DeadLetters lists dead letters, those that died last first: up to limit of them, behind the cursor of the page
// before (empty: the first page). next is empty on the last page. While messages die or are redriven one who pages
// gets none twice, misses none that was there from the beginning to the end, and sees none that died later. A page
// carries keys, headers and values whole; it is shorter where those are more than 16 MiB.
func (s *Store) DeadLetters(ctx context.Context, f Filter, after Cursor, limit int) (letters []DeadLetter, next Cursor, err error) {
	c := f.conditions(s.cfg.Inbox, "m.died_at")
	if err := c.behind(after, deadList, "m.died_at"); err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	sql := deadSQL + c.where() + "\norder by m.died_at desc, m.seq desc" + c.limit(limit)
	letters, next, err = collectPage(ctx, s.db.Pool, paging[DeadLetter]{scanDead, (*DeadLetter).size, (*DeadLetter).cursor, limit},
		s.db.SQL(sql), c.args...)
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters of inbox %s: %w", s.cfg.Inbox, err)
	}
	return letters, next, nil
}

// DeadLetter gives one dead letter, or nil where there is none of that ID in the scope.
func (s *Store) DeadLetter(ctx context.Context, scope ScopeKey, id uuid.UUID) (*DeadLetter, error) {
	c := Filter{IDs: []uuid.UUID{id}, Handler: scope.Handler}.conditions(s.cfg.Inbox, "")
	c.add("s.tenant = $%d", scope.Tenant)
	letters, err := db.Collect(ctx, s.db, scanDead, deadSQL+c.where(), c.args...)
	if err != nil {
		return nil, fmt.Errorf("look for dead letter %s of handler %s: %w", id, scope.Handler, err)
	}
	if len(letters) == 0 {
		return nil, nil
	}
	return &letters[0], nil
}

// CountDeadLetters counts what a Redrive or Discard with the same filter would find.
func (s *Store) CountDeadLetters(ctx context.Context, f Filter) (n int, err error) {
	c := f.conditions(s.cfg.Inbox, "m.died_at")
	sql := `select count(*) from firstseen.dead_letters m join firstseen.scopes s using (scope_id)` + c.where()
	if err := s.db.Pool.QueryRow(ctx, s.db.SQL(sql), c.args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count dead letters of inbox %s: %w", s.cfg.Inbox, err)
	}
	return n, nil
}

func scanDead(row pgx.CollectableRow) (d DeadLetter, err error) {
	var content contentRow
	var text *string
	err = row.Scan(append(append([]any{&d.Inbox, &d.Handler, &d.Message.Tenant}, content.columns(&d.Message)...),
		&d.ReceivedAt, &d.DiedAt, &d.Attempts, &d.Reason, &text, &d.seq)...)
	if err != nil {
		return d, err
	}
	d.Error = db.Deref(text)
	return d, content.into(&d.Message)
}

// contentRow takes the columns of a stored message that can be null or are encoded.
type contentRow struct {
	raw       *string
	partition *int32
	offset    *int64
	timestamp *int64
	headers   []byte
}

// columns are where message_id, raw_id, topic, partition, offset, timestampColumn, key, headers and payload go.
func (c *contentRow) columns(m *Message) []any {
	return []any{&m.ID, &c.raw, &m.Topic, &c.partition, &c.offset, &c.timestamp, &m.Key, &c.headers, &m.Value}
}

func (c *contentRow) into(m *Message) (err error) {
	m.RawID, m.Partition, m.Offset = db.Deref(c.raw), db.Deref(c.partition), db.Deref(c.offset)
	if c.timestamp != nil {
		m.Stamp(*c.timestamp)
	}
	if m.Headers, err = DecodeHeaders(c.headers); err != nil {
		return fmt.Errorf("message %s: %w", m.ID, err)
	}
	return nil
}

func (d *DeadLetter) cursor() Cursor { return timeCursor(deadList, d.DiedAt, d.seq) }

func (d *DeadLetter) size() int { return d.Message.Size() }

// By is who changes something by hand, and why. Both are required, and kept in the table audit.
type By struct{ Actor, Why string }

func (b By) validate() error {
	var faults []error
	if isBlank(b.Actor) {
		faults = append(faults, errors.New("actor: say who does it"))
	}
	if isBlank(b.Why) {
		faults = append(faults, errors.New("why: say what for"))
	}
	return errors.Join(faults...)
}
