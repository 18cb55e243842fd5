package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The files looks*.go look for signs of trouble in what an inbox has stored. Each look is
// bounded, by an index or by a number of rows, and by the time that its context leaves.

// byIndex are the settings under which accept looks IDs up.
var byIndex = []string{"enable_seqscan", "enable_bitmapscan"}

const lookupPlanSQL = `explain (costs off)
select count(*) from firstseen.message_dedup d
where d.scope_id = 1 and d.message_id = any('{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002}'::uuid[])`

// lookupPlan gives the plan by which Postgres looks message IDs up, and whether that is by their primary key.
func (p *target) lookupPlan(ctx context.Context) (plan string, byKey bool, err error) {
	lines, err := lookAll(ctx, p, byIndex, pgx.RowTo[string], lookupPlanSQL)
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

// emptyID is a UUID that stands for "no ID" and was taken for one: every later message with it is a duplicate.
type emptyID struct {
	Handler, Tenant string
	ID              uuid.UUID
}

// emptyIDs finds the nil and the max UUID among the IDs that were seen, in up to 100 scopes. [identity.Rule] refuses
// them; they come from code that sets Message.ID itself.
func (p *target) emptyIDs(ctx context.Context) (found []emptyID, err error) {
	found, err = lookAll(ctx, p, []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"},
		pgx.RowToStructByPos[emptyID], emptyIDsSQL, p.Inbox, []uuid.UUID{uuid.Nil, uuid.Max})
	if err != nil {
		return nil, fmt.Errorf("look for empty message IDs in inbox %s: %w", p.Inbox, err)
	}
	return found, nil
}

// clashes are the conflicts of an inbox: copies under a known ID with another content.
type clashes struct {
	// Copies counts them, up to 20,000.
	Copies int64
	// Recent counts those of them that came within a day.
	Recent int64
	// Worst is the ID with most of them, and WorstCopies their number.
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

// clashes looks at the conflicts.
func (p *target) clashes(ctx context.Context) (clashes, error) {
	return oneByIndex[clashes](ctx, p, clashesSQL, p.Inbox, 20_000)
}

// oneByIndex reads one row, by an index; its zero value where there is none.
func oneByIndex[T any](ctx context.Context, p *target, sql string, args ...any) (found T, err error) {
	rows, err := lookAll(ctx, p, byIndex, pgx.RowToStructByPos[T], sql, args...)
	if err != nil {
		return found, fmt.Errorf("look into inbox %s: %w", p.Inbox, err)
	}
	if len(rows) > 0 {
		found = rows[0]
	}
	return found, nil
}

// lookAll reads all rows of a query, without some of the planner's ways.
func lookAll[T any](ctx context.Context, p *target, off []string, scan pgx.RowToFunc[T], sql string,
	args ...any) (found []T, err error) {
	err = p.lookWithout(ctx, off, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, p.inSchema(sql), args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, scan)
		return err
	})
	return found, err
}
