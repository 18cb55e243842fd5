package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Size is the space that a store's schema takes, all inboxes together. Bytes are those of the files, with indexes and
// TOAST; rows are estimates.
type Size struct {
	// At is the database's time.
	At time.Time
	// Used is the bytes of all databases of the server that the role may connect to. The WAL comes on top.
	Used int64
	// Tables are message_dedup, inbox (all days), parked (with lanes), dead_letters, idempotency (HTTP requests),
	// enqueued (what only messages by HTTP have, with participants) and rest, in this order.
	Tables []TableSize
	// Scopes are the shares of message_dedup, the largest first: those that the statistics know, a hundred or so.
	// ScopesAt is when the statistics were taken; zero: from a sample of a thousand pages, just now.
	Scopes   []ScopeSize
	ScopesAt time.Time
	// IDIndex is the primary key of message_dedup, which every message is looked up in.
	IDIndex IndexSize
	// FirstDay and LastDay are the days (UTC) of the inbox that hold rows; zero where none does.
	FirstDay, LastDay time.Time
	// Began is when the first scope was made: no ID is older.
	Began  time.Time
	Growth Growth
}

// TableSize is one table, or several that belong together.
type TableSize struct {
	Name string
	// Rows is scaled from the statistics by the file's size, as the planner does it; where there are none yet, from
	// the first pages.
	Rows  int64
	Bytes int64
}

// ScopeSize is one scope's share of the message IDs.
type ScopeSize struct {
	Inbox, Handler, Tenant string
	Rows                   int64
	Share                  float64 // of all IDs, 0 to 1
}

// IndexSize compares an index with one that is made anew of the same rows.
type IndexSize struct {
	Bytes, Fresh int64
}

// Bloat is the index's size in sizes of a fresh one. IDs in random order (version 4) keep it at about 1.4, which is no
// fault. It is 0 where nothing is known.
func (i IndexSize) Bloat() float64 {
	if i.Fresh == 0 {
		return 0
	}
	return float64(i.Bytes) / float64(i.Fresh)
}

// Growth is a day's growth, the mean over From to To. The zero Growth is not known: the inbox has no whole day yet,
// and has had messages for less than an hour.
type Growth struct {
	From, To time.Time
	// IDs is message IDs a day, one for each handler that a message goes to: estimated rows of the inbox's days.
	IDs int64
	// IDBytes is these IDs by what one takes now, InboxBytes what the inbox's days take, exactly.
	IDBytes, InboxBytes int64
}

// sizeLimit ends the queries of one Size.
const sizeLimit = "15s"

// sizeTries limits the tries where a database of the server is dropped meanwhile, whose size is asked too: then that
// object is not defined.
const sizeTries = 5

// Size measures what is kept. It reads statistics, sizes of files and a bounded number of pages, never a whole table.
func (in *Inbox) Size(ctx context.Context) (size Size, err error) {
	measure := func(ctx context.Context, tx pgx.Tx) error {
		if err := limitTx(ctx, tx, "1s", sizeLimit); err != nil {
			return err
		}
		size, err = in.size(ctx, tx)
		return err
	}
	for range sizeTries {
		if err = in.db.InTx(ctx, measure); !failure.NoObject(err) {
			break
		}
	}
	if err != nil {
		return Size{}, fmt.Errorf("measure schema %s: %w", string(in.db.Schema), err)
	}
	return size, nil
}

// limitTx limits how long the transaction's statements wait for locks, and how long they take.
func limitTx(ctx context.Context, tx pgx.Tx, lock, statement string) error {
	_, err := tx.Exec(ctx, `select set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`,
		lock, statement)
	return err
}

func (in *Inbox) size(ctx context.Context, tx pgx.Tx) (Size, error) {
	var size Size
	err := tx.QueryRow(ctx, in.db.SQL(usedSQL)).Scan(&size.At, &size.Used, &size.Began)
	if err != nil {
		return size, err
	}
	relations, err := in.relations(ctx, tx)
	if err != nil {
		return size, err
	}
	size.add(relations)
	dedup := size.Tables[0]
	if size.IDIndex.Bytes, err = idIndexBytes(ctx, tx, in.db.SQL(idIndexSQL)); err != nil {
		return size, err
	}
	size.IDIndex.Fresh = freshIDIndex(dedup.Rows)
	if err := in.scopeSizes(ctx, tx, &size); err != nil {
		return size, err
	}
	first, err := in.firstReceived(ctx, tx, size.FirstDay)
	size.Growth = growth(relations, size.At, first)
	if dedup.Rows > 0 {
		size.Growth.IDBytes = int64(float64(size.Growth.IDs) * float64(dedup.Bytes) / float64(dedup.Rows))
	}
	return size, err
}

const usedSQL = `
select now(), (
	select coalesce(sum(pg_database_size(oid)), 0)::bigint
	from pg_database
	where datname = current_database() or has_database_privilege(oid, 'connect')),
	coalesce((select min(created_at) from firstseen.scopes), now())`

