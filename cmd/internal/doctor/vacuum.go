package doctor

import (
	"context"
	"time"
)

var vacuumChecks = []Check{
	{
		Name: "vacuum.freeze", About: "transaction numbers are far from wrapping around", needs: needsPostgres,
		run: vacuumFreeze,
		Do: map[Level]string{
			Fault: "Run vacuum (freeze) in that database now, and end what holds it back (sessions.transactions, " +
				"sessions.prepared, sessions.slots): Postgres is about to refuse all writes.",
			Warning: "Autovacuum does not keep up: look for what holds it back (sessions.transactions, " +
				"sessions.prepared, sessions.slots), and raise autovacuum_vacuum_cost_limit.",
		},
	},
	{
		Name: "vacuum.dead_rows", About: "firstseen's tables hold few dead rows",
		needs: needsSchema, run: vacuumDeadRows,
		Do: map[Level]string{Warning: "Run vacuum on the table. If the dead rows stay, something holds it back " +
			"(sessions.transactions, sessions.prepared, sessions.slots)."},
	},
	{
		Name: "vacuum.index", About: "the index of the message IDs has its proper size",
		needs: needsInbox, run: vacuumIndex,
		Do: map[Level]string{Warning: "Make it anew beside the old one: " +
			"reindex index concurrently firstseen.message_dedup_pkey."},
	},
}

const freezeSQL = `
select datname, age(datfrozenxid)::bigint, mxid_age(datminmxid)::bigint,
	current_setting('autovacuum_freeze_max_age')::bigint, current_setting('autovacuum_multixact_freeze_max_age')::bigint
from pg_database
order by greatest(age(datfrozenxid), mxid_age(datminmxid)) desc
limit 1`

func vacuumFreeze(ctx context.Context, p *target, r *report) error {
	a, err := one[struct {
		Database                           string
		Age, MultiAge, MaxAge, MaxMultiAge int64
	}](ctx, p, freezeSQL)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		what     string
		age, max int64
	}{{"transaction", a.Age, a.MaxAge}, {"multixact", a.MultiAge, a.MaxMultiAge}} {
		switch {
		case l.age > p.limits.frozenAge:
			r.fault("the oldest %s of database %s is %d million back; Postgres stops at 2,100 million",
				l.what, a.Database, l.age/1e6)
		case float64(l.age) > p.limits.frozenShare*float64(l.max):
			r.warn("the oldest %s of database %s is %d back, and autovacuum should have frozen it at %d",
				l.what, a.Database, l.age, l.max)
		}
	}
	r.ok("the oldest transaction is %d back", a.Age)
	return nil
}

const deadRowsSQL = `
select relname, n_dead_tup, n_live_tup, coalesce(greatest(last_vacuum, last_autovacuum), 'epoch')
from pg_stat_all_tables
where schemaname = $1 and n_dead_tup > $2 and n_dead_tup > n_live_tup / 5
order by n_dead_tup desc
limit 10`

func vacuumDeadRows(ctx context.Context, p *target, r *report) error {
	tables, err := query[struct {
		Name       string
		Dead, Live int64
		Vacuumed   time.Time
	}](ctx, p, deadRowsSQL, p.Schema, p.limits.deadRows)
	for _, t := range tables {
		last := "never"
		if t.Vacuumed.Unix() > 0 {
			last = t.Vacuumed.UTC().Format("2006-01-02 15:04")
		}
		r.warn("%s has %d dead rows beside %d; last vacuum: %s", t.Name, t.Dead, t.Live, last)
	}
	r.ok("no table has more than %d", p.limits.deadRows)
	return err
}

func vacuumIndex(ctx context.Context, p *target, r *report) error {
	const tooLarge = 2.5
	s, err := p.inbox.Size(ctx)
	if err != nil {
		return err
	}
	rows := s.Table("message_dedup").Rows
	if s.IDIndex.Bloat() > tooLarge && rows >= p.limits.indexRows {
		r.warn("the index takes %s for about %d IDs, %.1f times what a new one would", size(s.IDIndex.Bytes), rows,
			s.IDIndex.Bloat())
	}
	r.ok("it takes %s", size(s.IDIndex.Bytes))
	return nil
}
