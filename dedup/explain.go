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

// Explanation is what Postgres knows of a message or of a place in a topic: the facts, and the same in sentences.
type Explanation struct {
	// Asked is what was asked for: an ID, or topic/partition@offset.
	Asked string
	// Now is the database's time, Inbox the store's.
	Now   time.Time
	Inbox string
	// Seen is what is known in each scope, those of the store's inbox first. Empty: the ID was never seen.
	Seen []Sighting
	// Unseen are handlers of the store's inbox that have not seen the ID, where another one has.
	Unseen []string
	// ForgottenBefore is set where the ID is not known and retention has deleted IDs of the store's inbox that were first
	// seen before it; DroppedBefore where content is gone and retention has dropped days of the inbox that ended by then.
	ForgottenBefore, DroppedBefore time.Time
	// Place is what was asked for, if that was a place.
	Place *Place
	// Sentences tell it to people, in the order to read them.
	Sentences []string
}

// ExplainID tells what is known of the message IDs that a text may stand for, usually one: see ParseIDs.
func (s *Store) ExplainID(ctx context.Context, ids ...uuid.UUID) (Explanation, error) {
	if len(ids) == 0 {
		return Explanation{}, errors.New("explain: no ID given")
	}
	e := Explanation{Asked: ids[0].String(), Inbox: s.cfg.Inbox}
	err := s.see(ctx, &e, ids)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain message %s: %w", e.Asked, err)
	}
	e.Sentences = e.tell()
	return e, nil
}

// see gathers what is known of the first of the IDs that was seen anywhere.
func (s *Store) see(ctx context.Context, e *Explanation, ids []uuid.UUID) error {
	if err := s.db.Pool.QueryRow(ctx, `select now()`).Scan(&e.Now); err != nil {
		return err
	}
	for _, id := range ids {
		found, err := s.sightings(ctx, id)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			e.Seen = found
			e.Unseen, err = db.Collect(ctx, s.db, pgx.RowTo[string], unseenSQL, s.cfg.Inbox, id.String())
			if err == nil {
				e.DroppedBefore, err = s.deletedBefore(ctx, "")
			}
			return err
		}
	}
	var err error
	e.ForgottenBefore, err = s.deletedBefore(ctx, s.cfg.Inbox)
	return err
}

// deletedBefore is up to when retention has deleted something in an inbox; without a name, days of the inbox's table.
func (s *Store) deletedBefore(ctx context.Context, inbox string) (before time.Time, err error) {
	deleted, err := s.upkeep(ctx, inbox)
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