const idIndexSQL = `select pg_relation_size('firstseen.message_dedup_pkey')`

func idIndexBytes(ctx context.Context, tx pgx.Tx, sql string) (n int64, err error) {
	return n, tx.QueryRow(ctx, sql).Scan(&n)
}

// freshIDIndex is the primary key's size, in bytes, when it is made anew: entries of 36 bytes in pages of 8152 that
// are filled to 90 %, and one page above each two hundred.
func freshIDIndex(rows int64) int64 {
	const perPage = 8152 * 9 / 10 / 36
	pages := (rows + perPage - 1) / perPage
	return (pages + pages/perPage) * 8192
}

// Table gives the table of that name, or a zero one.
func (s *Size) Table(name string) TableSize {
	for _, t := range s.Tables {
		if t.Name == name {
			return t
		}
	}
	return TableSize{Name: name}
}

// add sums relations up into tables.
func (s *Size) add(relations []relation) {
	s.Tables = []TableSize{{Name: "message_dedup"}, {Name: "inbox"}, {Name: "parked"}, {Name: "dead_letters"},
		{Name: "idempotency"}, {Name: "enqueued"}, {Name: "rest"}}
	for _, r := range relations {
		t := &s.Tables[len(s.Tables)-1]
		for i := range s.Tables {
			if s.Tables[i].Name == r.group {
				t = &s.Tables[i]
			}
		}
		t.Bytes += r.bytes
		if r.name != "lanes" && r.name != "participants" { // no messages
			t.Rows += r.rows
		}
		if r.day.IsZero() || r.pages == 0 {
			continue
		}
		if s.FirstDay.IsZero() {
			s.FirstDay = r.day
		}
		s.LastDay = r.day
	}
}

// FullIn is in how many days a disk of so many bytes is full at this growth, where IDs and the inbox are kept for so
// long (0: for ever). ok is false where it never is, or no growth is known.
func (s *Size) FullIn(capacity int64, ids, inbox time.Duration) (days float64, ok bool) {
	free := float64(capacity - s.Used)
	if free <= 0 {
		return 0, true
	}
	const never = 1e6
	growing := func(since time.Time, kept time.Duration) float64 { // for how many days yet
		if kept <= 0 {
			return never
		}
		return max(0, (kept-s.At.Sub(since)).Hours()/24)
	}
	idDays, inboxDays := growing(s.Began, ids), growing(s.FirstDay, inbox)
	both := min(idDays, inboxDays)
	idRate, inboxRate := float64(s.Growth.IDBytes), float64(s.Growth.InboxBytes)
	if days := free / max(idRate+inboxRate, 1e-9); days <= both {
		return days, true
	}
	free -= both * (idRate + inboxRate)
	rate, until := idRate, idDays
	if inboxDays > idDays {
		rate, until = inboxRate, inboxDays
	}
	days = both + free/max(rate, 1e-9)
	return days, days <= until && days < never
}

// relation is one table's file, with what belongs to it.
type relation struct {
	group, name string
	pages       int64
	bytes       int64
	rows        int64 // -1: there are no statistics
	day         time.Time
}

// relationsSQL lists the tables of a schema, the inbox's days in order. A table that is dropped meanwhile has no size.
const relationsSQL = `
select case when i.inhrelid is not null then 'inbox' when c.relname = 'lanes' then 'parked'
		when c.relname = 'participants' then 'enqueued' else c.relname end,
	c.relname, f.pages, f.bytes,
	case when f.pages = 0 then 0
		when c.reltuples >= 0 and c.relpages > 0 then (c.reltuples / c.relpages * f.pages)::bigint
		else -1 end,
	case when i.inhrelid is not null and c.relname ~ '^inbox_\d{8}$' then to_date(right(c.relname, 8), 'YYYYMMDD') end
from pg_class c
left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = 'firstseen.inbox'::regclass
cross join lateral (
	select pg_relation_size(c.oid) / current_setting('block_size')::int as pages, pg_total_relation_size(c.oid) as bytes) f
where c.relnamespace = (select oid from pg_namespace where nspname = $1) and c.relkind in ('r', 'S') and f.bytes is not null
order by 1, 2`

func (in *Inbox) relations(ctx context.Context, tx pgx.Tx) ([]relation, error) {
	relations, err := in.readRelations(ctx, tx)
	for i := range relations {
		if r := &relations[i]; r.rows < 0 && err == nil {
			r.rows, err = in.countFirstPages(ctx, tx, r)
		}
	}
	return relations, err
}

func (in *Inbox) readRelations(ctx context.Context, tx pgx.Tx) ([]relation, error) {
	rows, err := tx.Query(ctx, in.db.SQL(relationsSQL), string(in.db.Schema))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r relation, err error) {
		var day *time.Time
		err = row.Scan(&r.group, &r.name, &r.pages, &r.bytes, &r.rows, &day)
		r.day = db.Deref(day)
		return r, err
	})
}

