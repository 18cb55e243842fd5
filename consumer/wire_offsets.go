package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Timestamps with a meaning of their own for listOffsets.
const (
	latestOffset   = -1
	earliestOffset = -2
	endOffset      = -100 // our own: latest as read_uncommitted sees it, the high watermark
)

// errLeftOut says that a broker answered without a word about a partition that it was asked for.
var errLeftOut = errors.New("the broker left it out of its answer")

// listOffsets asks the partitions' leaders for the first offset at or after a timestamp in milliseconds,
// or for earliestOffset, endOffset or latestOffset, which is the last stable offset as read_committed sees it. The
// offset is -1 where no record is that late. The map holds what was found also beside an error, which
// names every partition that failed.
func (w *wire) listOffsets(ctx context.Context, parts []topicPartition, timestamp int64) (map[topicPartition]int64, error) {
	records, err := w.listRecords(ctx, parts, timestamp)
	found := make(map[topicPartition]int64, len(records))
	for tp, r := range records {
		found[tp] = r.offset
	}
	return found, err
}

// listedRecord is a record that listRecords found. timestamp is -1 where the offset was not asked for by a timestamp.
type listedRecord struct{ offset, timestamp int64 }

// listRecords is listOffsets with the timestamps of what is found.
func (w *wire) listRecords(ctx context.Context, parts []topicPartition, timestamp int64) (map[topicPartition]listedRecord, error) {
	found := make(map[topicPartition]listedRecord, len(parts))
	leaders, err := w.leaders(ctx, parts)
	faults := []error{err}
	for leader, led := range leaders {
		faults = append(faults, w.listFrom(ctx, leader, led, timestamp, found))
	}
	if err := errors.Join(faults...); err != nil {
		return found, fmt.Errorf("list offsets at %d: %w", timestamp, err)
	}
	return found, nil
}

// ledPartition is a partition with the epoch of its leader.
type ledPartition struct {
	topicPartition
	epoch int32
}

// leaders groups partitions by their leaders; the error names those without one.
func (w *wire) leaders(ctx context.Context, parts []topicPartition) (map[int32][]ledPartition, error) {
	topics, err := w.metadata(ctx, topicsOf(parts))
	if err != nil {
		return nil, err
	}
	leaders := make(map[int32][]ledPartition)
	var faults []error
	for _, tp := range parts {
		p, err := topics[tp.topic].partition(tp.partition)
		if err != nil {
			faults = append(faults, fmt.Errorf("leader of %s: %w", tp, err))
			continue
		}
		leaders[p.leader] = append(leaders[p.leader], ledPartition{tp, p.leaderEpoch})
	}
	return leaders, errors.Join(faults...)
}

func topicsOf(parts []topicPartition) []string {
	var topics []string
	for _, tp := range parts {
		topics = append(topics, tp.topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// listFrom adds the answers of one leader to found.
func (w *wire) listFrom(ctx context.Context, leader int32, led []ledPartition, timestamp int64, found map[topicPartition]listedRecord) error {
	answer := kmsg.NewListOffsetsResponse()
	// Version 2 brought the isolation level (KIP-98), 7 and later bring timestamps not used here.
	err := w.ask(ctx, call{broker: leader, request: listRequest(led, timestamp), min: 2, max: 6}, &answer)
	if err != nil {
		return fmt.Errorf("ask broker %d for %d partitions: %w", leader, len(led), err)
	}
	left := make(map[topicPartition]error, len(led))
	for _, p := range led {
		left[p.topicPartition] = errLeftOut
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			tp := topicPartition{t.Topic, p.Partition}
			if left[tp] = kerr.ErrorForCode(p.ErrorCode); left[tp] == nil {
				found[tp] = listedRecord{p.Offset, p.Timestamp}
			}
		}
	}
	return joinByPartition(left)
}

func listRequest(led []ledPartition, timestamp int64) *kmsg.ListOffsetsRequest {
	request := kmsg.NewPtrListOffsetsRequest()
	request.IsolationLevel = 1
	if timestamp == endOffset {
		request.IsolationLevel, timestamp = 0, latestOffset
	}
	byTopic := make(map[string][]kmsg.ListOffsetsRequestTopicPartition)
	for _, p := range led {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.CurrentLeaderEpoch, partition.Timestamp = p.partition, p.epoch, timestamp
		byTopic[p.topic] = append(byTopic[p.topic], partition)
	}
	for name, partitions := range byTopic {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic, topic.Partitions = name, partitions
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// joinByPartition makes one error of those that are set.
func joinByPartition(faults map[topicPartition]error) error {
	var all []error
	for tp, err := range faults {
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", tp, err))
		}
	}
	return errors.Join(all...)
}
