package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// workloads are firstseen's handlers by name. Each writes one row of effects for a message but waiting and nothing.
var workloads = map[string]func(job) handlers.BatchHandler{
	"queued":  func(job) handlers.BatchHandler { return handlers.Queue(handlers.QueuedFunc(queueEffect)) },
	"set":     func(job) handlers.BatchHandler { return handlers.BatchHandlerFunc(copyEffects) },
	"waiting": func(j job) handlers.BatchHandler { return handlers.Each(waiting(j.Wait)) },
	"slow":    func(j job) handlers.BatchHandler { return slowly(j.Wait) },
	"nothing": func(job) handlers.BatchHandler { return handlers.BatchHandlerFunc(nothing) },
}

func queueEffect(b *pgx.Batch, m dedup.Message) error {
	b.Queue(`insert into bench_effects (id, payload) values ($1, $2)`, m.ID, m.Value)
	return nil
}

// copyEffects writes a batch's rows at once.
func copyEffects(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"bench_effects"}, []string{"id", "payload"},
		pgx.CopyFromSlice(len(ms), func(i int) ([]any, error) { return []any{[16]byte(ms[i].ID), ms[i].Value}, nil }))
	return err
}

func waiting(d time.Duration) handlers.HandlerFunc {
	return func(ctx context.Context, _ pgx.Tx, _ dedup.Message) error {
		wait.Sleep(ctx, d)
		return ctx.Err()
	}
}

// slowly is copyEffects on a database that takes its time for each batch.
func slowly(d time.Duration) handlers.BatchHandlerFunc {
	return func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		if _, err := tx.Exec(ctx, `select pg_sleep($1)`, d.Seconds()); err != nil {
			return err
		}
		return copyEffects(ctx, tx, ms)
	}
}

func nothing(context.Context, pgx.Tx, []dedup.Message) error { return nil }

// The handlers that need more than a job: one that fails on each message once, and then writes nothing; a SQL
// function, and a webhook. The messages of the first and the last are parked.
const (
	failingOnce = "failing once"
	bySQL       = "sql"
	byWebhook   = "webhook"
)

// takeSQL is the function that a SQL function is measured by.
const takeSQL = `create function bench_take(m firstseen.message) returns void language sql as
	'insert into bench_effects (id, payload) values (m.id, sha256(m.payload))'`

func failOnce() handlers.Handler {
	var mu sync.Mutex
	failed := map[uuid.UUID]bool{}
	return handlers.HandlerFunc(func(_ context.Context, _ pgx.Tx, m dedup.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if failed[m.ID] {
			return nil
		}
		failed[m.ID] = true
		return errors.New("for the first time")
	})
}

// registration is the job's handler.
func (j job) registration(ctx context.Context, pool *pgxpool.Pool) (r handlers.Registration, err error) {
	r = handlers.Registration{Name: "bench", Topics: []string{j.Topic},
		Retry: handlers.Retry{Base: 10 * time.Millisecond, Cap: 10 * time.Millisecond}}
	switch workload := workloads[j.Handler]; {
	case workload != nil:
		r.Handler = workload(j)
	case j.Handler == failingOnce:
		r.Handler = handlers.Each(failOnce())
	case j.Handler == bySQL:
		r.Handler, err = handlers.NewSQL(ctx, pool, "", "bench_take")
	case j.Handler == byWebhook:
		r.Detached, err = handlers.NewWebhook(handlers.WebhookConfig{URL: j.URL, AllowPrivate: true,
			Timeout: time.Minute})
	default:
		err = fmt.Errorf("no workload %q", j.Handler)
	}
	return r, err
}

