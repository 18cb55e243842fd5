package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/sender"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// relayRival is another relay.
type relayRival struct {
	name string // among the peers
	says string
	goal float64
	// share of firstseen's messages that it gets, one in so many
	share int
}

var relayRivals = []relayRival{
	{name: "relay-byhand", says: "200 rows at once, by kafka-go's Writer", goal: 10, share: 4},
	{name: "relay-watermill", says: "Watermill's forwarder", goal: 10, share: 20},
}

const (
	relayed    = "relay"
	rawProduce = "raw produce"
)

// sendOutbox sends what an outbox holds to Kafka, then what comes into it at a pace, and then nothing.
func sendOutbox(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	for _, measure := range []func(context.Context, *database) error{l.relayRates, l.relayLatency, l.relayBloat,
		l.relayIdle} {
		if err := measure(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) relayRates(ctx context.Context, d *database) error {
	messages := l.pick(200_000, 20_000)
	contenders := []contender{
		{relayed, func() (float64, error) { return l.relayAll(ctx, d, "", messages) }},
		{rawProduce, func() (float64, error) { return l.produceAll(ctx, messages) }},
	}
	withPeers := l.hasPeers()
	for _, r := range relayRivals {
		if withPeers {
			contenders = append(contenders, contender{r.name, func() (float64, error) {
				return l.relayAll(ctx, d, r.name, messages/r.share)
			}})
		}
	}
	all, err := interleave(l.pick(5, 1), contenders...)
	if err != nil {
		return err
	}
	results := []Result{all[relayed].against(all[rawProduce], relayed, "msg/s", rawProduce).atLeast(.5)}
	for _, r := range relayRivals {
		if withPeers {
			versus := all[relayed].against(all[r.name], relayed, "msg/s", r.name).atLeast(r.goal)
			versus.Note = r.says
			results = append(results, versus)
		}
	}
	return l.report(results...)
}

// relayAll has a relay send a full outbox, which a peer fills by itself, and sees that each message has become a record.
func (l *lab) relayAll(ctx context.Context, d *database, peer string, messages int) (float64, error) {
	j, err := l.relayJob(ctx, d, messages)
	if err == nil && peer == "" {
		err = fillOutbox(ctx, d.pool, j)
	}
	if err != nil {
		return 0, err
	}
	o, err := l.contend(ctx, peer, j)
	if err != nil {
		return 0, err
	}
	return o.rate(), l.expectRecords(ctx, j)
}

// relayJob is one with a topic that is empty.
func (l *lab) relayJob(ctx context.Context, d *database, messages int) (job, error) {
	topic, err := l.topic(ctx, topicSpec{})
	if err != nil {
		return job{}, err
	}
	return l.on(ctx, d, job{Topic: topic, Group: topic, Messages: messages, Partitions: partitions, Handler: relayed})
}

func fillOutbox(ctx context.Context, pool *pgxpool.Pool, j job) error {
	for begin := 0; begin < j.Messages; begin += chunk {
		if err := addChunk(ctx, pool, j, begin); err != nil {
			return err
		}
	}
	return nil
}

// chunk is how many messages are added in a transaction.
const chunk = 1000

// addChunk adds the messages from one on.
func addChunk(ctx context.Context, pool *pgxpool.Pool, j job, begin int) error {
	var w outbox.Writer
	var ms []outbox.Message
	for i := begin; i < min(begin+chunk, j.Messages); i++ {
		ms = append(ms, j.outboxMessage(i))
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := w.AddAll(ctx, tx, ms)
		return err
	})
}

func (j job) outboxMessage(i int) outbox.Message {
	return outbox.Message{Topic: j.Topic, Key: fmt.Appendf(nil, "key-%d", i%keys), Value: payload()}
}

// produceAll is the cheapest way that the same records take: franz-go's, which all replicas have acknowledged.
func (l *lab) produceAll(ctx context.Context, messages int) (float64, error) {
	topic, err := l.topic(ctx, topicSpec{})
	if err != nil {
		return 0, err
	}
	spec := topicSpec{messages: messages}.prepared()
	client, err := spec.client(l.kafka.Addrs())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	start := time.Now()
	if err := spec.fill(ctx, client, topic); err != nil {
		return 0, err
	}
	return float64(messages) / time.Since(start).Seconds(), nil
}

// expectRecords sees that a topic has as many records as the job has messages, each under an ID of its own.
func (l *lab) expectRecords(ctx context.Context, j job) error {
	defer l.dropTopic(j.Topic)
	seen := map[string]bool{}
	err := readRecords(ctx, j, func(r *kgo.Record) bool {
		seen[idOf(r)] = true
		return len(seen) < j.Messages
	})
	if err != nil {
		return fmt.Errorf("topic %s has %d of %d messages: %w", j.Topic, len(seen), j.Messages, err)
	}
	return nil
}

// idOf is a record's message ID; without one it is known by its value.
func idOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == sender.HeaderID {
			return string(h.Value)
		}
	}
	return string(r.Value)
}

