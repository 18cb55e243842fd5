package operate

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// waitingFor lists the messages of an ID that no relay has taken.
func (in *Inbox) waitingFor(ctx context.Context, id uuid.UUID) ([]Listed, error) {
	found, _, err := in.Outbox().Messages(ctx,
		Listing{Status: StatusPending, Filter: Filter{IDs: []uuid.UUID{id}}, Limit: maxCaused})
	return slices.DeleteFunc(found, func(m Listed) bool { return !m.isWaiting() }), err
}

// maxCaused caps the messages of the outbox that are found for the one that caused them, and causedRows the rows of
// the inbox that are looked through for them from each time on that it was handled at.
const (
	maxCaused  = 100
	causedRows = 500_000
)

// causedSQL finds messages that are not sent by an encoded header.
const causedSQL = `
select o.message_id, null::timestamptz from firstseen.outbox o where position($1::bytea in o.headers) > 0
union all
select o.message_id, null from firstseen.outbox_delayed o where position($1::bytea in o.headers) > 0
union all
select m.message_id, null from firstseen.parked m join firstseen.scopes s using (scope_id)
where s.inbox = $2 and position($1::bytea in m.headers) > 0
union all
select m.message_id, null from firstseen.dead_letters m join firstseen.scopes s using (scope_id)
where s.inbox = $2 and position($1::bytea in m.headers) > 0
limit $3`

// causedSentSQL finds those that were sent from a time on, and the time that was looked up to, if that was not the end.
const causedSentSQL = `
with sent as materialized (
	select m.message_id, m.received_at, m.scope_id, position($1::bytea in m.headers) > 0 as caused
	from firstseen.inbox m
	where m.received_at >= $4
	order by m.received_at, m.seq
	limit $5)
(select n.message_id, null::timestamptz
	from sent n join firstseen.scopes s using (scope_id)
	where n.caused and s.inbox = $2
	limit $3)
union all
select null, case when count(*) = $5 then max(n.received_at) end from sent n`

const usesOutboxSQL = `select exists (select from firstseen.scopes s where s.inbox = $1)
	or exists (select from firstseen.outbox) or exists (select from firstseen.outbox_delayed)`

// cause gathers what a message that was seen has caused: the messages that its handlers have added to the outbox.
func (in *Inbox) cause(ctx context.Context, e *Explanation, id uuid.UUID) error {
	times := handledAt(e.Seen)
	used, err := db.Collect(ctx, in.db, pgx.RowTo[bool], usesOutboxSQL, dedup.OutboxInbox)
	if err != nil || len(times) == 0 || !used[0] {
		return err
	}
	header := dedup.AppendHeaders(nil, []dedup.Header{{Key: dedup.HeaderCausation, Value: []byte(id.String())}})
	ids, _, err := in.causedBy(ctx, causedSQL, header, dedup.OutboxInbox, maxCaused)
	for i := 0; err == nil && i < len(times); i++ {
		var sent []uuid.UUID
		var until time.Time
		sent, until, err = in.causedBy(ctx, causedSentSQL, header, dedup.OutboxInbox, maxCaused, times[i], causedRows)
		ids = append(ids, sent...)
		if e.CausedUntil.IsZero() || !until.IsZero() && until.Before(e.CausedUntil) {
			e.CausedUntil = until
		}
	}
	if err == nil {
		e.Caused, err = in.ofOutbox(ctx, ids)
	}
	return err
}

// handledAt lists the times at which handlers of inboxes, but for the outbox's, have handled a message, or saw it
// first.
func handledAt(seen []Sighting) (times []time.Time) {
	for i := range seen {
		f := &seen[i]
		if f.Inbox == dedup.OutboxInbox {
			continue
		}
		at := f.FirstSeenAt
		if f.Stored != nil && f.Stored.State == dedup.Processed {
			at = f.Stored.At
		}
		if !slices.ContainsFunc(times, at.Equal) {
			times = append(times, at)
		}
	}
	return times
}

