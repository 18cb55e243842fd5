package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Earliest finds the first offset that is left in each of a topic's partitions. As in Read, brokers that are away are
// waited for, and a topic that does not exist is an error.
func (r *Reader) Earliest(ctx context.Context, topic string) (map[int32]int64, error) {
	return r.offsets(ctx, topic, nil, wire.EarliestOffset)
}

// Latest finds where each of a topic's partitions ends for a reader of committed messages: its last stable offset.
// Waits and errors are those of Earliest.
func (r *Reader) Latest(ctx context.Context, topic string) (map[int32]int64, error) {
	return r.offsets(ctx, topic, nil, wire.LatestOffset)
}

// At finds the first offset in each of a topic's partitions whose timestamp is at or after a time, or where there is
// none that late, the partition's end. Waits and errors are those of Earliest.
func (r *Reader) At(ctx context.Context, topic string, at time.Time) (map[int32]int64, error) {
	ends, err := r.Latest(ctx, topic) // before, so that what is produced meanwhile is not passed over
	if err != nil {
		return nil, err
	}
	// Kafka counts milliseconds, and gives negative ones a meaning of their own.
	millis := max(0, at.Add(time.Millisecond-time.Nanosecond).UnixMilli())
	offsets, err := r.offsets(ctx, topic, slices.Sorted(maps.Keys(ends)), millis)
	for p, offset := range offsets {
		if offset < 0 {
			offsets[p] = ends[p]
		}
	}
	return offsets, err
}

func (r *Reader) offsets(ctx context.Context, topic string, partitions []int32, timestamp int64) (map[int32]int64,
	error) {
	_, offsets, err := r.lookUp(ctx, topic, partitions, timestamp)
	if err != nil {
		return nil, fmt.Errorf("offsets of topic %s: %w", topic, err)
	}
	return offsets, nil
}

// errMissing says that a topic or partition is not there, as far as the cluster knows.
var errMissing = errors.New("does not exist")

// lookUp finds offsets of some of a topic's partitions, or of all. It tries until it is answered or ctx ends.
func (r *Reader) lookUp(ctx context.Context, name string, partitions []int32, timestamp int64) (
	topic wire.Topic, offsets map[int32]int64, err error) {
	var before error
	hold := r.holds.Place(holds.TopicKind, name)
	defer hold.Leave()
	for retry := wait.NewBackoff(); ; retry.Wait(ctx) {
		topic, offsets, err = r.ask(ctx, name, partitions, timestamp)
		switch {
		case err == nil || errors.Is(err, errMissing):
			hold.End()
			return topic, offsets, err
		case ctx.Err() != nil:
			return topic, nil, fmt.Errorf("%w: %w", context.Cause(ctx), cmp.Or(before, err))
		}
		hold.Wait(holds.Kafka, fmt.Errorf("find offsets: %w", err))
		before = err
	}
}

// ask is one try of lookUp.
func (r *Reader) ask(ctx context.Context, name string, partitions []int32, timestamp int64) (
	topic wire.Topic, offsets map[int32]int64, err error) {
	topics, err := r.wire.Metadata(ctx, []string{name})
	if err != nil {
		return topic, nil, err
	}
	if topic = topics[name]; wire.IsGone(topic.Err) || errors.Is(topic.Err, kerr.InvalidTopicException) {
		return topic, nil, fmt.Errorf("it %w", errMissing)
	}
	parts, err := some(topic, partitions)
	if err != nil {
		return topic, nil, err
	}
	found, err := r.wire.ListOffsets(ctx, parts, timestamp)
	offsets = make(map[int32]int64, len(found))
	for tp, offset := range found {
		offsets[tp.Partition] = offset
	}
	return topic, offsets, err
}

// some names some of a topic's partitions, or all where partitions is nil.
func some(t wire.Topic, partitions []int32) (parts []wire.TopicPartition, err error) {
	if t.Err != nil {
		return nil, t.Err
	}
	for _, p := range t.Partitions {
		if partitions == nil {
			parts = append(parts, wire.TopicPartition{Topic: t.Name, Partition: p.ID})
		}
	}
	for _, id := range partitions {
		if !slices.ContainsFunc(t.Partitions, func(p wire.Partition) bool { return p.ID == id }) {
			return nil, fmt.Errorf("partition %d %w", id, errMissing)
		}
		parts = append(parts, wire.TopicPartition{Topic: t.Name, Partition: id})
	}
	return parts, nil
}
