package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

// traffic is messages that are sent at an even pace while firstseen consumes them, and when each was sent and
// committed. Message i is number i/partitions of partition i%partitions.
type traffic struct {
	job     job
	pool    *pgxpool.Pool
	client  *kgo.Client
	records []*kgo.Record

	sent, committed []time.Time // by message
}

// newTraffic makes the messages. Close its client when done with it.
func newTraffic(d *database, j job) (*traffic, error) {
	client, err := topicSpec{}.client(j.Brokers, kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	t := &traffic{job: j, pool: d.pool, client: client, sent: make([]time.Time, j.Messages),
		committed: make([]time.Time, j.Messages)}
	spec := topicSpec{}.prepared()
	for i := range j.Messages {
		t.records = append(t.records, spec.record(j.Topic, i))
	}
	return t, nil
}

// run sends the messages as soon as the group is at work, and returns when all have been seen to be committed.
func (t *traffic) run(ctx context.Context, rate float64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := t.awaitGroup(ctx); err != nil {
		return err
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := t.watch(ctx); err != nil {
			cancel(err)
		}
	}()
	pace(ctx, rate, len(t.records), func(i int) { t.produce(ctx, i, cancel) })
	<-watched
	return context.Cause(ctx)
}

// awaitGroup waits until each partition has an owner.
func (t *traffic) awaitGroup(ctx context.Context) error {
	return every(ctx, 10*time.Millisecond, func() (bool, error) {
		var owned int
		err := t.pool.QueryRow(ctx,
			`select count(*) from firstseen.positions where consumer = $1 and owner is not null`,
			t.job.Group).Scan(&owned)
		return owned == t.job.Partitions, err
	})
}

// pace calls send for each of n messages, so many in a second: each millisecond those that are due. It ends early with
// ctx.
func pace(ctx context.Context, rate float64, n int, send func(i int)) {
	start, i := time.Now(), 0
	_ = every(ctx, time.Millisecond, func() (bool, error) {
		due := int(min(float64(n), 1+rate*time.Since(start).Seconds()))
		for ; i < due; i++ {
			send(i)
		}
		return i == n, nil
	})
}

func (t *traffic) produce(ctx context.Context, i int, fail func(error)) {
	r := t.records[i]
	t.sent[i] = time.Now()
	t.client.Produce(ctx, r, func(r *kgo.Record, err error) {
		if want := int64(i / t.job.Partitions); err == nil && r.Offset != want {
			err = fmt.Errorf("message %d of %s/%d is at offset %d", want, r.Topic, r.Partition, r.Offset)
		}
		if err != nil {
			fail(err)
		}
	})
}

// watch looks at the positions each millisecond, and notes for each message when it first saw it behind.
func (t *traffic) watch(ctx context.Context) error {
	next, left := make([]int, t.job.Partitions), len(t.committed)
	return every(ctx, time.Millisecond, func() (bool, error) {
		rows, err := t.pool.Query(ctx, `select "partition", next_offset from firstseen.positions where consumer = $1`,
			t.job.Group)
		if err != nil {
			return false, err
		}
		var p, upTo int
		_, err = pgx.ForEachRow(rows, []any{&p, &upTo}, func() error {
			now := time.Now()
			for ; next[p] < upTo; next[p]++ {
				t.committed[next[p]*t.job.Partitions+p] = now
				left--
			}
			return nil
		})
		return left == 0, err
	})
}

// latencies are the times that the messages took from sent to committed, without the first ones.
func (t *traffic) latencies(without int) (all []time.Duration) {
	for i := without; i < len(t.sent); i++ {
		all = append(all, t.committed[i].Sub(t.sent[i]))
	}
	return all
}

// rate is the mean of messages sent in a second.
func (t *traffic) rate() float64 {
	return float64(len(t.sent)-1) / t.sent[len(t.sent)-1].Sub(t.sent[0]).Seconds()
}
