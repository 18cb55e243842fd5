package dedup

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// What follows, to the end of the files doctor*.go, looks for signs of trouble in what an inbox has stored. Each look is
// bounded, by an index or by a number of rows, and by the time that its context leaves.

// byIndex are the settings under which accept looks IDs up.
var byIndex = []string{"enable_seqscan", "enable_bitmapscan"}

const lookupPlanSQL = `explain (costs off)
select count(*) from firstseen.message_dedup d
where d.scope_id = 1 and d.message_id = any('{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002}'::uuid[])`

// LookupPlan gives the plan by which Postgres looks message IDs up, and whether that is by their primary key.
func (s *Store) LookupPlan(ctx context.Context) (plan string, byKey bool, err error) {
	lines, err := db.LookAll(ctx, s.db, byIndex, pgx.RowTo[string], lookupPlanSQL)
	if err != nil {
		return "", false, fmt.Errorf("explain the look-up of message IDs: %w", err)
	}
	plan = strings.Join(lines, "\n")
	_, condition, found := strings.Cut(plan, "Index Cond:")
	byKey = found && strings.Contains(plan, "using message_dedup_pkey on message_dedup") &&
		strings.Contains(condition, "scope_id =") && strings.Contains(condition, "message_id = ANY")
	return plan, byKey, nil
}

const emptyIDsSQL = `
select s.handler, s.tenant, d.message_id
from firstseen.scopes s
join firstseen.message_dedup d on d.scope_id = s.scope_id and d.message_id = any($2)
where s.inbox = $1
limit 100`

// EmptyID is a UUID that stands for "no ID" and was taken for one: every later message with it is a duplicate.
type EmptyID struct {
	Handler, Tenant string
	ID              uuid.UUID
}

// EmptyIDs finds the nil and the max UUID among the IDs that were seen, in up to 100 scopes. [Identity] refuses them; they
// come from code that sets Message.ID itself.
func (s *Store) EmptyIDs(ctx context.Context) (found []EmptyID, err error) {
	found, err = db.LookAll(ctx, s.db, []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"}, pgx.RowToStructByPos[EmptyID], emptyIDsSQL, s.cfg.Inbox, []uuid.UUID{uuid.Nil, uuid.Max})
	if err != nil {
		return nil, fmt.Errorf("look for empty message IDs in inbox %s: %w", s.cfg.Inbox, err)
	}
	return found, nil
}

// Clashes are the conflicts of an inbox: copies under a known ID with another content.
type Clashes struct {
	// Copies is how many there are, counted up to 20,000.
	Copies int64
	// Recent is how many of them came within a day.
	Recent int64
	// Worst is the ID with most of them, and WorstCopies how many it has.
	Worst       uuid.UUID
	WorstCopies int64
}

const clashesSQL = `
with clash as (
	select c.message_id, c.seen_at
	from firstseen.scopes s
	cross join lateral (select * from firstseen.conflicts c where c.scope_id = s.scope_id limit $2) c
	where s.inbox = $1
	limit $2),
worst as (select message_id, count(*) as n from clash group by message_id order by n desc, message_id limit 1)
select (select count(*) from clash), (select count(*) from clash where seen_at > now() - interval '1 day'), w.message_id, w.n
from worst w`

// Clashes looks at the conflicts.
func (s *Store) Clashes(ctx context.Context) (c Clashes, err error) {
	err = s.lookOne(ctx, clashesSQL, []any{s.cfg.Inbox, 20_000}, &c.Copies, &c.Recent, &c.Worst, &c.WorstCopies)
	return c, err
}

// lookOne reads one row of the store's schema; no row leaves what into points to alone.
func (s *Store) lookOne(ctx context.Context, sql string, args []any, into ...any) error {
	err := s.db.Look(ctx, byIndex, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.db.SQL(sql), args...)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, into, func() error { return nil })
		return err
	})
	if err != nil {
		return fmt.Errorf("look into inbox %s: %w", s.cfg.Inbox, err)
	}
	return nil
}

// StatedPosition is a position as it is stored.
type StatedPosition struct {
	Topic     string
	Partition int32
	// Next is the offset to process next; -1 where it was never set.
	Next    int64
	TopicID uuid.UUID // zero: none
	// LeaderEpoch is that of the last message before Next; nil: not known.
	LeaderEpoch *int32
	Epoch       int64
	// Fruitless is how often the position has been acquired since it last moved.
	Fruitless int
	Owner     string
	UpdatedAt time.Time
}

const positionsSQL = `
select topic, "partition", coalesce(next_offset, -1), coalesce(topic_id, '00000000-0000-0000-0000-000000000000'::uuid),
	case when leader_epoch_at = next_offset then leader_epoch end, epoch,
	fruitless, coalesce(owner, ''), updated_at
from firstseen.positions
where consumer = $1
order by topic, "partition"
limit 100000`

// Positions lists a consumer's positions, sorted.
func (s *Store) Positions(ctx context.Context, consumer string) (found []StatedPosition, err error) {
	found, err = db.LookAll(ctx, s.db, nil, pgx.RowToStructByPos[StatedPosition], positionsSQL, consumer)
	if err != nil {
		return nil, fmt.Errorf("list the positions of %s: %w", consumer, err)
	}
	return found, nil
}
