package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// failingBatch is the number of a batch's messages.
const failingBatch = 1000

// failRates are shares of the messages that fail, each with the least part of the rate that should be left.
var failRates = []struct {
	perMille int
	goal     float64
}{{1, .95}, {10, .8}, {100, .4}}

// failing takes batches of which some messages fail, each with a key of its own, through handlers that queue an INSERT
// for each message. What fails stays parked.
func failing(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	if _, err := d.pool.Exec(ctx,
		`alter table bench_effects add constraint has_payload check (payload <> '')`); err != nil {
		return err
	}
	batches := l.pick(40, 12)
	contenders := []contender{l.failingAt(ctx, d, 0, batches)}
	for _, r := range failRates {
		contenders = append(contenders, l.failingAt(ctx, d, r.perMille, batches))
	}
	all, err := interleave(l.pick(7, 3), contenders...)
	if err != nil {
		return err
	}
	whole := all[failingName(0)]
	results := []Result{whole.result(failingName(0), "msg/s")}
	for _, r := range failRates {
		name := failingName(r.perMille)
		results = append(results, all[name].against(whole, name, "msg/s", failingName(0)).atLeast(r.goal))
	}
	return l.report(results...)
}

func failingName(perMille int) string { return fmt.Sprintf("%g %% failing", float64(perMille)/10) }

func (l *lab) failingAt(ctx context.Context, d *database, perMille, batches int) contender {
	return contender{failingName(perMille), func() (float64, error) {
		f, err := d.line(ctx, l.name())
		if err != nil {
			return 0, err
		}
		made := failingBatches(f.position.Topic, perMille, 1+batches)
		if err := f.process(ctx, made[:1]); err != nil { // warms up
			return 0, err
		}
		start := time.Now()
		if err := f.process(ctx, made[1:]); err != nil {
			return 0, err
		}
		rate := float64(batches*failingBatch) / time.Since(start).Seconds()
		return rate, f.check(ctx, len(made)*perMille, len(made)*failingBatch)
	}}
}

// failingBatches makes batches with these failures in a thousand, evenly spread: a message without a value fails.
func failingBatches(topic string, perMille, batches int) [][]dedup.Message {
	made := make([][]dedup.Message, batches)
	offset := int64(0)
	for b := range made {
		made[b] = make([]dedup.Message, failingBatch)
		for i := range made[b] {
			id := uuid.Must(uuid.NewV7())
			made[b][i] = dedup.Message{ID: id, Topic: topic, Offset: offset,
				Key: []byte(id.String()), Value: payload()}
			if perMille > 0 && i%(failingBatch/perMille) == failingBatch/perMille/2 {
				made[b][i].Value = []byte{}
			}
			offset++
		}
	}
	return made
}

// line is a processor with one partition's position, and an inbox of its own.
type line struct {
	d         *database
	inbox     string
	processor *handlers.Processor
	position  *dedup.Position
}

// line begins a partition whose messages are queued as effects; the name is its topic's and its inbox's.
func (d *database) line(ctx context.Context, name string) (*line, error) {
	if err := d.empty(ctx); err != nil {
		return nil, err
	}
	store, err := dedup.Open(ctx, d.pool, dedup.Config{Inbox: name})
	if err != nil {
		return nil, err
	}
	f := &line{d: d, inbox: name}
	if f.processor, err = queueing(store, name, handlers.QueuedFunc(queueEffect), handlers.Retry{Base: time.Hour,
		Cap: time.Hour}); err != nil {
		return nil, err
	}
	if f.position, err = store.Acquire(ctx, name, name, 0, "bench"); err != nil {
		return nil, err
	}
	return f, store.Reposition(ctx, f.position, 0, uuid.Nil, nil)
}

// queueing is a processor with one handler, that logs nothing.
func queueing(store *dedup.Store, topic string, h handlers.Queued, retry handlers.Retry) (*handlers.Processor, error) {
	registry := &handlers.Registry{}
	err := registry.Add(handlers.Registration{Name: "bench", Topics: []string{topic}, Handler: handlers.Queue(h),
		Retry: retry})
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	return handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry, Logger: quiet})
}

func (f *line) process(ctx context.Context, batches [][]dedup.Message) error {
	for _, ms := range batches {
		_, err := f.processor.Process(ctx, handlers.Batch{Position: f.position, Next: f.position.Next + int64(len(ms)),
			Messages: ms})
		if err != nil {
			return err
		}
	}
	return nil
}

// check sees that what failed is parked and all else handled.
func (f *line) check(ctx context.Context, failed, messages int) error {
	const parked = `select count(*) from firstseen.parked join firstseen.scopes using (scope_id) where inbox = $1`
	if err := f.d.expect(ctx, failed, parked, f.inbox); err != nil {
		return err
	}
	return f.d.expectEffects(ctx, messages-failed)
}
