package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// pauseColumns are the pause's own in the table.
func pauseColumns(p dedup.Pause) (kind, name string, partition int32) {
	switch p.Kind {
	case dedup.PauseHandler:
		return string(p.Kind), p.Handler, -1
	case dedup.PausePartition:
		return string(p.Kind), p.Topic, p.Partition
	}
	return string(p.Kind), p.Topic, -1
}

// Pause pauses something, and says whether it was not paused before; if it was, what is known of the first one
// stands. Whether there is a thing of that name is not looked at. Processes obey within handlers.Config.PausePoll; a
// batch that is open is finished.
func (in *Inbox) Pause(ctx context.Context, p dedup.Pause, by By) (bool, error) {
	return in.changePause(ctx, `select firstseen.pause($1, $2, $3, $4, $5, $6)`, "pause", p, by)
}

// Resume ends a pause, and says whether there was one.
func (in *Inbox) Resume(ctx context.Context, p dedup.Pause, by By) (bool, error) {
	return in.changePause(ctx, `select firstseen.resume($1, $2, $3, $4, $5, $6)`, "resume", p, by)
}

func (in *Inbox) changePause(ctx context.Context, sql, verb string, p dedup.Pause, by By) (changed bool, err error) {
	kind, name, partition := pauseColumns(p)
	if err = errors.Join(p.Validate(), by.validate()); err == nil {
		err = in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, in.db.SQL(sql), in.db.Inbox, kind, name, partition, by.Actor,
				by.Why).Scan(&changed)
		})
	}
	if err != nil {
		return false, fmt.Errorf("%s %s in inbox %s: %w", verb, p, in.db.Inbox, err)
	}
	return changed, nil
}

// Pauses lists what is paused in the inbox.
func (in *Inbox) Pauses(ctx context.Context) ([]dedup.Pause, error) { return in.store.Pauses(ctx) }

// pausableSQL goes by positions for topics: which inbox a consumer's are for is not kept.
const pausableSQL = `
select distinct handler from firstseen.scopes where $2 = 'handler' and inbox = $1
union all
select distinct topic from firstseen.positions where $2 = 'topic'
union all
select distinct topic || '/' || "partition" from firstseen.positions where $2 = 'partition'
order by 1`

// Pausable lists the names of a kind that have been seen: handlers of the inbox, and topics and partitions that any
// consumer has a position in. Others can be paused too, before they are there.
func (in *Inbox) Pausable(ctx context.Context, kind dedup.PauseKind) ([]string, error) {
	names, err := db.Collect(ctx, in.db, pgx.RowTo[string], pausableSQL, in.db.Inbox, string(kind))
	if err != nil {
		return nil, fmt.Errorf("names of kind %s in inbox %s: %w", kind, in.db.Inbox, err)
	}
	return names, nil
}
