package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Place is one offset of a partition, and where its consumers stand.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
	// Consumers are those that have a position in the partition.
	Consumers []Position
	// Conflict says that the message there was a copy with another content than the first of its ID.
	Conflict bool
	// SearchedFrom is the time back to which the inbox was searched for the offset; zero where that was not needed.
	SearchedFrom time.Time
}

func (p *Place) String() string { return fmt.Sprintf("%s/%d@%d", p.Topic, p.Partition, p.Offset) }

// ExplainPlace tells what is known of an offset: which message lay there and what became of it, or the nearest reason
// why none is known. No index leads from an offset to the inbox, on purpose, for it would cost every insert; where the
// offset is found in no smaller table, the inbox is read back to since, newest day first. Zero: two days.
func (in *Inbox) ExplainPlace(ctx context.Context, topic string, partition int32, offset int64,
	since time.Time) (Explanation, error) {
	p := &Place{Topic: topic, Partition: partition, Offset: offset}
	e := Explanation{Asked: p.String(), Inbox: in.db.Inbox, Place: p}
	if err := in.explainPlace(ctx, &e, since); err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", p, err)
	}
	e.Sentences = e.tell()
	return e, nil
}

func (in *Inbox) explainPlace(ctx context.Context, e *Explanation, since time.Time) (err error) {
	p := e.Place
	p.Consumers, err = db.Collect(ctx, in.db, scanPosition,
		positionsSQL+`where topic = $1 and "partition" = $2 order by consumer`, p.Topic, p.Partition)
	if err != nil {
		return err
	}
	ids, err := in.atPlace(ctx, p)
	if err != nil {
		return err
	}
	if err := in.see(ctx, e, append(ids, p.derivedIDs()...)); err != nil || len(e.Seen) > 0 || !p.passed() {
		return err
	}
	if since.IsZero() {
		since = e.Now.AddDate(0, 0, -2)
	}
	if ids, err = in.searchInbox(ctx, p, since, e.Now); err != nil {
		return err
	}
	return in.see(ctx, e, ids)
}

// passed says whether a consumer is beyond the offset, or none is known.
func (p *Place) passed() bool {
	for _, c := range p.Consumers {
		if c.Next > p.Offset {
			return true
		}
	}
	return len(p.Consumers) == 0
}

// derivedIDs lists the IDs that a message there has where its position is its identity, or where it had no usable one.
func (p *Place) derivedIDs() (ids []uuid.UUID) {
	var topicIDs []uuid.UUID
	for _, c := range p.Consumers {
		topicIDs = append(topicIDs, c.TopicID)
	}
	for _, topicID := range append(topicIDs, uuid.Nil) {
		m := dedup.Message{Topic: p.Topic, Partition: p.Partition, Offset: p.Offset}
		m.Refuse(identity.ReasonMissingID, topicID)
		ids = append(ids, m.ID)
	}
	return ids
}

// atPlaceSQL looks through what is not processed. Lanes are per partition, and lead to what is parked.
const atPlaceSQL = `
select p.message_id, false
from firstseen.lanes l
join firstseen.parked p on p.scope_id = l.scope_id and p.lane = l.lane and p."offset" = $3
where l.topic = $1 and l."partition" = $2 and p.topic = $1 and p."partition" = $2
union
select message_id, false from firstseen.dead_letters where topic = $1 and "partition" = $2 and "offset" = $3
union
select message_id, true from firstseen.conflicts where topic = $1 and "partition" = $2 and "offset" = $3
limit 10`

func (in *Inbox) atPlace(ctx context.Context, p *Place) (ids []uuid.UUID, err error) {
	_, err = db.Collect(ctx, in.db, func(row pgx.CollectableRow) (_ struct{}, err error) {
		var id uuid.UUID
		var conflict bool
		err = row.Scan(&id, &conflict)
		ids, p.Conflict = append(ids, id), p.Conflict || conflict
		return struct{}{}, err
	}, atPlaceSQL, p.Topic, p.Partition, p.Offset)
	return ids, err
}

const inboxAtSQL = `
select message_id
from firstseen.inbox
where received_at >= $1 and received_at < $2 and topic = $3 and "partition" = $4 and "offset" = $5
limit 1`

// firstDaySQL is the inbox's first day that has a partition of its own.
const firstDaySQL = `
select coalesce(min(to_date(right(c.relname, 8), 'YYYYMMDD')), current_date)::timestamp
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'firstseen.inbox'::regclass and c.relname ~ '^inbox_\d{8}$'`

// searchInbox reads the inbox back from now, one day's partition after the other, and what is older than the first of
// them at once.
func (in *Inbox) searchInbox(ctx context.Context, p *Place, since, now time.Time) ([]uuid.UUID, error) {
	p.SearchedFrom = since
	first, err := db.Collect(ctx, in.db, pgx.RowTo[time.Time], firstDaySQL)
	if err != nil {
		return nil, err
	}
	to := now.UTC().Add(time.Minute) // a transaction that committed since
	for to.After(since) {
		from := to.Add(-time.Nanosecond).Truncate(24 * time.Hour)
		if from.Before(since) || !to.After(first[0]) {
			from = since
		}
		ids, err := db.Collect(ctx, in.db, pgx.RowTo[uuid.UUID], inboxAtSQL, from, to, p.Topic, p.Partition, p.Offset)
		if err != nil || len(ids) > 0 {
			return ids, err
		}
		to = from
	}
	return nil, nil
}
