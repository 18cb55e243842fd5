package bench

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
)

// idKind is a way to make message IDs.
type idKind struct {
	name string
	make func() uuid.UUID
	sql  string // the same in Postgres
}

var idKinds = []idKind{{"v4", uuid.New, `gen_random_uuid()`},
	{"v7", func() uuid.UUID { return uuid.Must(uuid.NewV7()) }, `uuidv7()`}}

// acceptCase is new messages in batches of one size.
type acceptCase struct {
	kind          idKind
	size, writers int
	goal          float64
}

func (c acceptCase) String() string {
	s := fmt.Sprintf("%s, %d a batch", c.kind.name, c.size)
	if c.writers > 1 {
		s += fmt.Sprintf(", %d writers", c.writers)
	}
	return s
}

const (
	rawCopy   = "raw COPY"
	tightCopy = "raw COPY in two round trips"
)

// accept compares accept and commit of new messages with the cheapest load that Postgres has: raw COPY of the same
// rows into the same tables, in as many transactions and by as many writers.
func accept(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	for _, kind := range idKinds {
		for _, c := range []acceptCase{{kind, 100, 1, 1}, {kind, 1000, 1, 1},
			{kind, 5000, 1, .95}, {kind, 1000, 4, .9}} {
			if err := l.acceptCase(ctx, d, c); err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
		}
	}
	return nil
}

func (l *lab) acceptCase(ctx context.Context, d *database, c acceptCase) error {
	if err := d.forget(ctx); err != nil {
		return err
	}
	w, err := l.writers(ctx, d, c.writers)
	if err != nil {
		return err
	}
	n := max(l.pick(20_000, 5_000), l.pick(10, 5)*c.size)
	all, err := interleave(l.pick(15, 5), c.contenders(ctx, w, n)...)
	if err != nil {
		return err
	}
	if err := w.check(ctx); err != nil {
		return err
	}
	return l.reportAccept(c, all)
}

func (c acceptCase) contenders(ctx context.Context, w *writers, n int) []contender {
	fresh := func() [][]dedup.Message { return messages(n, c.writers, c.kind.make) }
	copied := func(tight bool) func() (float64, error) {
		return func() (float64, error) { return w.copy(ctx, fresh(), c.size, tight) }
	}
	all := []contender{
		{"accept", func() (float64, error) { return w.accept(ctx, fresh(), c.size) }},
		{rawCopy, copied(false)},
	}
	if c.size == 100 { // where round trips show
		all = append(all, contender{tightCopy, copied(true)})
	}
	return all
}

func (l *lab) reportAccept(c acceptCase, all map[string]series) error {
	r := all["accept"].against(all[rawCopy], c.String(), "msg/s", rawCopy).atLeast(c.goal)
	if err := l.report(r); err != nil || all[tightCopy] == nil {
		return err
	}
	return l.report(all["accept"].against(all[tightCopy], c.String()+", tight", "msg/s", tightCopy))
}

// copy loads messages by raw COPY, and gives the rate.
func (w *writers) copy(ctx context.Context, dealt [][]dedup.Message, size int, tight bool) (float64, error) {
	loads := make([]copyLoad, len(dealt))
	for i, ms := range dealt {
		loads[i] = newCopyLoad([]copyTable{copyDedup, copyInbox}, w.copyScope, ms, size)
		if tight {
			loads[i] = loads[i].tighten()
		}
		w.copied += len(ms)
	}
	return rate(count(dealt), len(loads), func(i int) error { return loads[i].run(ctx, w.db.pool) })
}
