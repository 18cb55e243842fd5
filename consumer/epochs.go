package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A partition's leader has an epoch, which rises with each election and is written into every batch that it takes in. The
// last epoch that was read tells whether a log still is the one that was read (KIP-320): after an unclean leader election
// the same offsets hold other messages. It is remembered with each position, named in each fetch, and asked for at the
// start.

// epochStart says that positions from an offset on, up to the next epochStart, come after a message of an epoch.
type epochStart struct {
	from  int64
	epoch int32 // -1: not known
}

// epochs are the leader epochs of what was read of a partition, by ascending offsets. They are few: one for each election.
type epochs []epochStart

// note adds an epoch where it is another one than the last.
func (es *epochs) note(from int64, epoch int32) {
	n := len(*es)
	if n > 0 && ((*es)[n-1].epoch == epoch || epoch >= 0 && epoch < (*es)[n-1].epoch) {
		return // where an answer overlaps with the one before, its first epochs are older
	}
	*es = append(*es, epochStart{from, epoch})
}

func (es *epochs) add(more epochs) {
	for _, e := range more {
		es.note(e.from, e.epoch)
	}
}

// begin forgets everything but the epoch of the last message before an offset; nil: not known.
func (es *epochs) begin(next int64, epoch *int32) {
	*es = nil
	if epoch != nil {
		*es = epochs{{next, *epoch}}
	}
}

// cut forgets what lies beyond a position.
func (es *epochs) cut(next int64) {
	*es = slices.DeleteFunc(*es, func(e epochStart) bool { return e.from > next })
}

// at is the epoch of the last message before a position; nil: not known.
func (es epochs) at(next int64) *int32 {
	for _, e := range slices.Backward(es) {
		if e.from <= next && e.epoch >= 0 {
			return new(e.epoch)
		}
		if e.from <= next {
			break
		}
	}
	return nil
}

// divergedError is a broker's answer that its log is not the one that was read: of the epochs up to the one that was read
// last, epoch is the last one that its log has, and end is where that ends there.
type divergedError struct {
	epoch int32
	end   int64
}

func (d *divergedError) Error() string {
	return fmt.Sprintf("the log is not the one that was read: its leader epoch %d ends at %d", d.epoch, d.end)
}

// reading is how far a log was read: up to an offset, the last message before which was written under a leader epoch.
type reading struct {
	offset int64
	epoch  *int32 // nil: not known
}

// parting is where a log stops being the one that was read.
type parting struct {
	at int64
	// exact says that all below is the same. Else the logs may part earlier: the last epoch that was read is not in the log
	// at all.
	exact bool
}

// parted asks a partition's leader whether its log still is the one that was read; nil: yes, as far as can be known. named
// says that the epoch can be named in fetches from there on; one that the leader does not know would have them fail.
func (w *wire) parted(ctx context.Context, tp topicPartition, topicID uuid.UUID, read reading) (found *parting, named bool, err error) {
	if read.epoch == nil || read.offset == 0 {
		return nil, true, nil
	}
	led, answer, err := w.endOfEpoch(ctx, tp, *read.epoch)
	switch {
	case errors.Is(err, kerr.UnsupportedVersion): // a broker older than 2.3
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case answer.end < 0 || answer.epoch < 0:
		if led.leaderEpoch >= 0 && led.leaderEpoch < *read.epoch {
			return nil, false, fmt.Errorf("%s was read up to %d under the leader epoch %d, and its leader, broker %d, is only at epoch %d: "+
				"it is behind, or the cluster was set back", tp, read.offset, *read.epoch, led.leader, led.leaderEpoch)
		}
		return nil, false, nil // it keeps no epochs
	case answer.end < read.offset:
		return &parting{at: answer.end, exact: answer.epoch == *read.epoch}, true, nil
	case answer.epoch == *read.epoch:
		return nil, true, nil
	}
	return w.partedBefore(ctx, led, fetchPartition{topic: tp.topic, topicID: topicID, partition: tp.partition,
		leaderEpoch: led.leaderEpoch, offset: read.offset - 1, maxBytes: 1}, *read.epoch)
}

// partedBefore is for a log that does not know the epoch of the last message read, and goes on beyond it under an older one.
// A replica that was copied from a compacted log lacks the epochs of which compaction took all messages. So it is the last
// message itself that counts; where it is gone nothing is known.
func (w *wire) partedBefore(ctx context.Context, led partitionMetadata, last fetchPartition, epoch int32) (*parting, bool, error) {
	found, err := w.fetch(ctx, led.leader, []fetchPartition{last}, fetchOptions{maxBytes: 1})
	if err == nil {
		err = found[0].err
	}
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case found[0].lastStable < 0:
		return nil, false, errThrottled
	case len(found[0].epochs) == 0 || found[0].epochs[0].from > last.offset+1 || found[0].epochs[0].epoch == epoch:
		return nil, false, nil
	}
	return &parting{at: last.offset}, false, nil
}

// endOfEpoch asks a partition's leader where an epoch ends in its log, and says who that is.
func (w *wire) endOfEpoch(ctx context.Context, tp topicPartition, epoch int32) (led partitionMetadata, end divergedError, err error) {
	topics, err := w.metadata(ctx, []string{tp.topic})
	if err != nil {
		return led, end, err
	}
	if led, err = topics[tp.topic].partition(tp.partition); err != nil {
		return led, end, fmt.Errorf("leader of %s: %w", tp, err)
	}
	request := kmsg.NewPtrOffsetForLeaderEpochRequest()
	request.ReplicaID = -1
	topic, partition := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	partition.Partition, partition.CurrentLeaderEpoch, partition.LeaderEpoch = tp.partition, led.leaderEpoch, epoch
	topic.Topic, topic.Partitions = tp.topic, []kmsg.OffsetForLeaderEpochRequestTopicPartition{partition}
	request.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{topic}
	answer := kmsg.NewOffsetForLeaderEpochResponse()
	// Below version 3 it is for brokers only.
	if err = w.ask(ctx, call{broker: led.leader, request: request, min: 3, max: 4}, &answer); err == nil {
		end, err = readEndOfEpoch(tp, &answer)
	}
	if err != nil {
		err = fmt.Errorf("ask broker %d for the end of leader epoch %d of %s: %w", led.leader, epoch, tp, err)
	}
	return led, end, err
}

func readEndOfEpoch(tp topicPartition, answer *kmsg.OffsetForLeaderEpochResponse) (end divergedError, err error) {
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if t.Topic == tp.topic && p.Partition == tp.partition {
				return divergedError{p.LeaderEpoch, p.EndOffset}, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return end, errLeftOut
}