// Contend is firstseen as a contender: it reads its job from in, and writes its outcome to out. As a service it writes
// where it listens, and ends where in does.
func Contend(ctx context.Context, in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if j.Service != "" {
		return j.serve(ctx, in, out)
	}
	do := j.consume
	switch j.Handler {
	case fetchOnly:
		do = j.read
	case relayed:
		do = j.relay
	}
	o, err := do(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(o)
}

// consume runs the consumer until the group's positions say that all messages are through.
func (j job) consume(ctx context.Context) (o outcome, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	pool, err := j.pool(ctx)
	if err != nil {
		return o, err
	}
	defer pool.Close()
	c, processor, err := j.consumer(ctx, pool)
	if err != nil {
		return o, err
	}
	watch, err := pgx.Connect(ctx, j.DSN)
	if err != nil {
		return o, err
	}
	defer func() { _ = watch.Close(context.WithoutCancel(ctx)) }()
	before := mallocs()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	err = j.await(ctx, watch, start, &o)
	o.Allocations, o.PeakBytes = mallocs()-before, peakMemory()
	totals := processor.Totals()
	o.Failed, o.Dead = int(totals.Failed), int(totals.Dead)
	cancel()
	if e := <-ended; err == nil {
		err = e
	}
	return o, err
}

func mallocs() uint64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.Mallocs
}

// contenderName is the application_name of a contender's connections.
const contenderName = "contender"

// connections caps a contender's pool: as `firstseen run` does its own.
func (j job) connections() int { return cmp.Or(j.Transactions, 4) + 4 }

func (j job) pool(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(j.DSN)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(j.connections())
	cfg.ConnConfig.RuntimeParams["application_name"] = contenderName
	return pgxpool.NewWithConfig(ctx, cfg)
}

func (j job) consumer(ctx context.Context, pool *pgxpool.Pool) (*consumer.Consumer, *handlers.Processor, error) {
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: cmp.Or(j.Inbox, j.Group)})
	if err != nil {
		return nil, nil, err
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	registry := &handlers.Registry{}
	registration, err := j.registration(ctx, pool)
	if err == nil {
		err = registry.Add(registration)
	}
	if err != nil {
		return nil, nil, err
	}
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry, Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	if !j.Unlimited {
		debug.SetMemoryLimit(int64(cmp.Or(j.BufferBytes, consumer.DefaultBufferBytes)) + consumer.HeapBeside)
	}
	c, err := consumer.New(consumer.Config{Connection: consumer.Connection{Brokers: j.Brokers}, Group: j.Group,
		Transactions: j.Transactions,
		BufferBytes:  j.BufferBytes, HeartbeatInterval: j.Heartbeat, Logger: quiet}, processor)
	return c, processor, err
}

const progress = `select coalesce(sum(next_offset), 0)::bigint - (select count(*) from firstseen.parked
	join firstseen.scopes using (scope_id) where inbox = $2), count(owner) from firstseen.positions where consumer = $1`

// await looks until as many messages are behind the positions, and none of them parked, as the job has, and times it.
func (j job) await(ctx context.Context, conn *pgx.Conn, start time.Time, o *outcome) error {
	for {
		var done, owned int
		err := conn.QueryRow(ctx, progress, j.Group, cmp.Or(j.Inbox, j.Group)).Scan(&done, &owned)
		if o.Seconds, o.Messages = time.Since(start).Seconds(), done; o.FirstMessages == 0 && owned >= j.Partitions {
			o.FirstSeconds, o.FirstMessages = o.Seconds, done
		}
		if err != nil || done >= j.Messages {
			return err
		}
		if !wait.Sleep(ctx, o.nextLook(j.Messages)) {
			return context.Cause(ctx)
		}
	}
}

// nextLook is the time to the next look at what is done: looks must neither cost nor come late.
func (o *outcome) nextLook(messages int) time.Duration {
	if o.Messages == 0 {
		return 5 * time.Millisecond
	}
	left := o.Seconds * float64(messages-o.Messages) / float64(o.Messages)
	return min(max(time.Duration(left*float64(time.Second))/5, 2*time.Millisecond), 50*time.Millisecond)
}
