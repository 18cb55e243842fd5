package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Timestamps with a meaning of their own for ListOffsets.
const (
	LatestOffset   = -1
	EarliestOffset = -2
	EndOffset      = -100 // our own: latest as read_uncommitted sees it, the high watermark
)

// ErrLeftOut says that a broker answered without a word about a partition that it was asked for.
var ErrLeftOut = errors.New("the broker left it out of its answer")

// ListOffsets asks the partitions' leaders for the first offset at or after a timestamp in milliseconds,
// or for EarliestOffset, EndOffset or LatestOffset, which is the last stable offset as read_committed sees it. The
// offset is -1 where no record is that late. The map holds what was found also beside an error, which
// names every partition that failed.
func (w *Client) ListOffsets(ctx context.Context, parts []TopicPartition, timestamp int64) (
	map[TopicPartition]int64, error) {
	records, err := w.ListRecords(ctx, parts, timestamp)
	found := make(map[TopicPartition]int64, len(records))
	for tp, r := range records {
		found[tp] = r.Offset
	}
	return found, err
}

// ListedRecord is a record that ListRecords found. timestamp is -1 where the offset was not asked for by a timestamp.
type ListedRecord struct{ Offset, Timestamp int64 }

// ListRecords is ListOffsets with the timestamps of what is found.
func (w *Client) ListRecords(ctx context.Context, parts []TopicPartition, timestamp int64) (
	map[TopicPartition]ListedRecord, error) {
	found := make(map[TopicPartition]ListedRecord, len(parts))
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

type ledPartition struct {
	TopicPartition
	epoch int32
}

// leaders groups partitions by their leaders; the error names those without one.
func (w *Client) leaders(ctx context.Context, parts []TopicPartition) (map[int32][]ledPartition, error) {
	topics, err := w.Metadata(ctx, topicsOf(parts))
	if err != nil {
		return nil, err
	}
	leaders := make(map[int32][]ledPartition)
	var faults []error
	for _, tp := range parts {
		p, err := topics[tp.Topic].Led(tp.Partition)
		if err != nil {
			faults = append(faults, fmt.Errorf("leader of %s: %w", tp, err))
			continue
		}
		leaders[p.Leader] = append(leaders[p.Leader], ledPartition{tp, p.LeaderEpoch})
	}
	return leaders, errors.Join(faults...)
}

func topicsOf(parts []TopicPartition) []string {
	var topics []string
	for _, tp := range parts {
		topics = append(topics, tp.Topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// listFrom adds the answers of one leader to found.
func (w *Client) listFrom(ctx context.Context, leader int32, led []ledPartition, timestamp int64,
	found map[TopicPartition]ListedRecord) error {
	answer := kmsg.NewListOffsetsResponse()
	// Version 2 brought the isolation level (KIP-98), 7 and later bring timestamps not used here.
	err := w.Ask(ctx, Call{Broker: leader, Request: listRequest(led, timestamp), Min: 2, Max: 6}, &answer)
	if err != nil {
		return fmt.Errorf("ask broker %d for %d partitions: %w", leader, len(led), err)
	}
	left := make(map[TopicPartition]error, len(led))
	for _, p := range led {
		left[p.TopicPartition] = ErrLeftOut
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p.Partition}
			if left[tp] = kerr.ErrorForCode(p.ErrorCode); left[tp] == nil {
				found[tp] = ListedRecord{p.Offset, p.Timestamp}
			}
		}
	}
	return joinByPartition(left)
}

func listRequest(led []ledPartition, timestamp int64) *kmsg.ListOffsetsRequest {
	request := kmsg.NewPtrListOffsetsRequest()
	request.IsolationLevel = 1
	if timestamp == EndOffset {
		request.IsolationLevel, timestamp = 0, LatestOffset
	}
	byTopic := make(map[string][]kmsg.ListOffsetsRequestTopicPartition)
	for _, p := range led {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.CurrentLeaderEpoch, partition.Timestamp = p.Partition, p.epoch, timestamp
		byTopic[p.Topic] = append(byTopic[p.Topic], partition)
	}
	for name, partitions := range byTopic {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic, topic.Partitions = name, partitions
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// joinByPartition makes one error of those that are set.
func joinByPartition(faults map[TopicPartition]error) error {
	var all []error
	for tp, err := range faults {
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", tp, err))
		}
	}
	return errors.Join(all...)
}
