package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// ErrorGroup are messages that have failed alike: of one handler, for one reason, with errors that differ in numbers
// only.
type ErrorGroup struct {
	Handler string
	// Reason is the code of the last failure; empty: none has failed yet.
	Reason string
	// Error is the text, its first 300 characters, with # for numbers and UUIDs.
	Error string
	// Count counts dead letters; or lanes, by the message that each waits for.
	Count int
	// OldestAt and NewestAt are when the first and the last of them died, or was parked.
	OldestAt, NewestAt time.Time
	// NextAt is when the first of the lanes is tried next; zero for dead letters.
	NextAt time.Time
	// Example is the ID of the newest of them.
	Example uuid.UUID
}

// How many messages are looked at for groups: of all dead letters the newest, of each handler's lanes the first that are
// due; and how many groups are given.
const (
	GroupLooks = 10_000
	maxGroups  = 100
)

// alike is what errors have in common that differ in numbers only.
const alike = `regexp_replace(regexp_replace(left(coalesce(m.error, ''), 300),
	'\m[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\M', '#', 'g'), '[0-9]+', '#', 'g')`

// newestDead looks back from the newest letter of the schema, as far as a parameter says; moreDead says whether there are
// letters beyond.
const (
	newestDead = `(select * from firstseen.dead_letters d order by d.died_at desc, d.seq desc limit $%d) m`
	moreDead   = `exists (select from firstseen.dead_letters d order by d.died_at desc, d.seq desc offset $%d limit 1)`
)

const deadGroupsSQL = `
select g.handler, g.reason, g.alike, count(*), min(g.at), max(g.at), null::timestamptz, (array_agg(g.message_id order by g.at desc))[1],
	false
from (select s.handler, m.reason, ` + alike + ` as alike, m.died_at as at, m.message_id
	from %s join firstseen.scopes s using (scope_id)%s) g
group by g.handler, g.reason, g.alike
order by count(*) desc, g.handler, g.reason, g.alike
limit $%d`

// DeadGroups groups the dead letters that a filter picks by handler and error, the most first, up to 100 groups. more says
// that there are more letters than were looked at: the newest GroupLooks of the schema.
func (in *Inbox) DeadGroups(ctx context.Context, f Filter) (groups []ErrorGroup, more bool, err error) {
	c := f.conditions(in.db.Inbox, "m.died_at")
	where := c.where()
	c.args = append(c.args, GroupLooks, maxGroups)
	sql := fmt.Sprintf(deadGroupsSQL, fmt.Sprintf(newestDead, len(c.args)-1), where, len(c.args))
	if groups, _, err = in.groups(ctx, sql, c.args...); err == nil {
		err = in.db.LookOne(ctx, `select `+fmt.Sprintf(moreDead, 1), []any{GroupLooks}, &more)
	}
	if err != nil {
		return nil, false, fmt.Errorf("group dead letters of inbox %s: %w", in.db.Inbox, err)
	}
	return groups, more, nil
}

const laneGroupsSQL = `
with recursive names as (
	select (select min(s.handler) from firstseen.scopes s where s.inbox = $1) as handler
	union all
	select (select min(s.handler) from firstseen.scopes s where s.inbox = $1 and s.handler > n.handler)
	from names n where n.handler is not null)
select g.handler, g.reason, g.alike, count(*), min(g.at), max(g.at), min(g.due_at), (array_agg(g.message_id order by g.at desc))[1],
	bool_or(g.more)
from (
	select n.handler, coalesce(m.reason, '') as reason, ` + alike + ` as alike, m.parked_at as at, l.due_at, m.message_id,
		count(*) over (partition by n.handler) >= $2 as more
	from names n
	cross join lateral (select * from firstseen.lanes l where l.inbox = $1 and l.handler = n.handler
		order by l.due_at limit $2) l
	cross join lateral (select * from firstseen.parked p where p.scope_id = l.scope_id and p.lane = l.lane
		order by p."offset", p.message_id limit 1) m
	where n.handler is not null and $4 in ('', n.handler)) g
group by g.handler, g.reason, g.alike
order by count(*) desc, g.handler, g.reason, g.alike
limit $3`

// LaneGroups groups the inbox's lanes, or those of one handler (empty: of all), by the error of the message that each
// waits for, the most first, up to 100 groups. more says that there are more lanes than were looked at: of each handler
// the first GroupLooks by when they are due.
func (in *Inbox) LaneGroups(ctx context.Context, handler string) (groups []ErrorGroup, more bool, err error) {
	groups, more, err = in.groups(ctx, laneGroupsSQL, in.db.Inbox, GroupLooks, maxGroups, handler)
	if err != nil {
		return nil, false, fmt.Errorf("group lanes of inbox %s: %w", in.db.Inbox, err)
	}
	return groups, more, nil
}

func (in *Inbox) groups(ctx context.Context, sql string, args ...any) (groups []ErrorGroup, more bool, err error) {
	groups, err = db.LookAll(ctx, in.db, byIndex, func(row pgx.CollectableRow) (g ErrorGroup, err error) {
		var next *time.Time
		var capped bool
		err = row.Scan(&g.Handler, &g.Reason, &g.Error, &g.Count, &g.OldestAt, &g.NewestAt, &next, &g.Example, &capped)
		g.NextAt, more, g.Error = db.Deref(next), more || capped, strings.TrimSpace(g.Error)
		return g, err
	}, sql, args...)
	return groups, more, err
}
