package bench

import (
	"context"
	"fmt"
	"time"
)

// grown is a database in which so many IDs were seen.
type grown struct {
	kind    idKind
	ids     int
	writers *writers
	wal     series // bytes for a message, one a round
}

func (g *grown) String() string {
	return fmt.Sprintf("%s, %s IDs", g.kind.name, figure(float64(g.ids)))
}

func (l *lab) growthSizes() []int {
	switch {
	case l.options.Large:
		return []int{1_000_000, 5_000_000, 20_000_000, 50_000_000}
	case l.options.Quick:
		return []int{200_000, 1_000_000}
	}
	return []int{1_000_000, 5_000_000, 20_000_000}
}

// growth measures accept beside a memory of more and more IDs, until its index is larger than Postgres' cache.
func growth(ctx context.Context, l *lab) error {
	for _, kind := range idKinds {
		if err := l.growthOf(ctx, kind); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return nil
}

// growthOf has a database for each size, so that the sizes take turns. They share the cache.
func (l *lab) growthOf(ctx context.Context, kind idKind) error {
	var all []*grown
	for _, n := range l.growthSizes() {
		d, err := l.database(ctx)
		if err != nil {
			return err
		}
		defer l.drop(d)
		w, err := l.writers(ctx, d, 1)
		if err != nil {
			return err
		}
		g := &grown{kind: kind, ids: n, writers: w}
		if err := g.fill(ctx, l); err != nil {
			return fmt.Errorf("fill to %s: %w", g, err)
		}
		all = append(all, g)
	}
	if err := l.admin(ctx, `checkpoint`); err != nil {
		return err
	}
	return l.compareGrown(ctx, all)
}

// fill brings IDs into the memory as fast as it goes, and leaves nothing for autovacuum to do.
func (g *grown) fill(ctx context.Context, l *lab) error {
	const chunk, said = 1_000_000, 5_000_000
	start, pool := time.Now(), g.writers.db.pool
	for done := 0; done < g.ids; {
		tag, err := pool.Exec(ctx, `insert into firstseen.message_dedup (scope_id, message_id)
			select $1, `+g.kind.sql+` from generate_series(1, $2::int)`, g.writers.scope, min(chunk, g.ids-done))
		if err != nil {
			return err
		}
		done += int(tag.RowsAffected())
		if done%said == 0 || done == g.ids {
			l.say("  %s: %s filled in %s", g, figure(float64(done)), time.Since(start).Round(time.Second))
		}
	}
	_, err := pool.Exec(ctx, `vacuum (analyze) firstseen.message_dedup`)
	return err
}

func (l *lab) compareGrown(ctx context.Context, all []*grown) error {
	var contenders []contender
	for _, g := range all {
		contenders = append(contenders,
			contender{g.String(), func() (float64, error) { return g.accept(ctx, 10_000) }})
	}
	rates, err := interleave(11, contenders...)
	if err != nil {
		return err
	}
	for _, g := range all {
		if err := g.check(ctx); err != nil {
			return err
		}
		if err := l.reportGrown(ctx, g, rates[g.String()], all[0], rates[all[0].String()]); err != nil {
			return err
		}
	}
	return nil
}

// accept takes n new messages in, and gives the rate. It notes what they wrote to the WAL.
func (g *grown) accept(ctx context.Context, n int) (float64, error) {
	ms := messages(n, 1, g.kind.make)
	before, err := g.written(ctx)
	if err != nil {
		return 0, err
	}
	figure, err := g.writers.accept(ctx, ms, 1000)
	if err != nil {
		return 0, err
	}
	after, err := g.written(ctx)
	g.wal = append(g.wal, float64(after-before)/float64(n))
	return figure, err
}

// written is the server's place in the WAL, in bytes.
func (g *grown) written(ctx context.Context) (at int64, err error) {
	err = g.writers.db.pool.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint`).Scan(&at)
	return at, err
}

// check counts the rows of the inbox: there is one for each message that was new.
func (g *grown) check(ctx context.Context) error {
	return g.writers.db.expect(ctx, g.writers.accepted, `select count(*) from firstseen.inbox`)
}

func (l *lab) reportGrown(ctx context.Context, g *grown, rates series, least *grown, leastRates series) error {
	r := rates.result(g.String(), "msg/s")
	if g != least {
		r = rates.against(leastRates, g.String(), "msg/s", least.String())
		if g.kind.name == "v7" {
			r = r.atLeast(.95)
		}
	}
	err := g.writers.db.pool.QueryRow(ctx, `select format('message_dedup has %s, its key %s; shared_buffers is %s',
		pg_size_pretty(pg_relation_size('firstseen.message_dedup')), pg_size_pretty(pg_relation_size('firstseen.message_dedup_pkey')),
		current_setting('shared_buffers'))`).Scan(&r.Note)
	if err != nil {
		return err
	}
	if err := l.report(r); err != nil {
		return err
	}
	wal := g.wal.result(g.String()+", WAL", "B/msg")
	wal.Value = g.wal.mean() // page images fall off after the checkpoint
	wal.Note = "with the message's row in the inbox; from a checkpoint on"
	return l.report(wal)
}

func (s series) mean() (mean float64) {
	for _, v := range s {
		mean += v / float64(len(s))
	}
	return mean
}
