package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/crashtest/internal/receiver"
	"github.com/firstseen/firstseen/dedup/wait"
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// span is offsets, from one on and up to another, which is not in it.
type span struct{ from, to int64 }

// trial is one run.
type trial struct {
	s        *stack
	plan     *planned
	dice     *rand.Rand
	database string
	db       *pgxpool.Pool // past the proxies
	broker   *broker
	receiver *receiver.Receiver // nil where there are no webhooks
	group    *group
	sent     []sending
	records  []*kgo.Record // of sent
	ends     map[place]int64
	before   int64 // how many were done when the last ones were sent
	run      *RunResult
	holds    *tables // at the end
	marks    []marks // of the messages, once a row is to be explained
}

// play does a run to its end. Where messages are left undone, that is in the run and holds is what there is.
func (s *stack) play(ctx context.Context, p *planned) (t *trial, err error) {
	began := time.Now()
	t = &trial{s: s, plan: p, dice: rand.New(rand.NewPCG(p.seed, 1)), database: fmt.Sprintf("crash_%d", p.number),
		ends: map[place]int64{}, run: &RunResult{Number: p.number, Name: p.name}}
	if p.ahead {
		t.database += "_ahead"
	}
	defer t.close()
	var undone *undoneError
	if err := t.playAll(ctx); errors.As(err, &undone) {
		t.run.Undone = undone.Error()
	} else if err != nil {
		return t, fmt.Errorf("run %d (%s): %w", p.number, p.name, err)
	}
	t.group.close()
	if t.holds, err = s.read(ctx, t.db); err != nil {
		return t, err
	}
	t.addCalls()
	t.run.Seconds = time.Since(began).Seconds()
	return t, err
}

func (t *trial) playAll(ctx context.Context) error {
	log := t.plan.log(t.s.config, t.dice)
	share := (len(log) + len(t.plan.faults)) / (len(t.plan.faults) + 1)
	if err := t.begin(ctx, share); err != nil {
		return err
	}
	for _, k := range t.plan.faults {
		n := min(share, len(log))
		if err := t.meet(ctx, k, log[:n]); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		log = log[n:]
	}
	if err := t.send(ctx, log); err != nil {
		return err
	}
	return t.settle(ctx)
}

// begin makes the database, the broker and the first consumer. With faults, batches are to be some for each.
func (t *trial) begin(ctx context.Context, share int) (err error) {
	if err := t.s.newDatabase(ctx, t.database); err != nil {
		return err
	}
	if t.plan.ahead {
		if err := t.s.do(ctx, t.database, moveSequences); err != nil {
			return fmt.Errorf("move the sequences ahead: %w", err)
		}
	}
	if t.db, err = pgxpool.New(ctx, t.s.dsn(t.database)+"&pool_max_conns=16"); err != nil {
		return err
	}
	if err := t.openReceiver(); err != nil {
		return err
	}
	c, partitions := t.s.config, 1
	if t.plan.shuffled {
		partitions = c.Partitions
	}
	if t.broker, err = openBroker(ctx, c.Brokers, topics(c.Messages), partitions); err != nil {
		return err
	}
	batch := t.plan.batch
	if len(t.plan.faults) > 0 {
		const batches = 3
		batch = max(1, share/batches)
	}
	t.group = &group{s: t.s, broker: t.broker, database: t.database,
		told: Member{Batch: batch, Fail: t.plan.fail, Seed: t.plan.seed}}
	if t.receiver != nil {
		t.group.told.Receiver = t.receiver.URL()
	}
	return t.group.replace(ctx)
}

func (t *trial) close() {
	if t.group != nil {
		t.group.close()
	}
	if t.receiver != nil {
		t.receiver.Close()
	}
	if t.broker != nil {
		t.broker.close()
	}
	if t.db != nil {
		t.db.Close()
	}
	t.s.drop(t.database)
}

// send produces the next messages.
func (t *trial) send(ctx context.Context, next []sending) error {
	t.before, _, _ = t.progress(ctx)
	records := make([]*kgo.Record, len(next))
	for i, n := range next {
		m := &t.s.config.Messages[n.of]
		records[i] = &kgo.Record{Topic: m.Topic, Partition: n.partition, Key: m.Key, Value: m.Value, Headers: m.Headers,
			Timestamp: t.s.began.Add(time.Duration(n.of) * time.Millisecond)}
	}
	if err := t.broker.send(ctx, records); err != nil {
		return err
	}
	for _, r := range records {
		t.ends[place{r.Topic, r.Partition}] = r.Offset + 1
	}
	t.sent, t.records = append(t.sent, next...), append(t.records, records...)
	return nil
}

