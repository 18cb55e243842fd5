package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// RerunFilter picks processed messages of one handler.
type RerunFilter struct {
	// Filter's Handler is required. From and To bound when a message was received; where neither From nor IDs are
	// given the inbox is read back for two days. Its Reason must be empty.
	Filter
	// Places narrows to offsets of a partition of Filter.Topic.
	Places *PlaceRange
	// Ordering is the handler's: it says in which lane a message waits. Default dedup.OrderByKey.
	Ordering dedup.Ordering

	most int // messages; 0: maxRerun
}

// PlaceRange is the offsets of a partition from From up to, but not including, To; a To of 0 is no end.
type PlaceRange struct {
	Partition int32
	From, To  int64
}

// RerunPreview tells what a Rerun with the same filter would find.
type RerunPreview struct {
	Messages int
	// First are the first few, in the order of topic, partition and offset.
	First []RerunMessage
	// SearchedFrom is the time back to which the inbox was read; zero where IDs were asked for.
	SearchedFrom time.Time
	// Missing are the IDs that were asked for and can't be rerun, the first hundred.
	Missing []MissingRerun
}

// RerunMessage names a processed message.
type RerunMessage struct {
	ID         uuid.UUID
	Topic      string
	Partition  int32
	Offset     int64
	ReceivedAt time.Time

	seq  int64
	lane uuid.UUID
}

// MissingRerun is an ID that no processed message is kept of, and why.
type MissingRerun struct {
	ID uuid.UUID
	// Why is unseen (or forgotten), parked (not processed yet), dead (it can be redriven) or dropped (processed, and
	// not kept any more).
	Why string
}

// maxRerun bounds what one Rerun holds in memory.
const maxRerun = 500_000

// CountRerun looks for what Rerun would run again.
func (in *Inbox) CountRerun(ctx context.Context, f RerunFilter) (RerunPreview, error) {
	found, since, err := in.processed(ctx, f)
	if err != nil {
		return RerunPreview{}, fmt.Errorf("look for messages to rerun of inbox %s: %w", in.db.Inbox, err)
	}
	p := RerunPreview{Messages: len(found), First: found[:min(5, len(found))], SearchedFrom: since}
	if f.IDs != nil {
		p.Missing, err = in.missingRerun(ctx, f)
	}
	if err != nil {
		return RerunPreview{}, fmt.Errorf("look for messages to rerun of inbox %s: %w", in.db.Inbox, err)
	}
	return p, nil
}

// Rerun has the handler handle messages again that it has processed, and returns how many. What it does takes effect
// a second time: that is the purpose. Each message is parked as it came, with no attempts, and handled by whatever
// process runs the handler's lanes; later messages of its key wait for it. Messages of one key are handled in the
// order of their offsets.
//
// Of two reruns of one message at the same time one finds it gone. Large numbers go in many transactions, each of
// one partition and with its audit rows; on error those before it have taken effect, and their messages are in the
// count. A batch that is open on a partition is waited for. At most 500 000 messages go at once.
func (in *Inbox) Rerun(ctx context.Context, f RerunFilter, by By) (total int, err error) {
	if err = by.validate(); err == nil {
		total, err = in.rerunAll(ctx, f, by)
	}
	if err != nil {
		return total, fmt.Errorf("rerun messages of inbox %s: %w", in.db.Inbox, err)
	}
	return total, nil
}

func (in *Inbox) rerunAll(ctx context.Context, f RerunFilter, by By) (int, error) {
	found, _, err := in.processed(ctx, f)
	if err != nil {
		return 0, err
	}
	return byPartition(found, func(some []RerunMessage) (int, error) { return in.rerun(ctx, some, by) })
}

func (m RerunMessage) at() (topic string, partition int32) { return m.Topic, m.Partition }

const rerunSQL = `select moved, busy_scopes, busy_lanes::text[]
	from firstseen.rerun($1::timestamptz[], $2::bigint[], $3::text[]::uuid[], $4, $5)`

func (in *Inbox) rerun(ctx context.Context, messages []RerunMessage, by By) (int, error) {
	received, seqs := make([]time.Time, len(messages)), make([]int64, len(messages))
	lanes := make([]string, len(messages))
	for i, m := range messages {
		received[i], seqs[i], lanes[i] = m.ReceivedAt, m.seq, m.lane.String()
	}
	return in.giveBack(ctx, rerunSQL, received, seqs, lanes, by.Actor, by.Why)
}

func (f *RerunFilter) validate() error {
	var faults []error
	if f.Handler == "" {
		faults = append(faults, errors.New("handler: say whose messages to run again"))
	}
	if f.Reason != "" {
		faults = append(faults, errors.New("reason: what was processed has none"))
	}
	if f.Places != nil && f.Topic == "" {
		faults = append(faults, errors.New("topic: offsets are a topic's"))
	}
	return errors.Join(append(faults, f.Ordering.Validate())...)
}

const processedSQL = `
select m.message_id, m.topic, coalesce(m."partition", -1), coalesce(m."offset", m.seq), m.key, m.received_at, m.seq
from firstseen.scopes s`

// processed reads which messages a rerun is of, in the order of their places.
func (in *Inbox) processed(ctx context.Context, f RerunFilter) (found []RerunMessage, since time.Time, err error) {
	if err := f.validate(); err != nil {
		return nil, since, err
	}
	if err := in.knowsHandler(ctx, f.Handler); err != nil {
		return nil, since, err
	}
	if f.IDs != nil {
		found, err = in.processedByID(ctx, f)
	} else {
		found, since, err = in.processedSince(ctx, f)
	}
	if most := cmp.Or(f.most, maxRerun); err == nil && len(found) > most {
		err = &TooManyError{most}
	}
	slices.SortFunc(found, func(a, b RerunMessage) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition),
			cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.seq, b.seq))
	})
	return found, since, err
}

