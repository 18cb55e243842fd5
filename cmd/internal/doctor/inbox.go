package doctor

import (
	"context"
	"strings"
	"time"
)

var inboxChecks = []Check{
	{
		Name: "inbox.partitions", About: "the inbox has partitions for the coming days", needs: needsSchema,
		run: inboxPartitions,
		Do: map[Level]string{
			Warning: "Start a consumer, or: select firstseen.make_partitions(7). If that makes none, " +
				"something holds the default partition: a dump, or an open transaction.",
		},
	},
	{
		Name: "inbox.partition_names", About: "each partition holds the day (UTC) that its name says",
		needs: needsSchema,
		run:   inboxPartitionNames,
		Do: map[Level]string{Warning: "Detach the partition, move its rows to days that match, and drop it; " +
			"until then don't drop or keep days by their names."},
	},
	{
		Name: "inbox.default", About: "no message is in the inbox's default partition",
		needs: needsInbox, run: inboxDefault,
		Do: map[Level]string{
			Warning: "Messages of today and later are moved when their partition is made: " +
				"select firstseen.make_partitions(7). Older days are deleted from " +
				"inbox_default by hand once they are not needed.",
		},
	},
	{
		Name: "inbox.clocks", About: "messages' timestamps are times, and not after they are received",
		needs: needsInbox,
		run:   inboxClocks,
		Do: map[Level]string{Warning: "A producer writes micro- or nanoseconds, say, where Kafka wants " +
			"milliseconds since 1970: have it corrected. Messages are handled all the same, but without a time; " +
			"and Kafka's retention goes by these numbers, and keeps such messages too long or not at all. " +
			"`firstseen inbox list --json` has them as raw_timestamp.", Info: "A producer's or a broker's clock is " +
			"ahead: synchronise it (NTP). Kafka's retention goes by these times, and keeps such messages too long."},
	},
	{
		Name: "inbox.pauses", About: "nothing was paused and forgotten", needs: needsInbox, run: inboxPauses,
		Do: map[Level]string{
			Warning: "Ask who paused it, and resume it: `firstseen resume`. Messages pile up meanwhile, " +
				"and Kafka deletes what is older than its retention.",
			Info: "It is resumed by `firstseen resume`.",
		},
	},
	{
		Name: "inbox.renamed", About: "no handler or inbox seems to have been renamed",
		needs: needsInbox, run: inboxRenamed,
		Do: map[Level]string{
			Warning: "If it was renamed, give it its old name back: under a new one every message is new, " +
				"and a replay takes effect again. If it is meant to start afresh, all is well.",
		},
	},
}

// daysAhead is the number of days ahead for which a partition must be there: consumers make seven at each start and
// look daily.
const daysAhead = 2

const partitionsSQL = `
select c.relname, pg_get_expr(c.relpartbound, c.oid)
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = to_regclass('firstseen.inbox')
order by 1`

type partition struct{ Name, Bounds string }

func inboxPartitions(ctx context.Context, p *target, r *report) error {
	found, err := query[partition](ctx, p, partitionsSQL)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, f := range found {
		there[f.Name] = true
	}
	now, err := one[struct{ At time.Time }](ctx, p, `select now()`)
	for n := range daysAhead + 1 {
		day := now.At.UTC().AddDate(0, 0, n)
		if !there["inbox_"+day.Format("20060102")] {
			r.warn("there is no partition for %s: its messages go to inbox_default", day.Format(time.DateOnly))
		}
	}
	r.ok("the coming %d days have theirs", daysAhead)
	return err
}

func inboxPartitionNames(ctx context.Context, p *target, r *report) error {
	found, err := query[partition](ctx, p, partitionsSQL)
	for _, f := range found {
		day, isDay := strings.CutPrefix(f.Name, "inbox_")
		at, err := time.Parse("20060102", day)
		if !isDay || err != nil {
			if f.Bounds != "DEFAULT" {
				r.warn("the partition %s is not named for a day; it is %s", f.Name, f.Bounds)
			}
			continue
		}
		from, to := at.Format("2006-01-02 15:04:05+00"), at.AddDate(0, 0, 1).Format("2006-01-02 15:04:05+00")
		if f.Bounds != "FOR VALUES FROM ('"+from+"') TO ('"+to+"')" {
			r.warn("the partition %s is %s", f.Name, f.Bounds)
		}
	}
	r.ok("names and days agree")
	return err
}

func inboxDefault(ctx context.Context, p *target, r *report) error {
	n, err := p.strayRows(ctx)
	if n > 0 {
		r.warn("%s messages are in inbox_default", capped(n, 10_000))
	}
	r.ok("the default partition is empty")
	return err
}

func inboxClocks(ctx context.Context, p *target, r *report) error {
	n, err := p.newest(ctx, p.limits.sample)
	if n.Untimed > 0 {
		r.warn("%d of the newest %d messages have a timestamp that is no time of the years 1 to 9999",
			n.Untimed, n.Messages)
	}
	if n.Early > 0 {
		r.info("%d of the newest %d messages were produced after they were received, by up to %s", n.Early, n.Messages,
			age(n.Earliest.Seconds()))
	}
	r.ok("messages looked at: %d", n.Messages)
	return err
}

func inboxPauses(ctx context.Context, p *target, r *report) error {
	pauses, err := p.inbox.Pauses(ctx)
	for _, f := range pauses {
		level, since := Info, p.now().Sub(f.At)
		if since > p.limits.parked {
			level = Warning
		}
		r.add(level, "%s has been paused for %s by %s: %s", f, age(since.Seconds()), f.Actor, f.Why)
	}
	r.ok("nothing is paused")
	return err
}

func inboxRenamed(ctx context.Context, p *target, r *report) error {
	ages, err := p.handlerAges(ctx, p.limits.sample)
	if err != nil {
		return err
	}
	configured := p.handlerNames()
	for _, young := range ages {
		inUse := young.Active || configured[young.Handler]
		if !inUse || young.Inbox != p.Inbox || p.now().Sub(young.Since) > p.limits.renamed {
			continue
		}
		for _, old := range ages {
			if !old.Active && young.Since.Sub(old.Since) > time.Hour &&
				(old.Inbox != p.Inbox || !configured[old.Handler]) {
				compareAges(r, young, old)
			}
		}
	}
	r.ok("handlers looked at: %d", len(ages))
	return nil
}

// compareAges holds a handler that is new against one that gets nothing any more.
func compareAges(r *report, young, old handlerAge) {
	switch {
	case old.Inbox == young.Inbox:
		r.warn("the handler %s is new since %s, and the handler %s, known since %s, gets nothing any more",
			young.Handler, day(young.Since), old.Handler, day(old.Since))
	case old.Handler == young.Handler:
		r.warn("the inbox %s has had the handler %s since %s, and the inbox %s, which has had it since %s, "+
			"gets nothing for it any more", young.Inbox, young.Handler, day(young.Since), old.Inbox, day(old.Since))
	}
}

// handlerNames are the handlers of the config; none without one.
func (p *target) handlerNames() map[string]bool {
	names := map[string]bool{}
	if p.Config == nil {
		return names
	}
	for _, t := range p.Config.Topics {
		for _, h := range t.Handlers {
			names[h.Name] = true
		}
	}
	return names
}

func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }
