package operate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// DeadLetter is a message that was given up: byte for byte as it came, with why.
type DeadLetter struct {
	Inbox, Handler string
	// Message is as a handler would get it. Its Tenant completes the scope.
	Message dedup.Message
	// ReceivedAt is when its ID was first seen, DiedAt when it was given up, the last time.
	ReceivedAt, DiedAt time.Time
	// Attempts counts its handler's failures since it was last redriven.
	Attempts int
	// Reason is a short code and Error the text of the last failure, empty where there was none.
	Reason, Error string
}

var deadSQL = `
select s.inbox, s.handler, s.tenant, ` + messageColumns + `,
	m.received_at, m.died_at, m.attempts, m.reason, m.error
from firstseen.dead_letters m
join firstseen.scopes s using (scope_id)`

func scanDead(row pgx.CollectableRow) (d DeadLetter, err error) {
	var content contentRow
	var text *string
	err = row.Scan(append(append([]any{&d.Inbox, &d.Handler, &d.Message.Tenant}, content.columns(&d.Message)...),
		&d.ReceivedAt, &d.DiedAt, &d.Attempts, &d.Reason, &text)...)
	if err != nil {
		return d, err
	}
	d.Error = db.Deref(text)
	return d, content.into(&d.Message)
}

// Fate is the outcome of a dead letter's publication.
type Fate uint8

// What can become of it.
const (
	Unpublished   Fate = iota // not yet: it is handed out again
	Published                 // it is where it was to go
	Unpublishable             // it is refused in every form, and stays in the table only
)

// A chunk is published by one transaction: so much, and at least one dead letter.
const (
	chunkRows  = 500
	chunkBytes = 512 << 10
)

// PublishDead hands unpublished dead letters of the inbox to publish, those that died first first and a bounded number
// of them, and notes in the same transaction the fate of each that it answers. It returns how many it handed out: 0
// where nothing is left but what others have at work. Any number of processes may call it at once.
//
// What died in a transaction that commits late is handed out then. After a crash, or an error, between publish and the
// commit a dead letter is handed out again, as the same message. One that is redriven and dies again is unpublished
// again.
//
// publish may take as long as limit: then its context ends, and a little later Postgres ends the transaction of a
// process that hangs. Who redrives or discards a dead letter that is at work waits for that long. The fates are noted
// also beside an error, which PublishDead returns.
func (in *Inbox) PublishDead(ctx context.Context, limit time.Duration,
	publish func(context.Context, []DeadLetter) ([]Fate, error)) (n int, err error) {
	var fault error
	err = in.db.InTxWithin(ctx, limit+in.db.Answer, func(ctx context.Context, tx pgx.Tx) error {
		taken, letters, err := in.takeUnpublished(ctx, tx, limit)
		if n = len(letters); n == 0 || err != nil {
			return err
		}
		publishing, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var fates []Fate
		fates, fault = publish(publishing, letters)
		return in.notePublished(ctx, tx, taken, fates)
	})
	if err := errors.Join(fault, err); err != nil {
		return n, fmt.Errorf("publish dead letters of inbox %s: %w", in.db.Inbox, err)
	}
	return n, nil
}

// unpublished is a dead letter that this transaction holds.
type unpublished struct {
	scope int32
	id    uuid.UUID
	size  int
}

const takeUnpublishedSQL = `
select d.scope_id, d.message_id,
	coalesce(octet_length(d.key), 0) + coalesce(octet_length(d.payload), 0) + coalesce(octet_length(d.headers), 0)
		+ coalesce(octet_length(d.error), 0)
from firstseen.dead_letters d
where d.published_at is null
  and d.scope_id = any (array(select scope_id from firstseen.scopes where inbox = $1))
order by d.died_at, d.seq
limit $2
for no key update of d skip locked`

var loadUnpublishedSQL = deadSQL + `
join unnest($1::int[], $2::text[]::uuid[]) with ordinality u (scope_id, message_id, ordinal) using (scope_id, message_id)
order by u.ordinal`

// takeUnpublished locks more than it loads where the letters are large; the rest is let go with the transaction.
func (in *Inbox) takeUnpublished(ctx context.Context, tx pgx.Tx,
	limit time.Duration) ([]unpublished, []DeadLetter, error) {
	idle := strconv.FormatInt((limit + 5*time.Second).Milliseconds(), 10)
	if _, err := tx.Exec(ctx, db.LimitSQL, idle); err != nil {
		return nil, nil, err
	}
	rows, err := tx.Query(ctx, in.db.SQL(takeUnpublishedSQL), in.db.Inbox, chunkRows)
	if err != nil {
		return nil, nil, err
	}
	taken, err := pgx.CollectRows(rows, scanUnpublished)
	if err != nil || len(taken) == 0 {
		return nil, nil, err
	}
	taken = taken[:inBytes(taken, chunkBytes)]
	scopes, ids := keysOf(taken)
	if rows, err = tx.Query(ctx, in.db.SQL(loadUnpublishedSQL), scopes, ids); err != nil {
		return nil, nil, err
	}
	letters, err := pgx.CollectRows(rows, scanDead)
	if err == nil && len(letters) != len(taken) {
		err = fmt.Errorf("%d of %d locked dead letters are there", len(letters), len(taken))
	}
	return taken, letters, err
}

func scanUnpublished(row pgx.CollectableRow) (u unpublished, err error) {
	return u, row.Scan(&u.scope, &u.id, &u.size)
}

// inBytes counts the first that have no more than limit bytes together, at least one.
func inBytes(taken []unpublished, limit int) int {
	for i, u := range taken {
		if limit -= u.size; limit < 0 {
			return max(i, 1)
		}
	}
	return len(taken)
}

func keysOf(taken []unpublished) (scopes []int32, ids []string) {
	for _, u := range taken {
		scopes, ids = append(scopes, u.scope), append(ids, u.id.String())
	}
	return scopes, ids
}

const notePublishedSQL = `
update firstseen.dead_letters d
set published_at = case when f.publishable then clock_timestamp() else 'infinity' end
from unnest($1::int[], $2::text[]::uuid[], $3::boolean[]) f (scope_id, message_id, publishable)
where d.scope_id = f.scope_id and d.message_id = f.message_id`

func (in *Inbox) notePublished(ctx context.Context, tx pgx.Tx, taken []unpublished, fates []Fate) error {
	var done []unpublished
	var publishable []bool
	for i, fate := range fates {
		if fate != Unpublished {
			done, publishable = append(done, taken[i]), append(publishable, fate == Published)
		}
	}
	if len(done) == 0 {
		return nil
	}
	scopes, ids := keysOf(done)
	_, err := tx.Exec(ctx, in.db.SQL(notePublishedSQL), scopes, ids, publishable)
	return err
}
