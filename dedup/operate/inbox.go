// Package operate is what people do with what an inbox holds, and what is done for them: look at messages and
// explain them, give dead letters back or discard them, publish them, run messages again, replay a range, move
// positions, pause, forget what is old, measure. An [Inbox] is opened from a pool ([Open]) or is that of a store
// ([Of]); each thing that is done is one of its methods, for the command line and the admin API alike. What is
// changed by hand is signed ([By]) and kept in the audit.
//
// In reading order: inbox.go; filter.go, page.go and stored.go (which messages, how they are paged and scanned),
// messages.go (lists by status), few.go (what is rare), groups.go (by their errors), outbox.go (and what waits in the outbox), redrive.go (and
// discard), jobs.go (the same, by whoever runs), jobs_preview.go and jobs_work.go, publish.go, rerun.go and rerun_job.go, conflicts.go; explain.go, sightings.go, place.go, requests.go and caused.go (what is known), tell.go (the
// same in sentences), unmask.go; positions.go, replay.go, pauses.go, holds.go; backlog.go and size.go (how much there is),
// retention.go (what is forgotten), audit.go (what was done).
package operate

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/migrations"
)

// Inbox is an inbox in the hands of an operator. It is safe for concurrent use.
type Inbox struct {
	store *dedup.Store
	db    *db.DB
}

// Open opens an inbox as [dedup.Attach] does: the rights of the role firstseen_operator are enough.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg dedup.Config) (*Inbox, error) {
	store, err := dedup.Attach(ctx, pool, cfg)
	if err != nil {
		return nil, err
	}
	return Of(store), nil
}

// Of is the inbox of a store.
func Of(store *dedup.Store) *Inbox {
	cfg := store.Config()
	return &Inbox{store: store, db: &db.DB{Pool: store.Pool(), Schema: migrations.Schema(cfg.Schema),
		Inbox: cfg.Inbox, Answer: cfg.AnswerTimeout}}
}

// On is the same inbox over another pool, for work that must not take connections from the store's own. The pool stays
// the caller's.
func (in *Inbox) On(pool *pgxpool.Pool) *Inbox {
	return &Inbox{store: in.store, db: &db.DB{Pool: pool, Schema: in.db.Schema, Inbox: in.db.Inbox,
		Answer: in.db.Answer}}
}

// Store is the one that the inbox was made of.
func (in *Inbox) Store() *dedup.Store { return in.store }

// Pool is the one that the inbox works over.
func (in *Inbox) Pool() *pgxpool.Pool { return in.db.Pool }

// Name is the inbox's.
func (in *Inbox) Name() string { return in.db.Inbox }

// By names who changes something by hand, and why. Both are required, and kept in the table audit.
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

// isBlank goes by ASCII's white space.
func isBlank(text string) bool { return strings.Trim(text, " \t\n\v\f\r") == "" }