// causedBy gives IDs, and the time that the search came to; zero: it came to the end.
func (in *Inbox) causedBy(ctx context.Context, sql string, args ...any) (ids []uuid.UUID, until time.Time, err error) {
	_, err = db.Collect(ctx, in.db, func(row pgx.CollectableRow) (_ struct{}, err error) {
		var id *uuid.UUID
		var at *time.Time
		if err = row.Scan(&id, &at); id != nil {
			ids = append(ids, *id)
		}
		if at != nil {
			until = *at
		}
		return struct{}{}, err
	}, sql, args...)
	return ids, until, err
}

// ofOutbox lists messages of the outbox, whatever has become of them.
func (in *Inbox) ofOutbox(ctx context.Context, ids []uuid.UUID) (found []Listed, err error) {
	for i := 0; i < len(Statuses) && len(ids) > 0; i++ {
		some, _, err := in.Outbox().Messages(ctx,
			Listing{Status: Statuses[i], Filter: Filter{IDs: ids}, Limit: maxCaused})
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	slices.SortStableFunc(found, func(a, b Listed) int { return int(a.Message.Offset - b.Message.Offset) })
	return found, nil
}

// isWaiting says that no relay has taken a message of the outbox.
func (m *Listed) isWaiting() bool { return m.Handler == "" }

// toldCaused caps the messages that are told one by one.
const toldCaused = 20

func (e *Explanation) tellCaused(t *teller) {
	if n := len(e.Caused); n > 0 {
		t.say("It has caused %s of the outbox:", counted(int64(n), "message"))
	}
	for i := range e.Caused[:min(toldCaused, len(e.Caused))] {
		e.Caused[i].tellSent(t, e.Now)
	}
	if n := len(e.Caused) - toldCaused; n > 0 {
		t.say("and %d more.", n)
	}
	if !e.CausedUntil.IsZero() {
		t.say("What it has caused was looked for among what was sent up to %s.", clock(e.CausedUntil))
	}
}

// tellSent tells of a message of the outbox in one sentence.
func (m *Listed) tellSent(t *teller, now time.Time) {
	to := "message " + m.Message.ID.String() + ", to " + m.Message.Topic
	switch {
	case m.isWaiting() && m.DueAt.After(now):
		t.say("%s, waits in the outbox and is not to be sent before %s.", to, clock(m.DueAt))
	case m.isWaiting():
		t.say("%s, waits in the outbox since %s.", to, clock(m.ReceivedAt))
	case m.Status == StatusProcessed:
		t.say("%s, was sent by destination %s at %s.", to, m.Handler, clock(m.At))
	case m.Status == StatusDead:
		t.say("%s, was given up by destination %s at %s (%s).", to, m.Handler, clock(m.At), cause(&m.Stored))
	default:
		t.say("%s, waits to be sent by destination %s, after %s.", to, m.Handler,
			counted(int64(m.Attempts), "failed attempt"))
	}
}

// tellWaiting tells of a message that no relay has taken.
func (m *Listed) tellWaiting(t *teller, now time.Time) {
	t.say("It waits in the outbox since %s, to be sent to %s.", clock(m.ReceivedAt), m.Message.Topic)
	switch {
	case m.DueAt.After(now):
		t.say("It is not to be sent before %s.", clock(m.DueAt))
	case now.Sub(m.ReceivedAt) > time.Minute && now.Sub(m.DueAt) > time.Minute:
		t.say("No relay has taken it: is a process running whose outbox has a destination for %s, is that paused, "+
			"or what it needs away?", m.Message.Topic)
	}
}

// tellCause tells which message a message of the outbox was added for.
func (f *Sighting) tellCause(t *teller) {
	if f.Inbox != dedup.OutboxInbox {
		return
	}
	for _, h := range f.Stored.Message.Headers {
		if id, err := uuid.Parse(string(h.Value)); h.Key == dedup.HeaderCausation && err == nil {
			t.say("A handler has added it for message %s.", id)
		}
	}
}

func (f *Sighting) handled() string {
	if f.Inbox == dedup.OutboxInbox {
		return "sent"
	}
	return "handled"
}
