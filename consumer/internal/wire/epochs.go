package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A partition's leader has an epoch, which rises with each election and is written into every batch that it takes in.
// The last epoch that was read tells whether a log still is the one that was read (KIP-320): after an unclean leader
// election the same offsets hold other messages. It is remembered with each position, named in each fetch, and asked
// for at the start.

// epochStart says that positions from an offset on, up to the next epochStart, come after a message of an epoch.
type epochStart struct {
	from  int64
	epoch int32 // -1: not known
}

// Epochs are the leader epochs of what was read of a partition, by ascending offsets. They are few: one for each
// election.
type Epochs []epochStart

// note adds an epoch where it is another one than the last.
func (es *Epochs) note(from int64, epoch int32) {
	n := len(*es)
	if n > 0 && ((*es)[n-1].epoch == epoch || epoch >= 0 && epoch < (*es)[n-1].epoch) {
		return // where an answer overlaps with the one before, its first epochs are older
	}
	*es = append(*es, epochStart{from, epoch})
}

func (es *Epochs) Add(more Epochs) {
	for _, e := range more {
		es.note(e.from, e.epoch)
	}
}

// Begin forgets everything but the epoch of the last message before an offset; nil: not known.
func (es *Epochs) Begin(next int64, epoch *int32) {
	*es = nil
	if epoch != nil {
		*es = Epochs{{next, *epoch}}
	}
}

// Cut forgets what lies beyond a position.
func (es *Epochs) Cut(next int64) {
	*es = slices.DeleteFunc(*es, func(e epochStart) bool { return e.from > next })
}

// At is the epoch of the last message before a position; nil: not known.
func (es Epochs) At(next int64) *int32 {
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

// DivergedError is a broker's answer that its log is not the one that was read: of the epochs up to the one that was
// read last, epoch is the last one that its log has, and end is where that ends there.
type DivergedError struct {
	epoch int32
	end   int64
}

func (d *DivergedError) Error() string {
	return fmt.Sprintf("the log is not the one that was read: its leader epoch %d ends at %d", d.epoch, d.end)
}

// Reading is a place up to which a log was read, with the leader epoch of the last message before it.
type Reading struct {
	Offset int64
	Epoch  *int32 // nil: not known
}

// Parting is the offset from which a log is not the one that was read.
type Parting struct {
	At int64
	// Exact says that all below is the same. Else the logs may part earlier: the last epoch that was read is not in
	// the log at all.
	Exact bool
}

// Parted asks a partition's leader whether its log still is the one that was read; nil: yes, as far as can be known.
// named says that the epoch can be named in fetches from there on; one that the leader does not know would have them
// fail.
func (w *Client) Parted(ctx context.Context, tp TopicPartition, topicID uuid.UUID, read Reading) (
	found *Parting, named bool, err error) {
	if read.Epoch == nil || read.Offset == 0 {
		return nil, true, nil
	}
	led, answer, err := w.endOfEpoch(ctx, tp, *read.Epoch)
	switch {
	case errors.Is(err, kerr.UnsupportedVersion): // a broker older than 2.3
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case answer.end < 0 || answer.epoch < 0:
		if led.LeaderEpoch >= 0 && led.LeaderEpoch < *read.Epoch {
			return nil, false, fmt.Errorf("%s was read up to %d under the leader epoch %d, "+
				"and its leader, broker %d, is only at epoch %d: it is behind, or the cluster was set back",
				tp, read.Offset, *read.Epoch, led.Leader, led.LeaderEpoch)
		}
		return nil, false, nil // it keeps no epochs
	case answer.end < read.Offset:
		return &Parting{At: answer.end, Exact: answer.epoch == *read.Epoch}, true, nil
	case answer.epoch == *read.Epoch:
		return nil, true, nil
	}
	return w.partedBefore(ctx, led, FetchPartition{Topic: tp.Topic, TopicID: topicID, Partition: tp.Partition,
		LeaderEpoch: led.LeaderEpoch, Offset: read.Offset - 1, MaxBytes: 1}, *read.Epoch)
}

// partedBefore looks at a log that does not know the epoch of the last message read, and goes on beyond it under an
// older one. A replica that was copied from a compacted log lacks the epochs of which compaction took all messages. So
// it is the last message itself that counts; where it is gone nothing is known.
func (w *Client) partedBefore(ctx context.Context, led Partition, last FetchPartition, epoch int32) (
	*Parting, bool, error) {
	found, err := w.Fetch(ctx, led.Leader, []FetchPartition{last}, FetchOptions{MaxBytes: 1})
	if err == nil {
		err = found[0].Err
	}
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case found[0].LastStable < 0:
		return nil, false, ErrThrottled
	case len(found[0].Epochs) == 0 || found[0].Epochs[0].from > last.Offset+1 || found[0].Epochs[0].epoch == epoch:
		return nil, false, nil
	}
	return &Parting{At: last.Offset}, false, nil
}

// endOfEpoch asks a partition's leader where an epoch ends in its log, and says who that is.
func (w *Client) endOfEpoch(ctx context.Context, tp TopicPartition, epoch int32) (
	led Partition, end DivergedError, err error) {
	topics, err := w.Metadata(ctx, []string{tp.Topic})
	if err != nil {
		return led, end, err
	}
	if led, err = topics[tp.Topic].Led(tp.Partition); err != nil {
		return led, end, fmt.Errorf("leader of %s: %w", tp, err)
	}
	request := kmsg.NewPtrOffsetForLeaderEpochRequest()
	request.ReplicaID = -1
	topic, partition := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	partition.Partition, partition.CurrentLeaderEpoch, partition.LeaderEpoch = tp.Partition, led.LeaderEpoch, epoch
	topic.Topic, topic.Partitions = tp.Topic, []kmsg.OffsetForLeaderEpochRequestTopicPartition{partition}
	request.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{topic}
	answer := kmsg.NewOffsetForLeaderEpochResponse()
	// Below version 3 it is for brokers only.
	if err = w.Ask(ctx, Call{Broker: led.Leader, Request: request, Min: 3, Max: 4}, &answer); err == nil {
		end, err = readEndOfEpoch(tp, &answer)
	}
	if err != nil {
		err = fmt.Errorf("ask broker %d for the end of leader epoch %d of %s: %w", led.Leader, epoch, tp, err)
	}
	return led, end, err
}

func readEndOfEpoch(tp TopicPartition, answer *kmsg.OffsetForLeaderEpochResponse) (end DivergedError, err error) {
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if t.Topic == tp.Topic && p.Partition == tp.Partition {
				return DivergedError{p.LeaderEpoch, p.EndOffset}, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return end, ErrLeftOut
}
