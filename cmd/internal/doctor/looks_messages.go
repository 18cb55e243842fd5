package doctor

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/identity"
)

// newest tells of the messages that the schema's inboxes processed last.
type newest struct {
	// Messages counts those of the inbox that were looked at, and Since is the time at which the first was received.
	Messages int64
	Since    time.Time
	// Untimed counts those of them with a timestamp that is no time of the years 1 to 9999.
	Untimed int64
	// Early counts those of them that were produced after they were received, by more than a minute: by a clock that
	// is wrong. Earliest is the most of one.
	Early    int64
	Earliest time.Duration
	// Refused counts the messages that came without a usable ID since then, by reason, up to Messages' limit.
	Refused map[identity.Reason]int64
}

const newestSQL = `
with newest as (
	select i.scope_id, i.received_at, case when t.sane then i.produced_at - i.received_at end as early,
		i.raw_timestamp is not null or not t.sane as untimed
	from firstseen.inbox i
	cross join lateral (select i.produced_at > '0001-01-01 00:00:00+00' and i.produced_at < '10000-01-01 00:00:00+00') t (sane)
	order by i.received_at desc, i.seq desc
	limit $2)
select count(*), coalesce(min(n.received_at), now() - interval '1 day'),
	count(*) filter (where n.untimed), count(*) filter (where n.early > interval '1 minute'), coalesce(extract(epoch from max(n.early)), 0)::float8
from newest n
join firstseen.scopes s using (scope_id)
where s.inbox = $1`

const refusedSQL = `
select d.reason, count(*)
from (select d.reason, d.scope_id from firstseen.dead_letters d where d.died_at >= $2 order by d.died_at desc, d.seq desc limit $3) d
join firstseen.scopes s using (scope_id)
where s.inbox = $1 and d.reason = any($4)
group by d.reason`

// newestFirst has the newest rows read through the primary keys of the inbox's days.
var newestFirst = []string{"enable_seqscan", "enable_bitmapscan", "enable_sort"}

// maxSeconds is the longest time.Duration: 292 years.
const maxSeconds = float64(math.MaxInt64/time.Second - 1)

// newest looks at the last messages of the schema, up to limit.
func (p *target) newest(ctx context.Context, limit int) (n newest, err error) {
	err = p.lookWithout(ctx, newestFirst, func(tx pgx.Tx) error {
		var early float64
		err := tx.QueryRow(ctx, p.inSchema(newestSQL), p.Inbox, limit).Scan(&n.Messages, &n.Since,
			&n.Untimed, &n.Early, &early)
		if err != nil {
			return err
		}
		n.Earliest = time.Duration(min(early, maxSeconds) * float64(time.Second))
		n.Refused, err = p.refused(ctx, tx, n.Since, limit)
		return err
	})
	if err != nil {
		return n, fmt.Errorf("look at the newest messages of inbox %s: %w", p.Inbox, err)
	}
	return n, nil
}

func (p *target) refused(ctx context.Context, tx pgx.Tx, since time.Time,
	limit int) (map[identity.Reason]int64, error) {
	rows, err := tx.Query(ctx, p.inSchema(refusedSQL), p.Inbox, since, limit, identity.Reasons())
	if err != nil {
		return nil, err
	}
	counts := map[identity.Reason]int64{}
	var reason identity.Reason
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&reason, &n}, func() error {
		counts[reason] = n
		return nil
	})
	return counts, err
}

// repeats tells how often the same content came under another ID.
type repeats struct {
	// Messages counts those that were compared: of 32 bytes to 64 KiB, since smaller ones are often the same by right.
	Messages int64
	// Repeated counts those of them that had topic, key and value of an earlier one, and an ID of their own.
	Repeated int64
}

const repeatsSQL = `
with newest as (
	select i.scope_id, i.topic, i.key, i.payload, i.message_id
	from firstseen.inbox i
	order by i.received_at desc, i.seq desc
	limit $2),
contents as (
	select count(*) as copies, count(distinct n.message_id) as ids
	from newest n
	join firstseen.scopes s using (scope_id)
	where s.inbox = $1 and octet_length(n.payload) between 32 and 65536
	group by n.scope_id, n.topic, n.key, sha256(n.payload))
select coalesce(sum(copies), 0)::bigint, coalesce(sum(ids - 1), 0)::bigint from contents`

// repeats compares the last messages of the schema, up to limit.
func (p *target) repeats(ctx context.Context, limit int) (r repeats, err error) {
	err = p.lookWithout(ctx, byIndex, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, p.inSchema(repeatsSQL), p.Inbox, limit).Scan(&r.Messages, &r.Repeated)
	})
	if err != nil {
		return r, fmt.Errorf("compare the newest messages of inbox %s: %w", p.Inbox, err)
	}
	return r, nil
}

// handlerAge says since when a handler has had a scope in an inbox, and whether it is at work.
type handlerAge struct {
	Inbox, Handler string
	Since          time.Time
	// Active says that some of the schema's newest messages are its.
	Active bool
}

const handlerAgesSQL = `
with active as (
	select distinct n.scope_id
	from (select i.scope_id from firstseen.inbox i order by i.received_at desc, i.seq desc limit $1) n)
select s.inbox, s.handler, min(s.created_at), bool_or(a.scope_id is not null)
from firstseen.scopes s
left join active a using (scope_id)
group by s.inbox, s.handler
order by 3, 1, 2
limit 1000`

// handlerAges lists the handlers of all inboxes of the schema, those that came first first, up to a thousand; the
// newest messages are up to limit.
func (p *target) handlerAges(ctx context.Context, limit int) (found []handlerAge, err error) {
	found, err = lookAll(ctx, p, byIndex, pgx.RowToStructByPos[handlerAge],
		handlerAgesSQL, limit)
	if err != nil {
		return nil, fmt.Errorf("list the handlers of schema %s: %w", p.Schema, err)
	}
	return found, nil
}

// countedOfDefault caps the rows of the inbox's default partition that are counted.
const countedOfDefault = 10_000

// strayRows counts the messages in the inbox's default partition, up to 10,000: their day had no partition when they
// came.
func (p *target) strayRows(ctx context.Context) (int64, error) {
	found, err := one[struct{ Rows int64 }](ctx, p,
		`select count(*) from (select from firstseen.inbox_default limit $1) d`, countedOfDefault)
	if err != nil {
		return 0, fmt.Errorf("count the rows of the inbox's default partition: %w", err)
	}
	return found.Rows, nil
}
