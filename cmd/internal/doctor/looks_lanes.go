package doctor

import (
	"context"
	"time"
)

// stuck are an inbox's lanes that nobody works on, or that those who do don't survive. Each is counted up to 10,000.
// Those that nobody works on with messages by HTTP are told apart: idle.
type stuck struct {
	// Overdue counts those that are due for longer than was asked and not paused; Since is the time from which the
	// first was due.
	Overdue int64
	Since   time.Time
	// Deadly counts those that were claimed at least three times since they last got anywhere; Claims is the most of
	// one.
	Deadly int64
	Claims int
}

const stuckSQL = `
with overdue as (
	select l.due_at
	from firstseen.lanes l
	where l.inbox = $1 and l."partition" is distinct from -1 and l.due_at < now() - make_interval(secs => $2)
		and not exists (
			select from firstseen.pauses p
			where p.inbox = l.inbox and (p.kind = 'handler' and p.name = l.handler
				or p.kind <> 'handler' and p.name = l.topic and p."partition" in (-1, l."partition")))
	order by l.due_at
	limit 10000),
deadly as (
	select l.claims
	from (select l.claims from firstseen.lanes l where l.inbox = $1 limit 100000) l
	where l.claims >= 3
	limit 10000)
select (select count(*) from overdue), coalesce((select min(due_at) from overdue), now()),
	(select count(*) from deadly), coalesce((select max(claims) from deadly), 0)`

// stuck looks for lanes that have been due for longer than wait, and for lanes that are claimed again and again.
func (p *target) stuck(ctx context.Context, wait time.Duration) (stuck, error) {
	return oneByIndex[stuck](ctx, p, stuckSQL, p.Inbox, wait.Seconds())
}

// waiting are the messages that a handler could not handle because of something that it needs: counted up to 10,000 in
// all.
type waiting struct {
	Handler  string
	Messages int64
	Since    time.Time // the first of them was parked
	Error    string    // of one of them
}

const waitingSQL = `
select s.handler, count(*), min(p.parked_at), max(p.error)
from (select scope_id, parked_at, error from firstseen.parked where reason = 'unavailable' limit 10000) p
join firstseen.scopes s using (scope_id)
where s.inbox = $1
group by s.handler
order by s.handler`

// waiting looks for messages that wait for an outage to end, or for a deployment, by handler.
func (p *target) waiting(ctx context.Context) ([]waiting, error) {
	return query[waiting](ctx, p, waitingSQL, p.Inbox)
}

// standingJob is one that has not ended and that nobody has worked on for some time, or a replay that an error has stopped.
type standingJob struct {
	ID, Kind, Actor, Inbox string
	Since                  time.Time
	Done                   int64
	Stopped                string // by what
}

const standingJobsSQL = `
select j.job_id::text, j.kind, j.actor, j.inbox, coalesce(j.worked_at, j.created_at) as since, j.done,
	case j.state when 'paused' then j.error else '' end as stopped
from firstseen.jobs j
where j.finished_at is null and (j.kind = 'replay' and j.state = 'paused' and j.error is not null
	or j.state <> 'paused' and coalesce(j.worked_at, j.created_at) < now() - make_interval(secs => $1)
		and not (j.kind = 'replay' and exists ( -- its turn comes after that one
			select from firstseen.jobs o
			where o.inbox = j.inbox and o.kind = 'replay' and o.worked_at > now() - make_interval(secs => $1))))
order by since
limit 10`

// standingJobs are the first of those of all inboxes: any process of the schema works on them.
func (p *target) standingJobs(ctx context.Context, wait time.Duration) ([]standingJob, error) {
	return query[standingJob](ctx, p, standingJobsSQL, wait.Seconds())
}

// publication tells how far the dead letters of an inbox are published. Each is counted up to 10,000.
type publication struct {
	// Waiting counts those that have waited for longer than was asked, and Since is the time at which the first died.
	Waiting int64
	Since   time.Time
	// Refused counts the newest ones that their broker never takes.
	Refused int64
}

const publicationSQL = `
with waiting as (
	select d.died_at
	from firstseen.dead_letters d
	join firstseen.scopes s using (scope_id)
	where s.inbox = $1 and d.published_at is null and d.died_at < now() - make_interval(secs => $2)
	order by d.died_at, d.seq
	limit 10000),
newest as (
	select d.published_at
	from (select d.scope_id, d.published_at from firstseen.dead_letters d order by d.died_at desc, d.seq desc limit 10000) d
	join firstseen.scopes s using (scope_id)
	where s.inbox = $1)
select (select count(*) from waiting), coalesce((select min(died_at) from waiting), now()),
	(select count(*) from newest where published_at = 'infinity')`

// publication looks for dead letters that are not in the dead letter topic and died longer than wait ago.
func (p *target) publication(ctx context.Context, wait time.Duration) (publication, error) {
	return oneByIndex[publication](ctx, p, publicationSQL, p.Inbox, wait.Seconds())
}
