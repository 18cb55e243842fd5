package dedup

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

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
select case when i.inhrelid is not null then 'inbox' when c.relname = 'lanes' then 'parked' else c.relname end,
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

// relations lists the tables with their rows.
func (s *Store) relations(ctx context.Context, tx pgx.Tx) ([]relation, error) {
	relations, err := s.readRelations(ctx, tx)
	for i := range relations {
		if r := &relations[i]; r.rows < 0 && err == nil {
			r.rows, err = s.countFirstPages(ctx, tx, r)
		}
	}
	return relations, err
}

func (s *Store) readRelations(ctx context.Context, tx pgx.Tx) ([]relation, error) {
	rows, err := tx.Query(ctx, s.db.SQL(relationsSQL), s.cfg.Schema)
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

// countFirstPages estimates the rows of a table that Postgres has no statistics of, by its first pages. A day of the inbox
// is read through the inbox, for nobody has rights on the days themselves.
func (s *Store) countFirstPages(ctx context.Context, tx pgx.Tx, r *relation) (n int64, err error) {
	const pages = 64
	table, of, args := r.name, "", []any{}
	if !r.day.IsZero() {
		table, of, args = "inbox", ` and received_at >= $1 and received_at < $2`, []any{r.day, r.day.Add(day)}
	}
	sql := fmt.Sprintf(`select count(*) from %s where ctid < '(%d,0)'`, pgx.Identifier{s.cfg.Schema, table}.Sanitize(), pages)
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
func (s *Store) scopeSizes(ctx context.Context, tx pgx.Tx, size *Size) error {
	err := s.readShares(ctx, tx, size, scopeSharesSQL, s.cfg.Schema)
	if err != nil || len(size.Scopes) > 0 || size.Tables[0].Rows == 0 {
		return err
	}
	percent := min(100, 1000*100/float64(max(1, size.Tables[0].Bytes/2/8192))) // the heap is half
	return s.readShares(ctx, tx, size, strings.Replace(sampleSharesSQL, "PERCENT", fmt.Sprintf("%.6f", percent), 1))
}

func (s *Store) readShares(ctx context.Context, tx pgx.Tx, size *Size, sql string, args ...any) error {
	rows, err := tx.Query(ctx, s.db.SQL(sql), args...)
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
func (s *Store) firstReceived(ctx context.Context, tx pgx.Tx, firstDay time.Time) (time.Time, error) {
	if firstDay.IsZero() {
		return time.Time{}, nil
	}
	var at *time.Time
	err := tx.QueryRow(ctx, s.db.SQL(`select min(received_at) from firstseen.inbox`)).Scan(&at)
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
