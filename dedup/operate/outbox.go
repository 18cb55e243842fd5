package operate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// hasOutbox says that messages of the inbox wait in the outbox first, where no relay has taken them yet.
func (in *Inbox) hasOutbox() bool { return in.db.Inbox == dedup.OutboxInbox }

// Outbox is the inbox that the outbox's messages lie in, in the same schema and over the same pool.
func (in *Inbox) Outbox() *Inbox { return Of(in.store.Sibling(dedup.OutboxInbox)).On(in.db.Pool) }

// waitingList is the list of an outbox's pending messages.
const waitingList = "o"

// waitingColumns are those of a message m that no relay has taken.
const waitingColumns = `m.outbox_id as seq, m.outbox_id as "offset", m.shard::int as "partition",
	m.added_at as received_at, m.added_at as produced_at, null::bigint as raw_timestamp, m.added_at as at, 0 as attempts, null::text as reason,
	null::text as error, null::uuid as lane, m.message_id, m.raw_id, m.topic, m.tenant, m.key, m.headers, m.payload`

// waitingScope stands for the scope of such a message, which has none yet.
const waitingScope = ` cross join lateral (select $1::text as inbox, ''::text as handler, m.tenant) s`

// outboxTopics skips through the outbox, from topic to topic; the last row has none.
const outboxTopics = `topics as (
	select (select min(o.topic) from firstseen.outbox o) as topic
	union all
	select (select min(o.topic) from firstseen.outbox o where o.topic > t.topic) from topics t where t.topic is not null)`

// waitingArms find an outbox's pending messages, each in the order of an index, or for parked ones as many as there
// are. from gives rows m with their scopes s, for each row r.
var waitingArms = []struct{ each, from string }{
	{`(with recursive ` + outboxTopics + `
	select t.topic, h.shard::smallint from topics t, generate_series(0, 15) h (shard)) r`,
		`(select ` + waitingColumns + `, m.due_at from firstseen.outbox m
		where m.topic = r.topic and m.shard = r.shard) m` + waitingScope},
	{`(select) r`, `(select ` + waitingColumns + `, m.due_at from firstseen.outbox_delayed m) m` + waitingScope},
	{`(select) r`, `(select p."offset" as seq, p."offset", p."partition", p.received_at, p.produced_at, p.raw_timestamp,
		p.parked_at as at, p.attempts, p.reason, p.error, p.lane, p.message_id, p.raw_id, p.topic, null::text as tenant,
		p.key, p.headers, p.payload, p.scope_id,
		(select l.due_at from firstseen.lanes l where l.scope_id = p.scope_id and l.lane = p.lane) as due_at
		from firstseen.parked p where p.attempts = 0) m join firstseen.scopes s using (scope_id)`},
}

// waiting lists an outbox's pending messages, the last added first.
func (in *Inbox) waiting(ctx context.Context, l Listing) (messages []Listed, next Cursor, err error) {
	sql, args, err := waitingStatement(in.db.Inbox, l)
	if err != nil {
		return nil, "", err
	}
	p := lists[StatusPending].paging(l)
	p.cursor = func(m *Listed) Cursor { return Cursor(waitingList + strconv.FormatInt(m.seq, 10)) }
	err = in.db.Look(ctx, byIndex,
		func(tx pgx.Tx) (err error) {
			messages, next, err = collectPage(ctx, tx, p, in.db.SQL(sql), args...)
			return err
		})
	return messages, next, err
}

func waitingStatement(inbox string, l Listing) (sql string, args []any, err error) {
	c := l.Filter.conditions(inbox, "m.received_at")
	if l.After != "" {
		seq, err := strconv.ParseInt(strings.TrimPrefix(string(l.After), waitingList), 10, 64)
		if err != nil || !strings.HasPrefix(string(l.After), waitingList) {
			return "", nil, cursorError(l.After)
		}
		c.add("m.seq < $%d", seq)
	}
	where := c.where()
	page := ` order by m.seq desc` + c.limit(l.Limit)
	content := "null::bytea, null::bytea, null::bytea"
	if l.Content {
		content = "m.key, m.headers, m.payload"
	}
	columns := `s.inbox, s.handler, s.tenant, ` + placeColumns + `, ` + content + `, m.received_at, m.attempts, m.seq, ` +
		bytesColumn + ` as bytes, 1 as state, m.at, m.reason, m.error, m.lane, m.due_at`
	var arms []string
	for _, a := range waitingArms {
		arms = append(arms, `(select m.* from `+a.each+` cross join lateral (select `+columns+` from `+a.from+where+page+
			`) m`+page+`)`)
	}
	return `select * from (` + strings.Join(arms, "\nunion all\n") + `) m` + page, c.args, nil
}

// OutboxBacklog counts an outbox's waiting messages and dead letters for one topic.
type OutboxBacklog struct {
	Topic string
	// Pending are messages that no attempt has failed on, Failed those with at least one that has. Delayed ones are not
	// to be sent before a time, and no backlog.
	Pending, Failed, Delayed int64
	// Dead are dead letters.
	Dead int64
	// Parked are those of the pending and failed ones that a relay has taken.
	Parked int64
	// OldestAt is the time since which the oldest message waits; zero where none does. One that was not to be sent
	// before a time waits from then on.
	OldestAt time.Time
	// Capped says that there are more than were counted.
	Capped bool
}