// readRecords reads a topic from its start for as long as it is told to.
func readRecords(ctx context.Context, j job, more func(*kgo.Record) bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(j.Brokers...), kgo.ConsumeTopics(j.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	for goOn := true; goOn; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) { goOn = goOn && more(r) })
	}
	return nil
}

// relay sends until the outbox is empty and so many messages have gone through it.
func (j job) relay(ctx context.Context) (o outcome, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	r, stop, err := j.newRelay(ctx, nil)
	if err != nil {
		return o, err
	}
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.Run(ctx) })
	err = every(ctx, 5*time.Millisecond, func() (bool, error) {
		totals := r.Processor().Totals()
		return int(totals.Handled) >= j.Messages, nil
	})
	o.Seconds, o.Messages, o.PeakBytes = time.Since(start).Seconds(), j.Messages, peakMemory()
	cancel()
	return o, err
}

// newRelay makes a relay of the job's topic. stop is for when it has ended.
func (j job) newRelay(ctx context.Context, tracer pgx.QueryTracer) (r *outbox.Relay, stop func(), err error) {
	cfg, err := pgxpool.ParseConfig(j.DSN)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns, cfg.ConnConfig.Tracer = 12, tracer
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	kafka, err := sender.New(consumer.Connection{Brokers: j.Brokers})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	r, err = outbox.New(ctx, outbox.Config{Pool: pool, Logger: quiet,
		Destinations: []outbox.Destination{{Name: "kafka", Topics: []string{j.Topic}, Sender: kafka}}})
	if err != nil {
		kafka.Close()
		pool.Close()
		return nil, nil, err
	}
	return r, func() { kafka.Close(); pool.Close() }, nil
}

// relayLatency takes the time from before a transaction that adds commits, in another process than the relay's, until a
// consumer has its record.
func (l *lab) relayLatency(ctx context.Context, d *database) error {
	const rate = 100
	took := warmUp + time.Duration(l.pick(10, 3))*time.Second
	tails := map[string]series{}
	for range l.pick(3, 1) {
		j, err := l.relayJob(ctx, d, rate*int(took.Seconds()))
		if err != nil {
			return err
		}
		latencies, err := l.relayPaced(ctx, d, j, rate)
		if err != nil {
			return err
		}
		for _, tail := range tailShares {
			tails[tail.name] = append(tails[tail.name], milliseconds(percentile(latencies, tail.share)))
		}
	}
	var all error
	for _, tail := range tailShares {
		r := tails[tail.name].result(fmt.Sprintf("%s from commit to consumer at %d msg/s", tail.name, rate), "ms")
		if tail.name == "p99" {
			r = r.atMost(20)
		}
		all = errors.Join(all, l.report(r))
	}
	return all
}

func (l *lab) relayPaced(ctx context.Context, d *database, j job, rate float64) (latencies []time.Duration, err error) {
	defer l.dropTopic(j.Topic)
	ids, committed, arrived := make([]string, j.Messages), make([]time.Time, j.Messages), map[string]time.Time{}
	err = l.together(ctx, 1, j, func(ctx context.Context) error {
		ctx, fail := context.WithCancelCause(ctx)
		defer fail(nil)
		var adding sync.WaitGroup
		defer adding.Wait()
		adding.Go(func() {
			pace(ctx, rate, j.Messages, func(i int) {
				var err error
				if ids[i], committed[i], err = addOne(ctx, d.pool, j, i); err != nil {
					fail(err)
				}
			})
		})
		err := readRecords(ctx, j, func(r *kgo.Record) bool {
			arrived[idOf(r)] = time.Now()
			return len(arrived) < j.Messages
		})
		return cmp.Or(context.Cause(ctx), err)
	})
	for i := int(rate * warmUp.Seconds()); err == nil && i < j.Messages; i++ {
		latencies = append(latencies, arrived[ids[i]].Sub(committed[i]))
	}
	return latencies, err
}

