package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// BacklogCap caps the rows of each kind that Backlog counts for a handler.
const BacklogCap = 100_000

// Backlog counts one handler's unfinished messages and its dead letters.
type Backlog struct {
	Handler string
	// Pending are parked messages that no attempt has failed on, Failed those with at least one that has.
	Pending, Failed int64
	// Dead are dead letters, Lanes the queues of what is parked.
	Dead, Lanes int64
	// OldestAt is the time since which the oldest parked message waits; zero where none is parked.
	OldestAt time.Time
	// Capped says that there are more than were counted.
	Capped bool
}

// Parked counts the messages that wait for a later attempt.
func (b *Backlog) Parked() int64 { return b.Pending + b.Failed }

const recentlyDeadSQL = `
select count(*) from (
	select from (select d.scope_id from firstseen.dead_letters d where d.died_at > now() - $2::interval order by d.died_at desc limit $3) d
	join firstseen.scopes s on s.scope_id = d.scope_id and s.inbox = $1) d`

// RecentlyDead counts the dead letters of the inbox that came within a time and are still there, of the newest
// BacklogCap of all inboxes.
func (in *Inbox) RecentlyDead(ctx context.Context, within time.Duration) (n int64, err error) {
	err = in.db.LookOne(ctx, recentlyDeadSQL, []any{in.db.Inbox, within, BacklogCap}, &n)
	return n, err
}

// waitingScopes skip through what is parked and what is dead, from scope to scope.
const waitingScopes = `
parking as (
	select (select min(p.scope_id) from firstseen.parked p) as scope_id
	union all
	select (select min(p.scope_id) from firstseen.parked p where p.scope_id > n.scope_id)
	from parking n where n.scope_id is not null),
burying as (
	select (select min(d.scope_id) from firstseen.dead_letters d) as scope_id
	union all
	select (select min(d.scope_id) from firstseen.dead_letters d where d.scope_id > n.scope_id)
	from burying n where n.scope_id is not null)`

// backlogSQL looks at no more than $2 rows of a table for each handler, in the order of the indexes. It starts from
// what waits, and skips from scope to scope: scopes without any cost nothing, and tenants may be many.
const backlogSQL = `
with recursive names as (
	select (select min(s.handler) from firstseen.scopes s where s.inbox = $1) as handler
	union all
	select (select min(s.handler) from firstseen.scopes s where s.inbox = $1 and s.handler > n.handler)
	from names n where n.handler is not null),` + waitingScopes + `,
with_parked as materialized (
	select s.handler, s.scope_id from parking join firstseen.scopes s using (scope_id) where s.inbox = $1),
with_dead as materialized (
	select s.handler, s.scope_id from burying join firstseen.scopes s using (scope_id) where s.inbox = $1)
select h.handler, p.pending, p.failed, d.dead, l.lanes, p.oldest, greatest(p.pending + p.failed, d.dead, l.lanes) >= $2
from names h
cross join lateral (
	select count(*) filter (where c.attempts = 0) as pending, count(*) filter (where c.attempts > 0) as failed,
		min(c.parked_at) as oldest
	from (select m.attempts, m.parked_at
		from with_parked s
		cross join lateral (select * from firstseen.parked p where p.scope_id = s.scope_id limit $2) m
		where s.handler = h.handler
		limit $2) c) p
cross join lateral (
	select count(*) as lanes
	from (select from firstseen.lanes l where l.inbox = $1 and l.handler = h.handler limit $2) c) l
cross join lateral (
	select count(*) as dead
	from (select from with_dead s
		cross join lateral (select from firstseen.dead_letters d where d.scope_id = s.scope_id limit $2) m
		where s.handler = h.handler
		limit $2) c) d
where h.handler is not null
order by h.handler`

// Backlog counts what waits in Postgres, for each handler of the inbox that was ever given a message. It stays cheap
// however much that is: of each kind it counts BacklogCap and one more at most, and says so by Capped. OldestAt is
// then that of those counted.
func (in *Inbox) Backlog(ctx context.Context) ([]Backlog, error) {
	found, err := db.LookAll(ctx, in.db, byIndex, scanBacklog, backlogSQL, in.db.Inbox, BacklogCap+1)
	if err != nil {
		return nil, fmt.Errorf("count the backlog of inbox %s: %w", in.db.Inbox, err)
	}
	return found, nil
}

func scanBacklog(row pgx.CollectableRow) (b Backlog, err error) {
	var oldest *time.Time
	err = row.Scan(&b.Handler, &b.Pending, &b.Failed, &b.Dead, &b.Lanes, &oldest, &b.Capped)
	b.OldestAt = db.Deref(oldest)
	return b, err
}
