package doctor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// expired are answers to HTTP requests that nobody has deleted, counted up to 10,000, and what their table takes.
type expired struct {
	Expired int64
	Since   time.Time // the first of them expired
	Rows    int64     // of the table, by its statistics
	Bytes   int64     // with indexes and TOAST
}

const expiredSQL = `
with expired as (
	select i.expires_at
	from firstseen.idempotency i
	where i.expires_at < now() - make_interval(secs => $1) and (i.lease_until is null or i.lease_until <= now())
	order by i.expires_at
	limit 10000)
select (select count(*) from expired), coalesce((select min(expires_at) from expired), now()),
	greatest(c.reltuples, 0)::bigint, pg_total_relation_size(c.oid)
from pg_class c
where c.oid = 'firstseen.idempotency'::regclass`

// expired looks for answers that expired longer than wait ago.
func (p *target) expired(ctx context.Context, wait time.Duration) (expired, error) {
	return oneByIndex[expired](ctx, p, expiredSQL, wait.Seconds())
}

// newestRequests takes the $1 that expire last for the newest: no index has them by when they came.
const newestRequests = `
with newest as (
	select i.*
	from firstseen.idempotency i
	order by i.expires_at desc
	limit $1)`

// leftBehind are requests to a route whose process did not end them.
type leftBehind struct {
	Route    string
	Requests int64
	Since    time.Time // the first claim ended
}

const leftBehindSQL = newestRequests + `
select n.route, count(*), min(n.lease_until)
from newest n
where n.status is null and n.expires_at > now() and n.lease_until < now() - make_interval(secs => $2)
group by n.route
order by 2 desc, 1
limit 100`

// leftBehind looks at the newest requests, up to limit, for claims that ended longer than wait ago and that nobody has
// taken over.
func (p *target) leftBehind(ctx context.Context, wait time.Duration, limit int) ([]leftBehind, error) {
	return lookAll(ctx, p, byIndex, pgx.RowToStructByPos[leftBehind], leftBehindSQL, limit, wait.Seconds())
}

// freshKeys tells how often a route got the same request under another key, within five minutes.
type freshKeys struct {
	Route              string
	Requests, Repeated int64
}

const freshKeysSQL = newestRequests + `,
since as (
	select n.route, n.created_at - lag(n.created_at) over (
		partition by n.tenant, n.scope, n.route, n.fingerprint order by n.created_at) as since
	from newest n)
select s.route, count(*), count(*) filter (where s.since < interval '5 minutes')
from since s
group by s.route
order by 3 desc, 1
limit 100`

// freshKeys compares the newest requests, up to limit. A key that never comes again shows in no row, for a replay
// writes nothing; what is sent again under a new key has the fingerprint of the first. Their principal is not kept: of
// two who ask for the same at the same time it can't be told that they are two.
func (p *target) freshKeys(ctx context.Context, limit int) ([]freshKeys, error) {
	return lookAll(ctx, p, byIndex, pgx.RowToStructByPos[freshKeys], freshKeysSQL, limit)
}

// sharedKeys are keys that a route got from many callers.
type sharedKeys struct {
	Route   string
	Keys    int64
	Callers int64 // that had one of them, at most
}

const sharedKeysSQL = newestRequests + `,
shared as (
	select n.route, count(*) as callers
	from newest n
	group by n.route, n.key_hash
	having count(*) >= $2)
select s.route, count(*), max(s.callers)
from shared s
group by s.route
order by 3 desc, 1
limit 100`

// sharedKeys looks for keys that came from so many callers, at least, among the newest requests, up to limit. A row is
// one caller's.
func (p *target) sharedKeys(ctx context.Context, callers, limit int) ([]sharedKeys, error) {
	return lookAll(ctx, p, byIndex, pgx.RowToStructByPos[sharedKeys], sharedKeysSQL, limit, callers)
}

// idle are lanes of a handler with messages that came by HTTP, which nobody works on.
type idle struct {
	Handler, Topic string
	Lanes          int64
	Since          time.Time // the first of them was due
}

const idleSQL = `
select l.handler, l.topic, count(*), min(l.due_at)
from (
	select l.handler, l.topic, l.due_at
	from firstseen.lanes l
	where l.inbox = $1 and l."partition" = -1 and l.due_at < now() - make_interval(secs => $2)
		and not exists (
			select from firstseen.pauses p
			where p.inbox = l.inbox and (p.kind = 'handler' and p.name = l.handler or p.kind = 'topic' and p.name = l.topic))
	order by l.due_at
	limit 10000) l
group by l.handler, l.topic
order by 4, 1, 2`

// idle looks for lanes without a partition that have been due for longer than wait.
func (p *target) idle(ctx context.Context, wait time.Duration) ([]idle, error) {
	return lookAll(ctx, p, byIndex, pgx.RowToStructByPos[idle], idleSQL, p.Inbox, wait.Seconds())
}

// enqueued tells of the table that keeps messages that came by HTTP.
type enqueued struct {
	// Old counts those of the oldest that came before a time and are done, and Since is the first one's time.
	Old   int64
	Since time.Time
	Rows  int64 // of the table, by its statistics
	Bytes int64 // with participants, indexes and TOAST
}

const enqueuedSQL = `
with old as (
	select o.enqueued_at
	from (select * from firstseen.enqueued e where e.enqueued_at < $2 order by e.enqueued_at, e.enqueued_id limit $3) o
	where o.inbox = $1
		and not exists (select from firstseen.parked p where p.message_id = o.message_id)
		and not exists (select from firstseen.scopes s join firstseen.dead_letters d using (scope_id)
			where s.inbox = o.inbox and s.tenant = o.tenant and d.message_id = o.message_id))
select (select count(*) from old), coalesce((select min(enqueued_at) from old), now()), greatest(c.reltuples, 0)::bigint,
	pg_total_relation_size(c.oid) + pg_total_relation_size('firstseen.participants'::regclass)
from pg_class c
where c.oid = 'firstseen.enqueued'::regclass`

// enqueued looks at the oldest messages, up to limit, for those that came before a time and are done.
func (p *target) enqueued(ctx context.Context, before time.Time, limit int) (enqueued, error) {
	return oneByIndex[enqueued](ctx, p, enqueuedSQL, p.Inbox, before, limit)
}
