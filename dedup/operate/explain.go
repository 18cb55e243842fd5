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

// Explanation is what Postgres knows of a message or of a place in a topic: the facts, and the same in sentences.
type Explanation struct {
	// Asked is what was asked for: an ID, or topic/partition@offset.
	Asked string
	// Now is the database's time, Inbox the inbox's name.
	Now   time.Time
	Inbox string
	// Seen is what is known in each scope, those of the inbox first. Empty: the ID was never seen.
	Seen []Sighting
	// Unseen are handlers of the inbox that have not seen the ID, where another one has.
	Unseen []string
	// ForgottenBefore is set where the ID is not known and retention has deleted IDs of the inbox that were first
	// seen before it; DroppedBefore where content is gone and retention has dropped days of the inbox that ended by
	// then.
	ForgottenBefore, DroppedBefore time.Time
	// Place is what was asked for, if that was a place.
	Place *Place
	// Sentences tell it to people, in the order to read them.
	Sentences []string
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
		if len(found) > 0 {
			e.Seen = found
			e.Unseen, err = db.Collect(ctx, in.db, pgx.RowTo[string], unseenSQL, in.db.Inbox, id.String())
			if err == nil {
				e.DroppedBefore, err = in.deletedBefore(ctx, "")
			}
			return err
		}
	}
	var err error
	e.ForgottenBefore, err = in.deletedBefore(ctx, in.db.Inbox)
	return err
}

// deletedBefore is up to when retention has deleted something in an inbox; without a name, days of the inbox's table.
func (in *Inbox) deletedBefore(ctx context.Context, inbox string) (before time.Time, err error) {
	deleted, err := in.upkeep(ctx, inbox)
	for _, u := range deleted {
		if u.removed > 0 && u.before.After(before) {
			before = u.before
		}
	}
	return before, err
}

const unseenSQL = `
select distinct s.handler
from firstseen.scopes s
where s.inbox = $1 and not exists (
	select from firstseen.scopes o
	join firstseen.message_dedup d using (scope_id)
	where o.inbox = $1 and o.handler = s.handler and d.message_id = $2::text::uuid)
order by s.handler
limit 20`