// relayBloat has very many messages go through the outbox, of which few wait at a time, and looks how large the table
// becomes and what autovacuum takes to keep it so.
func (l *lab) relayBloat(ctx context.Context, d *database) error {
	const waiting = 20_000
	j, err := l.relayJob(ctx, d, l.pick(10_000_000, 100_000))
	if err != nil {
		return err
	}
	defer l.dropTopic(j.Topic)
	r, stop, err := j.newRelay(ctx, nil)
	if err != nil {
		return err
	}
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	relaying, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { r.Run(relaying) })
	began := time.Now()
	var largest [2]float64 // in each half
	before, err := vacuumedOutbox(ctx, d.pool)
	for added := 0; err == nil && added <= j.Messages; added += chunk {
		err = every(ctx, time.Millisecond, func() (bool, error) {
			left := added - int(r.Processor().Totals().Handled)
			return left <= waiting && (added < j.Messages || left == 0), nil
		})
		if err == nil {
			err = addChunk(ctx, d.pool, j, added)
		}
		if added%(10*chunk) == 0 && err == nil {
			var bytes float64
			err = d.pool.QueryRow(ctx, `select pg_total_relation_size('firstseen.outbox')`).Scan(&bytes)
			half := 2 * added / (j.Messages + 1)
			largest[half] = max(largest[half], bytes/(1<<20))
		}
	}
	if err != nil {
		return err
	}
	after, err := vacuumedOutbox(ctx, d.pool)
	if err != nil {
		return err
	}
	size := series{max(largest[0], largest[1])}.result("size of the outbox at most", "MiB")
	size.Note = fmt.Sprintf("%s messages went through it, %s waited at a time; %.0f MiB in the first half, %.0f in the second",
		figure(float64(j.Messages)), figure(waiting), largest[0], largest[1])
	share := series{float64(after-before) / float64(time.Since(began))}.result("autovacuum of the outbox", "of the time")
	share.Note = "and others work meanwhile"
	return l.report(size, share)
}

// vacuumedOutbox is the time that autovacuum has spent on the outbox.
func vacuumedOutbox(ctx context.Context, pool *pgxpool.Pool) (time.Duration, error) {
	var ms float64
	err := pool.QueryRow(ctx, `select total_autovacuum_time from pg_stat_user_tables
		where relid = 'firstseen.outbox'::regclass`).Scan(&ms) // since Postgres 18
	return time.Duration(ms * float64(time.Millisecond)), err
}

// addOne adds a message, and says when its transaction began to commit.
func addOne(ctx context.Context, pool *pgxpool.Pool, j job, i int) (id string, at time.Time, err error) {
	var w outbox.Writer
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		added, err := w.Add(ctx, tx, j.outboxMessage(i))
		id, at = added.ID.String(), time.Now()
		return err
	})
	return id, at, err
}

// queries counts those of a pool.
type queries struct{ n atomic.Int64 }

func (q *queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	q.n.Add(1)
	return ctx
}

func (q *queries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

const delayedSQL = `
insert into firstseen.outbox_delayed (outbox_id, due_at, message_id, shard, topic, tenant, payload)
select nextval('firstseen.outbox_seq'), now() + interval '7 days', $1::uuid, i % 16, $2, '', '\x' from generate_series(1, $3::int) i`

// relayIdle counts what a relay asks Postgres in a minute of nothing, beside messages that are due in a week.
func (l *lab) relayIdle(ctx context.Context, d *database) error {
	j, err := l.relayJob(ctx, d, 0)
	if err != nil {
		return err
	}
	delayed := l.pick(3_000_000, 100_000)
	if _, err := d.pool.Exec(ctx, delayedSQL, uuid.New(), j.Topic, delayed); err != nil {
		return err
	}
	var asked queries
	r, stop, err := j.newRelay(ctx, &asked)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	settle, window := time.Duration(l.pick(30, 5))*time.Second, time.Duration(l.pick(60, 15))*time.Second
	time.Sleep(settle)
	before := asked.n.Load()
	time.Sleep(window)
	n := float64(asked.n.Load()-before) * time.Minute.Seconds() / window.Seconds()
	cancel()
	running.Wait()
	result := series{n}.result("queries a minute, idle", "1/min")
	result.Note = fmt.Sprintf("%s messages are due in a week", figure(float64(delayed)))
	return l.report(result)
}
