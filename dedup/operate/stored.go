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

// Stored is a message as it lies in Postgres.
type Stored struct {
	Message dedup.Message
	// State says where: in the inbox, in its lane, or in the dead letters.
	State dedup.State
	// ReceivedAt is when its ID was first seen, and At when it came into its state, the last time.
	ReceivedAt, At time.Time
	// Attempts counts its handler's failures since it was first parked, or last redriven.
	Attempts int
	// Reason is a short code and Error the text of the last failure, empty where there was none and once it is
	// processed.
	Reason, Error string
	// Lane is its queue, where it is parked.
	Lane uuid.UUID
}

// storedSQL finds a message where its state is kept. The time at which the ID was first seen leads to the inbox's row.
var storedSQL = `
with seen as materialized (
	select d.scope_id, d.message_id, d.first_seen_at, s.tenant
	from firstseen.message_dedup d
	join firstseen.scopes s using (scope_id)
	where d.scope_id = $1 and d.message_id = $2::text::uuid)
select seen.tenant, ` + messageColumns + `,
	m.received_at, m.attempts, 1, m.parked_at, m.reason, m.error, m.lane
from seen join firstseen.parked m using (scope_id, message_id)
union all
select seen.tenant, ` + messageColumns + `,
	m.received_at, m.attempts, 2, m.died_at, m.reason, m.error, m.lane
from seen join firstseen.dead_letters m using (scope_id, message_id)
union all
select seen.tenant, ` + messageColumns + `,
	m.received_at, m.attempts, 0, m.processed_at, null, null, null
from seen join firstseen.inbox m on m.received_at = seen.first_seen_at
	and m.scope_id = seen.scope_id and m.message_id = seen.message_id
limit 1`

// stored gives the message that an ID was first seen with, or nil where it is kept nowhere any more.
func (in *Inbox) stored(ctx context.Context, scope int32, id uuid.UUID) (*Stored, error) {
	found, err := db.Collect(ctx, in.db, scanStored, storedSQL, scope, id.String())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func scanStored(row pgx.CollectableRow) (m Stored, err error) {
	var content contentRow
	var state stateRow
	err = row.Scan(append(append(append([]any{&m.Message.Tenant}, content.columns(&m.Message)...),
		&m.ReceivedAt, &m.Attempts), state.columns(&m)...)...)
	if err != nil {
		return m, err
	}
	state.into(&m)
	return m, content.into(&m.Message)
}

// stateRow takes the columns of a message's state, which can be null.
type stateRow struct {
	at           *time.Time
	reason, text *string
	lane         *uuid.UUID
}

// columns scan the state, its time, reason, error and lane.
func (r *stateRow) columns(m *Stored) []any {
	return []any{&m.State, &r.at, &r.reason, &r.text, &r.lane}
}

func (r *stateRow) into(m *Stored) {
	m.At, m.Reason, m.Error, m.Lane = db.Deref(r.at), db.Deref(r.reason), db.Deref(r.text), db.Deref(r.lane)
}

// timestampColumn is that of a row m.
var timestampColumn = db.TimestampNumber("m.produced_at", "m.raw_timestamp")

// messageColumns are those of a row m that a contentRow takes.
var messageColumns = placeColumns + `, m.key, m.headers, m.payload`

// placeColumns are those but key, headers and payload.
var placeColumns = `m.message_id, m.raw_id, m.topic, m."partition", m."offset", ` + timestampColumn

// contentRow takes the columns of a stored message that can be null or are encoded.
type contentRow struct {
	raw       *string
	partition *int32
	offset    *int64
	timestamp *int64
	headers   []byte
}

// columns scan messageColumns.
func (c *contentRow) columns(m *dedup.Message) []any {
	return []any{&m.ID, &c.raw, &m.Topic, &c.partition, &c.offset, &c.timestamp, &m.Key, &c.headers, &m.Value}
}

func (c *contentRow) into(m *dedup.Message) (err error) {
	m.RawID, m.Partition, m.Offset = db.Deref(c.raw), db.Deref(c.partition), db.Deref(c.offset)
	if c.timestamp != nil {
		m.Stamp(*c.timestamp)
	}
	if m.Headers, err = dedup.DecodeHeaders(c.headers); err != nil {
		return fmt.Errorf("message %s: %w", m.ID, err)
	}
	return nil
}