// reached are the offsets up to which Postgres says that messages are taken in.
func (t *trial) reached(ctx context.Context) (map[place]int64, error) {
	query := `select topic, "partition", max(next_offset) from ` + t.s.own("positions") +
		` where next_offset is not null group by topic, "partition"`
	rows, err := t.db.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	at, found := place{}, map[place]int64{}
	var next int64
	_, err = pgx.ForEachRow(rows, []any{&at.topic, &at.partition, &next}, func() error {
		found[at] = next
		return nil
	})
	return found, err
}

// progress counts what is taken in, and what of that is parked.
func (t *trial) progress(ctx context.Context) (done, parked int64, err error) {
	reached, err := t.reached(ctx)
	if err != nil {
		return 0, 0, err
	}
	for at, end := range t.ends {
		done += min(end, reached[at])
	}
	return done, parked, t.db.QueryRow(ctx, `select count(*) from `+t.s.own("parked")).Scan(&parked)
}

// open are the messages that are sent and not taken in.
func (t *trial) open(ctx context.Context) map[place]span {
	reached, err := t.reached(ctx)
	if err != nil {
		return nil
	}
	spans := map[place]span{}
	for at, end := range t.ends {
		if reached[at] < end {
			spans[at] = span{reached[at], end}
		}
	}
	return spans
}

// undoneError says that a run stands still with messages left.
type undoneError struct{ text string }

func (e *undoneError) Error() string { return e.text }

// awaitProgress waits until some of what was sent last is done.
func (t *trial) awaitProgress(ctx context.Context) error {
	return t.await(ctx, time.Millisecond, func(done, _, all int64) bool { return done > t.before || done == all })
}

// settle waits until all is done that was sent.
func (t *trial) settle(ctx context.Context) error {
	return t.await(ctx, 10*time.Millisecond, func(done, parked, all int64) bool { return done == all && parked == 0 })
}

// taken says whether all is taken in that was sent.
func (t *trial) taken(ctx context.Context) bool {
	done, _, err := t.progress(ctx)
	return err == nil && done == t.all()
}

// all counts what was sent.
func (t *trial) all() (all int64) {
	for _, end := range t.ends {
		all += end
	}
	return all
}

// await looks, at intervals, until enough is done, or nothing has moved for Config.Settle.
func (t *trial) await(ctx context.Context, interval time.Duration, enough func(done, parked, all int64) bool) error {
	var lastDone, lastParked int64
	all := t.all()
	for moved := time.Now(); ; {
		done, parked, err := t.progress(ctx)
		switch {
		case err == nil && enough(done, parked, all):
			t.group.failures = 0
			return nil
		case err == nil && (done != lastDone || parked != lastParked):
			lastDone, lastParked, moved = done, parked, time.Now()
		case time.Since(moved) > t.s.config.Settle:
			return t.undone(ctx, all-done, parked, err)
		}
		if err := t.group.attend(ctx); err != nil {
			return err
		}
		if !wait.Sleep(ctx, interval) {
			return context.Cause(ctx)
		}
	}
}

func (t *trial) undone(ctx context.Context, left, parked int64, err error) error {
	if err != nil {
		return fmt.Errorf("ask Postgres how far it is: %w", err)
	}
	var text string
	_ = t.db.QueryRow(ctx, `select error from `+t.s.own("parked")+` where error is not null limit 1`).Scan(&text)
	if text != "" {
		text = "; the first of them failed with: " + text
	}
	return &undoneError{fmt.Sprintf("nothing has moved for %s, with %d messages left and %d parked%s%s",
		t.s.config.Settle, left, parked, text, t.group.tail())}
}

// try does a run and holds it against what is right.
func (s *stack) try(ctx context.Context, p planned, right *reference) (*RunResult, error) {
	t, err := s.play(ctx, &p)
	if err != nil {
		return nil, err
	}
	t.run.Differences = t.differences(right)
	return t.run, nil
}
