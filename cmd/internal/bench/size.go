package bench

import (
	"context"
	"fmt"
)

// size weighs what is kept: for ever for each ID, and for each message until its day is dropped.
func size(ctx context.Context, l *lab) error {
	var inbox series
	for _, kind := range idKinds {
		ids, rows, err := l.weigh(ctx, kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		r := ids.result(kind.name, "B/ID").atMost(115)
		r.Note = "all of the schema but the inbox, with indexes; low and high over the last doubling"
		if err := l.report(r); err != nil {
			return err
		}
		inbox = append(inbox, rows...)
	}
	return l.report(inbox.result(fmt.Sprintf("inbox, payload of %d B", payloadBytes), "B/msg"))
}

// weigh loads messages as a partition brings them, and gives the bytes that each has added. A random index grows in
// waves, because its pages fill and split at about the same time: the series are taken over the last doubling.
func (l *lab) weigh(ctx context.Context, kind idKind) (ids, inbox series, err error) {
	d, err := l.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer l.drop(d)
	empty, err := d.weight(ctx)
	if err != nil {
		return nil, nil, err
	}
	w, err := l.writers(ctx, d, 1)
	if err != nil {
		return nil, nil, err
	}
	const steps = 20
	n := l.pick(500_000, 100_000)
	for i := range steps {
		if _, err := w.accept(ctx, messages(n/steps, 1, kind.make), 1000); err != nil {
			return nil, nil, err
		}
		now, err := d.weight(ctx)
		if err != nil {
			return nil, nil, err
		}
		if i >= steps/2-1 {
			ids = append(ids, float64(now.rest-empty.rest)/float64(w.accepted))
			inbox = append(inbox, float64(now.inbox-empty.inbox)/float64(w.accepted))
		}
	}
	return ids, inbox, w.check(ctx)
}

// weight is the bytes of firstseen's schema, with indexes and maps.
type weight struct {
	inbox, rest int64
}

func (d *database) weight(ctx context.Context) (w weight, err error) {
	err = d.pool.QueryRow(ctx, `select sum(pg_total_relation_size(oid)) filter (where relispartition)::bigint,
			sum(pg_total_relation_size(oid)) filter (where not relispartition)::bigint
		from pg_class where relnamespace = 'firstseen'::regnamespace and relkind in ('r', 'S')`).
		Scan(&w.inbox, &w.rest)
	return w, err
}
