package bench

import (
	"context"
	"fmt"
	"time"
)

// count is a query's one number.
func (d *database) count(ctx context.Context, sql string, args ...any) (n int, err error) {
	if err := d.pool.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", sql, err)
	}
	return n, nil
}

// awaitCount looks often until a query gives the number, for as long as a contender may take.
func (d *database) awaitCount(ctx context.Context, want int, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, contenderLimit)
	defer cancel()
	n := 0
	err := every(ctx, 5*time.Millisecond, func() (done bool, err error) {
		n, err = d.count(ctx, sql, args...)
		return n == want, err
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%s: still %d and not %d: %w", sql, n, want, err)
	}
	return err
}

// connections counts those of contenders.
const connections = `select count(*) from pg_stat_activity where datname = current_database() and application_name = '` + contenderName + `'`

// through counts the messages that the consumer has behind it, on topics that begin at 0.
const through = `select coalesce(sum(next_offset), 0)::bigint from firstseen.positions where consumer = $1`

// expect is an error where a query gives another number: who left out a part of the work has no rate.
func (d *database) expect(ctx context.Context, want int, sql string, args ...any) error {
	got, err := d.count(ctx, sql, args...)
	if err == nil && got != want {
		err = fmt.Errorf("%s: %d and not %d", sql, got, want)
	}
	return err
}

func (d *database) expectEffects(ctx context.Context, messages int) error {
	return d.expect(ctx, messages, `select count(*) from bench_effects`)
}

// expectInbox checks that an inbox knows so many messages, and that all of them are processed.
func (d *database) expectInbox(ctx context.Context, inbox string, messages int) error {
	for _, table := range []string{"message_dedup", "inbox"} {
		err := d.expect(ctx, messages,
			`select count(*) from firstseen.`+table+` join firstseen.scopes using (scope_id) where inbox = $1`, inbox)
		if err != nil {
			return err
		}
	}
	return nil
}

// every tries something at each tick until it is done, fails, or ctx ends.
func every(ctx context.Context, interval time.Duration, try func() (done bool, err error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		done, err := try()
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return cause
		}
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
