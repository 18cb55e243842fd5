package operate

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Sighting tells of an ID in one scope.
type Sighting struct {
	Inbox, Handler, Tenant string
	// FirstSeenAt is the time of the transaction that saw the ID first.
	FirstSeenAt time.Time
	// Stored is the message that it was seen with; nil where it is kept no more.
	Stored *Stored
	// Lane is the queue that the message waits in; nil where it is not parked.
	Lane *Lane
	// Conflicts are later copies with another content, the last first: a page as Inbox.Conflicts gives it, of 100 at
	// most. MoreConflicts says that there are more.
	Conflicts     []ConflictCopy
	MoreConflicts bool
	// Audit lists the changes that were made to the message by hand, in the order of time.
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
func (in *Inbox) sightings(ctx context.Context, id uuid.UUID) ([]Sighting, error) {
	found, err := db.Collect(ctx, in.db, scanSighting, sightingsSQL, id.String(), in.db.Inbox)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if err := in.follow(ctx, &found[i], id); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func scanSighting(row pgx.CollectableRow) (f Sighting, err error) {
	return f, row.Scan(&f.scope, &f.Inbox, &f.Handler, &f.Tenant, &f.FirstSeenAt)
}

// follow finds what became of an ID in its scope.
func (in *Inbox) follow(ctx context.Context, f *Sighting, id uuid.UUID) (err error) {
	if f.Stored, err = in.stored(ctx, f.scope, id); err != nil {
		return err
	}
	if f.Stored != nil && f.Stored.State == dedup.Parked {
		if f.Lane, err = in.lane(ctx, f.scope, f.Stored); err != nil {
			return err
		}
	}
	if f.Audit, err = db.Collect(ctx, in.db, scanAudit, auditSQL, f.scope, id.String()); err != nil {
		return err
	}
	const most = 100
	c := &condition{args: []any{f.scope, id.String()}}
	sql := conflictsSQL + `
where m.scope_id = $1 and m.message_id = $2::text::uuid
order by m.seen_at desc` + c.limit(most)
	copies, next, err := collectPage(ctx, in.db.Pool, conflictPaging(most), in.db.SQL(sql), c.args...)
	f.Conflicts, f.MoreConflicts = copies, next != ""
	return err
}

// Lane is the queue that a parked message waits in.
type Lane struct {
	// DueAt is when the lane's first message is to be tried next.
	DueAt time.Time
	// Claims counts the claims of workers on the lane since it last got anywhere.
	Claims int
	// Ahead counts the messages that wait before the one that was asked for.
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
func (in *Inbox) lane(ctx context.Context, scope int32, m *Stored) (*Lane, error) {
	found, err := db.Collect(ctx, in.db, scanLane, laneSQL, scope, m.Lane.String(), m.Message.Offset,
		m.Message.ID.String())
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
	h.State, h.Message.Partition, h.Reason, h.Error = dedup.Parked,
		db.Deref(partition), db.Deref(reason), db.Deref(text)
	return l, err
}
