package bench

import (
	"context"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
)

// limit compares firstseen, end to end, with what Postgres alone can take: raw COPY of the rows of inbox,
// message_dedup and effects, without a broker, in batches of 1000 and with a writer for each partition.
func limit(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	w, err := l.writers(ctx, d, partitions)
	if err != nil {
		return err
	}
	n := l.pick(200_000, 50_000)
	all, err := interleave(l.pick(5, 1), l.whole(ctx, d, n,
		contender{"copy", func() (float64, error) { return w.copyAll(ctx, n) }}),
		l.whole(ctx, d, n, l.ours(ctx, d, "queued", n)), l.whole(ctx, d, n, l.ours(ctx, d, "set", n)))
	if err != nil {
		return err
	}
	results := []Result{all["copy"].result(rawCopy, "msg/s")}
	for _, workload := range []string{"queued", "set"} {
		r := all[workload].against(all["copy"], "firstseen, "+workload, "msg/s", rawCopy).atLeast(.5)
		r.Note = "its clock starts with the process, before it has joined the group"
		results = append(results, r)
	}
	return l.report(results...)
}

// whole has a contender begin with empty tables, and sees that it has written all rows.
func (l *lab) whole(ctx context.Context, d *database, n int, c contender) contender {
	return contender{c.name, func() (float64, error) {
		if err := d.forget(ctx); err != nil {
			return 0, err
		}
		figure, err := c.run()
		if err != nil {
			return 0, err
		}
		for _, table := range []string{"firstseen.message_dedup", "firstseen.inbox", "bench_effects"} {
			if err := d.expect(ctx, n, `select count(*) from `+table); err != nil {
				return 0, err
			}
		}
		return figure, nil
	}}
}

// copyAll loads the rows that a topic of n messages becomes.
func (w *writers) copyAll(ctx context.Context, n int) (float64, error) {
	loads := make([]copyLoad, partitions)
	for i, ms := range messages(n, partitions, uuid.New) {
		for j := range ms {
			ms[j].Headers = []dedup.Header{{Key: "message-id", Value: []byte(ms[j].ID.String())}}
		}
		loads[i] = newCopyLoad([]copyTable{copyDedup, copyInbox, copyEffect}, w.copyScope, ms, 1000).tighten()
	}
	return rate(n, partitions, func(i int) error { return loads[i].run(ctx, w.db.pool) })
}
