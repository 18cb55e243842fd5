package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// lanes drains parked messages, of which one key in backoff has half, and each other key one.
func lanes(ctx context.Context, l *lab) error {
	parked := l.pick(1_000_000, 30_000)
	var rates series
	for range l.pick(1, 2) {
		rate, err := l.drain(ctx, parked)
		if err != nil {
			return err
		}
		rates = append(rates, rate)
	}
	r := rates.result("drain", "msg/s").atLeast(10_000)
	r.Note = fmt.Sprintf("%s parked, half of them one key in backoff", figure(float64(parked)))
	return l.report(r)
}

// drain parks messages in a database of its own, and gives the rate at which those that are due are handled.
func (l *lab) drain(ctx context.Context, parked int) (float64, error) {
	d, err := l.database(ctx)
	if err != nil {
		return 0, err
	}
	defer l.drop(d)
	store, err := dedup.Open(ctx, d.pool, dedup.Config{Inbox: "bench"})
	if err != nil {
		return 0, err
	}
	var handled atomic.Int64
	p, err := queueing(store, "orders", counting(&handled), handlers.Retry{})
	if err != nil {
		return 0, err
	}
	if err := d.park(ctx, store, parked); err != nil {
		return 0, err
	}
	took, err := d.drained(ctx, p, &handled, parked/2)
	if err != nil {
		return 0, err
	}
	if err := d.expect(ctx, parked-parked/2, `select count(*) from firstseen.parked`); err != nil {
		return 0, err
	}
	return float64(parked/2) / took.Seconds(), d.expectEffects(ctx, parked/2)
}

func counting(handled *atomic.Int64) handlers.QueuedFunc {
	return func(b *pgx.Batch, m dedup.Message) error {
		handled.Add(1)
		return queueEffect(b, m)
	}
}

// park leaves messages as a handler's failures would: half in one lane that is not due, the others due in a lane each.
func (d *database) park(ctx context.Context, store *dedup.Store, messages int) error {
	scopes, err := store.Scopes(ctx, []dedup.ScopeKey{{Handler: "bench"}})
	if err != nil {
		return err
	}
	const rows = `insert into firstseen.parked (scope_id, lane, "offset", "partition", attempts, message_id, topic, key, payload, reason)
		select $2, case when n % 2 = 0 then '00000000-0000-8000-8000-000000000000' else gen_random_uuid() end,
			n, 0, 1, gen_random_uuid(), 'orders', 'key', $3, 'failed'
		from generate_series(1, $1::int) n`
	if _, err := d.pool.Exec(ctx, rows, messages, scopes.IDs[0], payload()); err != nil {
		return fmt.Errorf("park messages: %w", err)
	}
	const queues = `insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic, "partition")
		select scope_id, lane, now() + case when count(*) > 1 then interval '1 h' else '0' end, 'bench', 'bench', min(topic), 0
		from firstseen.parked group by 1, 2`
	if _, err := d.pool.Exec(ctx, queues); err != nil {
		return fmt.Errorf("make lanes: %w", err)
	}
	_, err = d.pool.Exec(ctx, `analyze firstseen.parked, firstseen.lanes`)
	return err
}

// drained runs the lane workers until so many messages are handled and their lanes gone.
func (d *database) drained(ctx context.Context, p *handlers.Processor, handled *atomic.Int64,
	messages int) (time.Duration, error) {
	working, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	start := time.Now()
	go func() { p.RunLanes(working); close(ended) }()
	defer func() { cancel(); <-ended }()
	for handled.Load() < int64(messages) {
		if !wait.Sleep(ctx, 5*time.Millisecond) {
			return 0, context.Cause(ctx)
		}
	}
	err := d.awaitCount(ctx, 1, `select count(*) from firstseen.lanes`)
	return time.Since(start), err
}
