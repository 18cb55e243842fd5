package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Unmasked is what is known of a message under an ID, with contents.
type Unmasked struct {
	// Seen has a Sighting for each scope of the inbox that has seen the ID, and Waiting what waits in the outbox.
	Seen    []Sighting
	Waiting []Listed
}

// Unmask gives a message of a handler and tenant, both of which may be empty for any, under one of the IDs, with its
// copies; nil: there is none. Who is shown it stands in the audit before anything is given: where that can't be
// written, the error is all.
func (in *Inbox) Unmask(ctx context.Context, handler, tenant string, ids []uuid.UUID, by By) (*Unmasked, error) {
	if err := by.validate(); err != nil {
		return nil, fmt.Errorf("unmask a message: %w", err)
	}
	for _, id := range ids {
		found, err := in.unmasked(ctx, handler, tenant, id)
		if err == nil && found != nil {
			err = in.noteUnmask(ctx, handler, id, by)
		}
		if err != nil {
			return nil, fmt.Errorf("unmask message %s of inbox %s: %w", id, in.db.Inbox, err)
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, nil
}

func (in *Inbox) noteUnmask(ctx context.Context, handler string, id uuid.UUID, by By) error {
	return in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, in.db.SQL(`select firstseen.unmask($1, $2, $3::text::uuid, $4, $5)`), in.db.Inbox,
			"handler "+cmp.Or(handler, "of any name"), id.String(), by.Actor, by.Why)
		return err
	})
}

// unmasked is nil where there is nothing.
func (in *Inbox) unmasked(ctx context.Context, handler, tenant string, id uuid.UUID) (*Unmasked, error) {
	out := &Unmasked{}
	seen, err := in.sightings(ctx, id)
	for _, f := range seen {
		if f.Inbox == in.db.Inbox && (handler == "" || f.Handler == handler) && (tenant == "" || f.Tenant == tenant) {
			out.Seen = append(out.Seen, f)
		}
	}
	if in.hasOutbox() && handler == "" {
		waiting, _, failed := in.Messages(ctx, Listing{Status: StatusPending, Filter: Filter{Tenant: tenant, IDs: []uuid.UUID{id}},
			Limit: maxCaused, Content: true})
		out.Waiting = slices.DeleteFunc(waiting, func(m Listed) bool { return !m.isWaiting() })
		err = errors.Join(err, failed)
	}
	if err != nil || len(out.Seen)+len(out.Waiting) == 0 {
		return nil, err
	}
	return out, nil
}
