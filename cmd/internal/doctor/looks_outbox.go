package doctor

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
)

// twins tells how often a topic got the same content under another ID, within five minutes.
type twins struct {
	Topic              string
	Messages, Repeated int64
}

const twinsSQL = `
with newest as (
	select m.topic collate "C" as topic, s.tenant, m.key, m.payload, m.produced_at as at
	from (select * from firstseen.inbox i order by i.received_at desc, i.seq desc limit $2) m
	join firstseen.scopes s using (scope_id)
	where s.inbox = $1
	union all
	select o.topic, o.tenant, o.key, o.payload, o.added_at
	from (select * from firstseen.outbox o order by o.topic desc, o.shard desc, o.outbox_id desc limit $2) o),
since as (
	select n.topic, n.at - lag(n.at) over (
		partition by n.topic, n.tenant, n.key, sha256(n.payload) order by n.at) as since
	from newest n
	where n.payload is not null)
select s.topic, count(*), count(*) filter (where s.since < interval '5 minutes')
from since s
group by s.topic
order by 3 desc, 1
limit 100`

// twins looks at the newest messages of all inboxes, up to limit, and as many that wait in the outbox.
func (p *target) twins(ctx context.Context, limit int) ([]twins, error) {
	return lookAll(ctx, p, byIndex, pgx.RowToStructByPos[twins], twinsSQL, dedup.OutboxInbox, limit)
}

// outboxSize is what the table outbox takes, and what is in it, counted up to 100,000.
type outboxSize struct {
	Bytes, Rows int64
	More        bool
	RowBytes    int64 // of one, by some of them, with its index; at least a page's worth of nothing
}

const outboxSizeSQL = `
select pg_total_relation_size('firstseen.outbox'), least(c.n, 100000), c.n > 100000, coalesce(w.bytes, 0)
from (select count(*) as n from (select from firstseen.outbox limit 100001) o) c,
	(select avg(pg_column_size(o.*) + 100)::bigint as bytes from (select * from firstseen.outbox limit 1000) o) w`

func (p *target) outboxSize(ctx context.Context) (outboxSize, error) {
	return one[outboxSize](ctx, p, outboxSizeSQL)
}