// TooManyError says that more messages match than can be rerun at once.
type TooManyError struct{ Most int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("more than %d messages match: narrow it down, and go in several steps", e.Most)
}

// UnknownHandlerError says that a handler has seen no message in an inbox, and which have.
type UnknownHandlerError struct {
	Handler string
	Known   []string
}

func (e *UnknownHandlerError) Error() string {
	return fmt.Sprintf("handler %s has seen no message in this inbox; those that have: %s", e.Handler,
		strings.Join(e.Known, ", "))
}

// knowsHandler guards against a mistyped name, which would find nothing.
func (in *Inbox) knowsHandler(ctx context.Context, name string) error {
	known, err := in.Handlers(ctx)
	if err != nil || slices.Contains(known, name) {
		return err
	}
	return &UnknownHandlerError{name, known}
}

// narrowed makes the filter's conditions on the inbox as m.
func (f *RerunFilter) narrowed(inbox string) *condition {
	c := f.conditions(inbox, "m.received_at")
	if p := f.Places; p != nil {
		c.add(`m."partition" = $%d`, p.Partition)
		c.add(`m."offset" >= $%d`, p.From)
		if p.To > 0 {
			c.add(`m."offset" < $%d`, p.To)
		}
	}
	return c
}

// collectRerun reads messages; those of a job within ctx's deadline.
func (in *Inbox) collectRerun(ctx context.Context, f *RerunFilter, sql string, args ...any) ([]RerunMessage, error) {
	if f.most > 0 {
		return db.LookAll(ctx, in.db, nil, f.scan, sql, args...)
	}
	return db.Collect(ctx, in.db, f.scan, sql, args...)
}

// processedByID goes from the IDs through the primary keys.
func (in *Inbox) processedByID(ctx context.Context, f RerunFilter) ([]RerunMessage, error) {
	c := f.narrowed(in.db.Inbox)
	return in.collectRerun(ctx, &f, processedSQL+`
join firstseen.message_dedup d on d.scope_id = s.scope_id
join firstseen.inbox m on m.received_at = d.first_seen_at and m.scope_id = d.scope_id and m.message_id = d.message_id`+
		strings.ReplaceAll(c.where(), "m.message_id = any", "d.message_id = any"), c.args...)
}

// processedSince reads the inbox back, one day after the other, the latest first.
func (in *Inbox) processedSince(ctx context.Context,
	f RerunFilter) (found []RerunMessage, since time.Time, err error) {
	var now time.Time
	if err := in.db.Pool.QueryRow(ctx, `select now()`).Scan(&now); err != nil {
		return nil, since, err
	}
	since, to := f.From, f.To
	if since.IsZero() {
		since = now.AddDate(0, 0, -2)
	}
	if to.IsZero() || to.After(now) {
		to = now.Add(time.Minute) // a transaction that committed since
	}
	most := cmp.Or(f.most, maxRerun)
	for to.After(since) && err == nil && len(found) <= most {
		f.From, f.To = to.Add(-time.Nanosecond).UTC().Truncate(day), to
		if f.From.Before(since) {
			f.From = since
		}
		c := f.narrowed(in.db.Inbox)
		var some []RerunMessage
		some, err = in.collectRerun(ctx, &f, processedSQL+` join firstseen.inbox m using (scope_id)`+c.where()+
			c.limit(most), c.args...)
		found, to = append(found, some...), f.From
	}
	return found, since, err
}

func (f *RerunFilter) scan(row pgx.CollectableRow) (r RerunMessage, err error) {
	var key []byte
	err = row.Scan(&r.ID, &r.Topic, &r.Partition, &r.Offset, &key, &r.ReceivedAt, &r.seq)
	r.lane = f.Ordering.Lane(&dedup.Message{ID: r.ID, Topic: r.Topic, Partition: r.Partition, Key: key})
	return r, err
}

// missingSQL tells of each ID where its message is, if it is not in the inbox: as far as it got in any tenant's scope.
const missingSQL = `
select w.id::text, min(case
	when d.message_id is null then 'unseen'
	when exists (select from firstseen.parked p where p.scope_id = d.scope_id and p.message_id = d.message_id) then 'parked'
	when exists (select from firstseen.dead_letters l where l.scope_id = d.scope_id and l.message_id = d.message_id) then 'dead'
	else 'dropped' end)
from unnest($3::text[]::uuid[]) w (id)
cross join firstseen.scopes s
left join firstseen.message_dedup d on d.scope_id = s.scope_id and d.message_id = w.id
where s.inbox = $1 and s.handler = $2 and $4 in ('', s.tenant)
group by w.id
having bool_and(not exists (
	select from firstseen.inbox m
	where m.received_at = d.first_seen_at and m.scope_id = d.scope_id and m.message_id = d.message_id))
order by w.id
limit 100`

func (in *Inbox) missingRerun(ctx context.Context, f RerunFilter) ([]MissingRerun, error) {
	return db.Collect(ctx, in.db, func(row pgx.CollectableRow) (m MissingRerun, err error) {
		var id string
		if err = row.Scan(&id, &m.Why); err == nil {
			m.ID, err = uuid.Parse(id)
		}
		return m, err
	}, missingSQL, in.db.Inbox, f.Handler, texts(f.IDs), f.Tenant)
}
