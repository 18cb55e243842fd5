// Package deadtopic publishes dead letters to a topic, at least once each: deadtopic.go takes them from the table and
// sends them, record.go makes the record that a letter becomes.
package deadtopic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/produce"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/wait"
)

// poll is the time between two looks for dead letters.
const poll = time.Second

// Publisher publishes dead letters, from the table: they are in Postgres first and stay there, and a broker that is
// away or refuses one holds up nothing but the publishing. It is one goroutine's.
type Publisher struct {
	Topic     string
	Store     *dedup.Store
	Wire      *wire.Client
	Transport *kafka.Transport
	Brokers   []string
	Log       *slog.Logger
	Hold      *holds.Place
	Timeout   time.Duration // of a request
	Fresh     time.Duration // how long the partitions are taken for true

	partitions []int
	lookedUp   time.Time
}

// Run publishes until ctx ends; what is being published then is finished.
func (d *Publisher) Run(ctx context.Context) {
	defer d.Hold.Leave()
	retry := wait.NewBackoff()
	for ctx.Err() == nil {
		n, err := d.publish(ctx)
		if err != nil {
			d.partitions = nil
			if ctx.Err() == nil {
				d.Hold.Wait(holding.CodeOf(err), err)
			}
			retry.Wait(ctx)
			continue
		}
		retry = wait.NewBackoff()
		d.Hold.End()
		if n == 0 {
			wait.Sleep(ctx, poll)
		}
	}
}

// publish publishes a chunk and gives its size. It is not cut short at the end of ctx, or the chunk would be published
// again.
func (d *Publisher) publish(ctx context.Context) (int, error) {
	if err := d.lookUp(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*d.Timeout)
	defer cancel()
	return operate.Of(d.Store).PublishDead(ctx, d.Timeout, d.produce)
}

// lookUp learns the topic's partitions. No request of ours creates it.
func (d *Publisher) lookUp(ctx context.Context) error {
	if d.partitions != nil && time.Since(d.lookedUp) < d.Fresh {
		return nil
	}
	found, err := d.Wire.Metadata(ctx, []string{d.Topic})
	if err != nil {
		return holding.Kafka(err)
	}
	topic := found[d.Topic]
	if topic.Err != nil || len(topic.Partitions) == 0 {
		return holding.As(holds.DeadTopic, fmt.Errorf("dead letter topic %s: %w", d.Topic, cmp.Or(topic.Err,
			error(kerr.LeaderNotAvailable))))
	}
	d.partitions, d.lookedUp = nil, time.Now()
	for _, p := range topic.Partitions {
		d.partitions = append(d.partitions, int(p.ID))
	}
	return nil
}

// produce publishes dead letters and waits until all replicas have them.
func (d *Publisher) produce(ctx context.Context, letters []operate.DeadLetter) ([]operate.Fate, error) {
	fates := make([]operate.Fate, len(letters))
	byPartition := map[int][]int{}
	for i := range letters {
		p := d.partition(&letters[i].Message)
		byPartition[p] = append(byPartition[p], i)
	}
	var faults []error
	for _, p := range slices.Sorted(maps.Keys(byPartition)) {
		faults = append(faults, d.produceTo(ctx, p, letters, byPartition[p], fates))
	}
	return fates, errors.Join(faults...)
}

// partition keeps keys together, where Kafka's own producers would put them, and what has none with its old partition:
// that is -1 for what came from no partition, by HTTP.
func (d *Publisher) partition(m *dedup.Message) int {
	if m.Key == nil {
		return d.partitions[int(uint32(m.Partition))%len(d.partitions)] //nolint:gosec // a number is enough
	}
	return produce.Partition(m.Key, d.partitions)
}

// produceTo publishes those letters of one partition that places names.
func (d *Publisher) produceTo(ctx context.Context, partition int, letters []operate.DeadLetter, places []int,
	fates []operate.Fate) error {
	return holding.As(holds.DeadTopic, d.producer().Produce(ctx, produce.Run{Topic: d.Topic, Partition: partition,
		Record: func(place int) kafka.Record {
			l := &letters[place]
			return record(l, diagnostics(l, len(l.Error)))
		},
		Sent: func(place int) { fates[place] = operate.Published },
		Refused: func(ctx context.Context, place int, err error) (cut error) {
			fates[place], cut = d.produceCut(ctx, partition, &letters[place], err)
			return cut
		},
	}, places))
}

func (d *Publisher) producer() *produce.Producer {
	return &produce.Producer{Transport: d.Transport, Brokers: d.Brokers}
}

// produceCut publishes a letter that was refused whole: compressed if that helps, with less and less of the error, and
// at last with nothing but its ID.
func (d *Publisher) produceCut(ctx context.Context, partition int, l *operate.DeadLetter, err error) (
	operate.Fate, error) {
	for _, headers := range cuts(l) {
		if !produce.TooLarge(err) {
			break
		}
		compression := smaller(func() kafka.Record { return record(l, headers) })
		if err = d.producer().Send(ctx, d.Topic, partition, compression, record(l, headers)); err == nil {
			d.Log.Warn("dead letter was too large for its topic; published with less about it",
				"message_id", l.Message.ID)
			return operate.Published, nil
		}
	}
	if !produce.Refused(err) {
		return operate.Unpublished, err
	}
	d.Log.Error("dead letter can't be published, its topic's broker refuses it; it stays in Postgres only",
		"message_id", l.Message.ID, "handler", l.Handler, "topic", l.Message.Topic, "partition", l.Message.Partition,
		"offset", l.Message.Offset, "error", err)
	return operate.Unpublishable, nil
}
