package dedup

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Stored is a message as it lies in Postgres.
type Stored struct {
	Message Message
	// State says where: in the inbox, in its lane, or in the dead letters.
	State State
	// ReceivedAt is when its ID was first seen, and At when it came into its state, the last time.
	ReceivedAt, At time.Time
	// Attempts is how often its handler has failed on it since it was first parked, or last redriven.
	Attempts int
	// Reason is a short code and Error the text of the last failure, empty where there was none and once it is processed.
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
select seen.tenant, m.message_id, m.raw_id, m.topic, m."partition", m."offset", ` + timestampColumn + `, m.key, m.headers, m.payload,
	m.received_at, m.attempts, 1, m.parked_at, m.reason, m.error, m.lane
from seen join firstseen.parked m using (scope_id, message_id)
union all
select seen.tenant, m.message_id, m.raw_id, m.topic, m."partition", m."offset", ` + timestampColumn + `, m.key, m.headers, m.payload,
	m.received_at, m.attempts, 2, m.died_at, m.reason, m.error, m.lane
from seen join firstseen.dead_letters m using (scope_id, message_id)
union all
select seen.tenant, m.message_id, m.raw_id, m.topic, m."partition", m."offset", ` + timestampColumn + `, m.key, m.headers, m.payload,
	m.received_at, m.attempts, 0, m.processed_at, null, null, null
from seen join firstseen.inbox m on m.received_at = seen.first_seen_at
	and m.scope_id = seen.scope_id and m.message_id = seen.message_id
limit 1`

// stored gives the message that an ID was first seen with, or nil where it is kept nowhere any more.
func (s *Store) stored(ctx context.Context, scope int32, id uuid.UUID) (*Stored, error) {
	found, err := db.Collect(ctx, s.db, scanStored, storedSQL, scope, id.String())
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

// columns are where the state, its time, reason, error and lane go.
func (r *stateRow) columns(m *Stored) []any {
	return []any{&m.State, &r.at, &r.reason, &r.text, &r.lane}
}

func (r *stateRow) into(m *Stored) {
	m.At, m.Reason, m.Error, m.Lane = db.Deref(r.at), db.Deref(r.reason), db.Deref(r.text), db.Deref(r.lane)
}

// Sighting is what is known of an ID in one scope.
type Sighting struct {
	Inbox, Handler, Tenant string
	// FirstSeenAt is the time of the transaction that saw the ID first.
	FirstSeenAt time.Time
	// Stored is the message that it was seen with; nil where it is kept no more.
	Stored *Stored
	// Lane is what the message waits in; nil where it is not parked.
	Lane *Lane
	// Conflicts are later copies with another content, the last first.
	Conflicts []ConflictCopy
	// Audit is what was done to the message by hand, in the order of time.
	Audit []AuditEntry

	scope int32
}

const sightingsSQL = `
select s.scope_id, s.inbox, s.handler, s.tenant, d.first_seen_at
from firstseen.scopes s
join firstseen.message_dedup d on d.scope_id = s.scope_id and d.message_id = $1::text::uuid
order by s.inbox = $2 desc, s.inbox, s.handler, s.tenant
limit 100`

// sightings gives all that is known of an ID, in this inbox first and then in the others.
func (s *Store) sightings(ctx context.Context, id uuid.UUID) ([]Sighting, error) {
	found, err := db.Collect(ctx, s.db, scanSighting, sightingsSQL, id.String(), s.cfg.Inbox)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if err := s.follow(ctx, &found[i], id); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func scanSighting(row pgx.CollectableRow) (f Sighting, err error) {
	return f, row.Scan(&f.scope, &f.Inbox, &f.Handler, &f.Tenant, &f.FirstSeenAt)
}

// follow finds what became of an ID in its scope.
func (s *Store) follow(ctx context.Context, f *Sighting, id uuid.UUID) (err error) {
	if f.Stored, err = s.stored(ctx, f.scope, id); err != nil {
		return err
	}
	if f.Stored != nil && f.Stored.State == Parked {
		if f.Lane, err = s.lane(ctx, f.scope, f.Stored); err != nil {
			return err
		}
	}
	if f.Audit, err = db.Collect(ctx, s.db, scanAudit, auditSQL, f.scope, id.String()); err != nil {
		return err
	}
	f.Conflicts, err = db.Collect(ctx, s.db, scanConflict,
		conflictsSQL+` where m.scope_id = $1 and m.message_id = $2::text::uuid order by m.seen_at desc limit 100`, f.scope, id.String())
	return err
}

// AuditEntry is one thing that was done to a message by hand.
type AuditEntry struct {
	At                 time.Time
	Actor, Action, Why string
	// Login is who was logged in to Postgres, whatever Actor says; empty for what was done before it was kept.
	Login string
}

const auditSQL = `select at, actor, action, why, login from firstseen.audit where scope_id = $1 and message_id = $2::text::uuid order by audit_id`

func scanAudit(row pgx.CollectableRow) (a AuditEntry, err error) {
	return a, row.Scan(&a.At, &a.Actor, &a.Action, &a.Why, &a.Login)
}

// Lane is the queue that a parked message waits in.
type Lane struct {
	// DueAt is when the lane's first message is to be tried next.
	DueAt time.Time
	// Claims is how often a worker took the lane since it last got anywhere.
	Claims int
	// Ahead is how many messages wait before the one that was asked for.
	Ahead int
	// Head is the lane's first message, without its content.
	Head Stored
}

const laneSQL = `
select l.due_at, l.claims,
	(select count(*) from firstseen.parked p where p.scope_id = l.scope_id and p.lane = l.lane
		and (p."offset", p.message_id) < ($3, $4::text::uuid)),
	h.message_id, h.topic, h."partition", h."offset", h.attempts, h.reason, h.error
from firstseen.lanes l
cross join lateral (
	select * from firstseen.parked p
	where p.scope_id = l.scope_id and p.lane = l.lane
	order by p."offset", p.message_id
	limit 1) h
where l.scope_id = $1 and l.lane = $2::text::uuid`

// lane gives what a parked message waits in, or nil where it has gone on in between.
func (s *Store) lane(ctx context.Context, scope int32, m *Stored) (*Lane, error) {
	found, err := db.Collect(ctx, s.db, scanLane, laneSQL, scope, m.Lane.String(), m.Message.Offset, m.Message.ID.String())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func scanLane(row pgx.CollectableRow) (l Lane, err error) {
	h := &l.Head
	var partition *int32
	var reason, text *string
	err = row.Scan(&l.DueAt, &l.Claims, &l.Ahead, &h.Message.ID, &h.Message.Topic, &partition, &h.Message.Offset,
		&h.Attempts, &reason, &text)
	h.State, h.Message.Partition, h.Reason, h.Error = Parked, db.Deref(partition), db.Deref(reason), db.Deref(text)
	return l, err
}