// countFirstPages estimates the rows of a table that Postgres has no statistics of, by its first pages. A day of the
// inbox is read through the inbox, for nobody has rights on the days themselves.
func (in *Inbox) countFirstPages(ctx context.Context, tx pgx.Tx, r *relation) (n int64, err error) {
	const pages = 64
	table, of, args := r.name, "", []any{}
	if !r.day.IsZero() {
		table, of, args = "inbox", ` and received_at >= $1 and received_at < $2`, []any{r.day, r.day.Add(day)}
	}
	sql := fmt.Sprintf(`select count(*) from %s where ctid < '(%d,0)'`,
		pgx.Identifier{string(in.db.Schema), table}.Sanitize(), pages)
	err = tx.QueryRow(ctx, sql+of, args...).Scan(&n)
	if r.pages > pages {
		n = n * r.pages / pages
	}
	return n, err
}

// scopeSharesSQL reads the shares of scopes from the statistics.
const scopeSharesSQL = `
with known as (
	select unnest(p.most_common_vals::text::int[]) as scope_id, unnest(p.most_common_freqs) as share
	from pg_stats p
	where p.schemaname = $1 and p.tablename = 'message_dedup' and p.attname = 'scope_id')
select s.inbox, s.handler, s.tenant, k.share::float8,
	(select greatest(t.last_analyze, t.last_autoanalyze) from pg_stat_all_tables t where t.relid = 'firstseen.message_dedup'::regclass)
from known k
join firstseen.scopes s using (scope_id)
order by k.share desc, s.scope_id`

// sampleSharesSQL counts them in about a thousand pages.
const sampleSharesSQL = `
with sampled as (
	select d.scope_id, count(*) as n
	from firstseen.message_dedup d tablesample system (PERCENT)
	group by d.scope_id)
select s.inbox, s.handler, s.tenant, (k.n / sum(k.n) over ())::float8, null::timestamptz
from sampled k
join firstseen.scopes s using (scope_id)
order by k.n desc, s.scope_id
limit 100`

// scopeSizes reads the shares of message_dedup's scopes.
func (in *Inbox) scopeSizes(ctx context.Context, tx pgx.Tx, size *Size) error {
	err := in.readShares(ctx, tx, size, scopeSharesSQL, string(in.db.Schema))
	if err != nil || len(size.Scopes) > 0 || size.Tables[0].Rows == 0 {
		return err
	}
	percent := min(100, 1000*100/float64(max(1, size.Tables[0].Bytes/2/8192))) // the heap is half
	return in.readShares(ctx, tx, size, strings.Replace(sampleSharesSQL, "PERCENT", fmt.Sprintf("%.6f", percent), 1))
}

func (in *Inbox) readShares(ctx context.Context, tx pgx.Tx, size *Size, sql string, args ...any) error {
	rows, err := tx.Query(ctx, in.db.SQL(sql), args...)
	if err != nil {
		return err
	}
	size.Scopes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f ScopeSize, err error) {
		var at *time.Time
		err = row.Scan(&f.Inbox, &f.Handler, &f.Tenant, &f.Share, &at)
		f.Rows = int64(f.Share * float64(size.Tables[0].Rows))
		size.ScopesAt = db.Deref(at)
		return f, err
	})
	return err
}

// firstReceived is the time of the inbox's first row. The primary key of each day leads to it.
func (in *Inbox) firstReceived(ctx context.Context, tx pgx.Tx, firstDay time.Time) (time.Time, error) {
	if firstDay.IsZero() {
		return time.Time{}, nil
	}
	var at *time.Time
	err := tx.QueryRow(ctx, in.db.SQL(`select min(received_at) from firstseen.inbox`)).Scan(&at)
	return db.Deref(at), err
}

const day = 24 * time.Hour

// growth is the mean of the inbox's whole days, up to seven of the last; without one, of the time since the first row.
// The first day is not whole.
func growth(relations []relation, now, first time.Time) Growth {
	today := now.UTC().Truncate(day)
	g := Growth{From: today.AddDate(0, 0, -7), To: today}
	if began := first.UTC().Truncate(day).Add(day); g.From.Before(began) {
		g.From = began
	}
	if !g.From.Before(today) {
		g.From, g.To = first, now
	}
	days := g.To.Sub(g.From).Hours() / 24
	if first.IsZero() || days < 1.0/24 {
		return Growth{}
	}
	var rows, bytes int64
	for _, r := range relations {
		if !r.day.IsZero() && r.day.Before(g.To) && !r.day.Before(g.From.UTC().Truncate(day)) {
			rows, bytes = rows+r.rows, bytes+r.bytes
		}
	}
	g.IDs, g.InboxBytes = int64(float64(rows)/days), int64(float64(bytes)/days)
	return g
}
