package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Explanation tells all that Postgres knows of a message, of a place in a topic or of an idempotency key: the facts,
// and the same in sentences.
type Explanation struct {
	// Asked names the question: an ID, that of the message that a key stands for, or topic/partition@offset.
	Asked string
	// Now is the database's time, Inbox the inbox's name.
	Now   time.Time
	Inbox string
	// Seen has a Sighting for each scope that has seen the ID, those of the inbox first. Empty: the ID was never seen.
	Seen []Sighting
	// Unseen are handlers of the inbox that have not seen the ID, where another one has: those that have got messages
	// of its topic lately.
	Unseen []string
	// ForgottenBefore is set where the ID is not known and retention has deleted IDs of the inbox that were first
	// seen before it; DroppedBefore where content is gone and retention has dropped days of the inbox that ended by
	// then.
	ForgottenBefore, DroppedBefore time.Time
	// Place is set where a place was asked for.
	Place *Place
	// Waiting are messages of the ID that wait in the outbox, where no relay has taken them yet.
	Waiting []Listed
	// Caused are the messages that handlers have added to the outbox for it, in the order that they were added in.
	// Those that were sent after CausedUntil are not among them; zero: all are, as far as they are kept.
	Caused      []Listed
	CausedUntil time.Time
	// Requests are those with the key, if that was what was asked for, the last first.
	Requests []Request
	// Sentences tell it to people, in the order to read them.
	Sentences []string

	byKey   bool // an idempotency key was asked for
	canBeID bool // and a message can be known by it
}

// ExplainID tells what is known of the message IDs that a text may stand for, usually one: see ParseIDs.
func (in *Inbox) ExplainID(ctx context.Context, ids ...uuid.UUID) (Explanation, error) {
	if len(ids) == 0 {
		return Explanation{}, errors.New("explain: no ID given")
	}
	e := Explanation{Asked: ids[0].String(), Inbox: in.db.Inbox}
	err := in.see(ctx, &e, ids)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain message %s: %w", e.Asked, err)
	}
	e.Sentences = e.tell()
	return e, nil
}

// see gathers what is known of the first of the IDs that was seen anywhere.
func (in *Inbox) see(ctx context.Context, e *Explanation, ids []uuid.UUID) error {
	if err := in.db.Pool.QueryRow(ctx, `select now()`).Scan(&e.Now); err != nil {
		return err
	}
	for _, id := range ids {
		found, err := in.sightings(ctx, id)
		if err != nil {
			return err
		}
		if e.Waiting, err = in.waitingFor(ctx, id); err != nil {
			return err
		}
		if len(found)+len(e.Waiting) > 0 {
			e.Seen = found
			return in.seeMore(ctx, e, id)
		}
	}
	var err error
	e.ForgottenBefore, err = in.deletedBefore(ctx, in.db.Inbox)
	return err
}

// seeMore gathers what there is beside the sightings of an ID.
func (in *Inbox) seeMore(ctx context.Context, e *Explanation, id uuid.UUID) (err error) {
	if len(e.Seen) == 0 {
		return nil
	}
	if topic := e.topic(); topic != "" {
		e.Unseen, err = db.Collect(ctx, in.db, pgx.RowTo[string], unseenSQL, in.db.Inbox, id.String(), topic)
		if err != nil {
			return err
		}
	}
	if e.DroppedBefore, err = in.deletedBefore(ctx, ""); err != nil {
		return err
	}
	return in.cause(ctx, e, id)
}

// topic is that of the message, as far as it is known.
func (e *Explanation) topic() string {
	if e.Place != nil {
		return e.Place.Topic
	}
	for _, f := range e.Seen {
		if f.Stored != nil {
			return f.Stored.Message.Topic
		}
	}
	return ""
}

// deletedBefore is the time before which retention has deleted something in an inbox; without a name, days of the
// inbox's table.
func (in *Inbox) deletedBefore(ctx context.Context, inbox string) (before time.Time, err error) {
	deleted, err := in.upkeep(ctx, inbox)
	for _, u := range deleted {
		if u.removed > 0 && u.before.After(before) {
			before = u.before
		}
	}
	return before, err
}

// unseenSQL goes by the last messages for which handlers a topic has: that is the config's, and not in the tables.
const unseenSQL = `
with takers as (
	select n.scope_id
	from (select scope_id, topic from firstseen.inbox order by received_at desc, seq desc limit 10000) n
	where n.topic = $3
	union
	select p.scope_id
	from (select scope_id, topic from firstseen.parked limit 10000) p
	where p.topic = $3)
select distinct s.handler
from takers
join firstseen.scopes s using (scope_id)
where s.inbox = $1 and not exists (
	select from firstseen.scopes o
	join firstseen.message_dedup d using (scope_id)
	where o.inbox = $1 and o.handler = s.handler and d.message_id = $2::text::uuid)
order by s.handler
limit 20`

// HideErrors has show say what is told of each error of a message of a topic, and tells the sentences anew.
func (e *Explanation) HideErrors(show func(topic, text string) string) {
	for i := range e.Seen {
		f := &e.Seen[i]
		if f.Stored != nil {
			f.Stored.Error = show(f.Stored.Message.Topic, f.Stored.Error)
		}
		if f.Lane != nil {
			f.Lane.Head.Error = show(f.Lane.Head.Message.Topic, f.Lane.Head.Error)
		}
	}
	for _, list := range [][]Listed{e.Waiting, e.Caused} {
		for i := range list {
			list[i].Error = show(list[i].Message.Topic, list[i].Error)
		}
	}
	e.Sentences = e.tellAll()
}

// tellAll puts the facts into sentences, those of an idempotency key first.
func (e *Explanation) tellAll() []string {
	if e.byKey {
		return e.tellKey(e.canBeID)
	}
	return e.tell()
}