// Backlog counts the messages that are to be sent now.
func (b *OutboxBacklog) Backlog() int64 { return b.Pending + b.Failed }

// outboxBacklogSQL counts no more than $2 rows of a kind, or of a topic, in the order of the indexes.
const outboxBacklogSQL = `
with recursive ` + outboxTopics + `,` + waitingScopes + `,
found (topic, pending, failed, delayed, dead, parked, oldest) as (
	select t.topic, c.n, 0, 0, 0, 0, (
		select min(coalesce(f.due_at, f.added_at))
		from generate_series(0, 15) h (shard)
		cross join lateral (select * from firstseen.outbox o where o.topic = t.topic and o.shard = h.shard::smallint
			order by o.outbox_id limit 1) f)
	from topics t
	cross join lateral (select count(*) as n from (select from firstseen.outbox o where o.topic = t.topic limit $2) o) c
	where t.topic is not null
	union all
	select d.topic collate "C", count(*) filter (where d.due_at <= now()), 0, count(*) filter (where d.due_at > now()), 0, 0,
		min(d.due_at) filter (where d.due_at <= now())
	from (select * from firstseen.outbox_delayed o order by o.due_at limit $2) d
	group by d.topic
	union all
	select m.topic collate "C", count(*) filter (where m.attempts = 0), count(*) filter (where m.attempts > 0), 0, 0,
		count(*), min(m.produced_at)
	from (select p.* from parking
		join firstseen.scopes s using (scope_id)
		cross join lateral (select * from firstseen.parked p where p.scope_id = s.scope_id limit $2) p
		where s.inbox = $1
		limit $2) m
	group by m.topic
	union all
	select m.topic collate "C", 0, 0, 0, count(*), 0, null
	from (select d.* from burying
		join firstseen.scopes s using (scope_id)
		cross join lateral (select * from firstseen.dead_letters d where d.scope_id = s.scope_id limit $2) d
		where s.inbox = $1
		limit $2) m
	group by m.topic)
select f.topic, sum(f.pending)::bigint, sum(f.failed)::bigint, sum(f.delayed)::bigint, sum(f.dead)::bigint,
	sum(f.parked)::bigint, min(f.oldest), bool_or(greatest(f.pending + f.failed, f.delayed, f.dead) >= $2)
from found f
group by f.topic
order by f.topic`

// OutboxBacklog counts what waits in the outbox, by topic. It stays cheap however much that is: of each kind it counts
// BacklogCap and one more at most, and says so by Capped. OldestAt is then that of those counted.
func (in *Inbox) OutboxBacklog(ctx context.Context) ([]OutboxBacklog, error) {
	found, err := db.LookAll(ctx, in.db, byIndex, scanOutboxBacklog, outboxBacklogSQL, dedup.OutboxInbox, BacklogCap+1)
	if err != nil {
		return nil, fmt.Errorf("count the backlog of the outbox: %w", err)
	}
	return found, nil
}

func scanOutboxBacklog(row pgx.CollectableRow) (b OutboxBacklog, err error) {
	var oldest *time.Time
	err = row.Scan(&b.Topic, &b.Pending, &b.Failed, &b.Delayed, &b.Dead, &b.Parked, &oldest, &b.Capped)
	b.OldestAt = db.Deref(oldest)
	return b, err
}

// OutboxTopic is how it stands with the messages to one topic.
type OutboxTopic struct {
	OutboxBacklog
	// Sent counts those that relays have sent since the first one; those that were discarded are among them. Where the
	// backlog is capped it may be too high.
	Sent int64
}

// A shard's position counts the messages that relays have taken.
const takenSQL = `
select p.topic, sum(p.next_offset)::bigint
from firstseen.positions p
where p.consumer = $1 and p.next_offset is not null
group by p.topic`

// OutboxTopics tells of each topic that has a backlog, or that a relay has taken a message of, sorted; see
// OutboxBacklog.
func (in *Inbox) OutboxTopics(ctx context.Context) ([]OutboxTopic, error) {
	taken := map[string]int64{}
	rows, err := db.LookAll(ctx, in.db, nil, pgx.RowToStructByPos[struct {
		Topic string
		N     int64
	}], takenSQL, dedup.OutboxRelay)
	if err != nil {
		return nil, fmt.Errorf("count what relays have taken out of the outbox: %w", err)
	}
	for _, r := range rows {
		taken[r.Topic] = r.N
	}
	backlog, err := in.OutboxBacklog(ctx)
	if err != nil {
		return nil, err
	}
	var topics []OutboxTopic
	for _, b := range backlog {
		topics = append(topics, OutboxTopic{b, max(0, taken[b.Topic]-b.Parked-b.Dead)})
		delete(taken, b.Topic)
	}
	for topic, n := range taken {
		topics = append(topics, OutboxTopic{OutboxBacklog{Topic: topic}, n})
	}
	slices.SortFunc(topics, func(a, b OutboxTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return topics, nil
}
