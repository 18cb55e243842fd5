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

// partition returns a partition that has a leader, or why there is none.
func (t topicMetadata) partition(id int32) (partitionMetadata, error) {
	if t.err != nil {
		return partitionMetadata{}, t.err
	}
	for _, p := range t.partitions {
		switch {
		case p.id != id:
		case p.leader < 0:
			return p, errors.Join(kerr.LeaderNotAvailable, p.err)
		default:
			return p, nil // an error beside a leader is a replica's
		}
	}
	return partitionMetadata{}, kerr.UnknownTopicOrPartition
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

// committedOffsets asks a group's coordinator for its committed offsets. A partition without a commit is
// absent in the map; whatever else keeps an offset from being known is an error and never an absence,
// also a commit that a producer's transaction has under way (KIP-447).
func (w *wire) committedOffsets(ctx context.Context, group string, parts []topicPartition) (map[topicPartition]reading, error) {
	if len(parts) == 0 {
		return map[topicPartition]reading{}, nil
	}
	coordinator, err := w.coordinator(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("find the coordinator of group %s: %w", group, err)
	}
	answer := kmsg.NewOffsetFetchResponse()
	// From version 8 on the request is one for many groups; before 2 a group's own error had no place.
	err = w.ask(ctx, call{broker: coordinator, request: committedRequest(group, parts), min: 2, max: 7}, &answer)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return map[topicPartition]reading{}, nil // kfake's way to say that there is no commit
	}
	if err != nil {
		return nil, fmt.Errorf("committed offsets of group %s from broker %d: %w", group, coordinator, err)
	}
	found, err := readCommitted(parts, &answer)
	if err != nil {
		return nil, fmt.Errorf("committed offsets of group %s: %w", group, err)
	}
	return found, nil
}

func readCommitted(parts []topicPartition, answer *kmsg.OffsetFetchResponse) (map[topicPartition]reading, error) {
	found := make(map[topicPartition]reading, len(parts))
	left := make(map[topicPartition]error, len(parts))
	for _, tp := range parts {
		left[tp] = errLeftOut
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			tp := topicPartition{t.Topic, p.Partition}
			left[tp] = kerr.ErrorForCode(p.ErrorCode)
			if p.Offset < 0 {
				continue
			}
			at := reading{offset: p.Offset}
			if p.LeaderEpoch >= 0 { // from version 5 on, where who committed it gave one
				at.epoch = &p.LeaderEpoch
			}
			found[tp] = at
		}
	}
	return found, joinByPartition(left)
}

func committedRequest(group string, parts []topicPartition) *kmsg.OffsetFetchRequest {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group, request.RequireStable = group, true
	byTopic := make(map[string][]int32)
	for _, tp := range parts {
		byTopic[tp.topic] = append(byTopic[tp.topic], tp.partition)
	}
	for name, partitions := range byTopic {
		topic := kmsg.NewOffsetFetchRequestTopic()
		topic.Topic, topic.Partitions = name, partitions
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// groupCommit is what a group has read. generation is -1 and member empty for nobody's, which only a group without members
// allows.
type groupCommit struct {
	group      string
	generation int32
	member     string
	offsets    map[topicPartition]reading
}

// commitOffsets commits, and gives what is committed: where some are refused, which the error says, the others are.
func (w *wire) commitOffsets(ctx context.Context, c groupCommit) (done map[topicPartition]reading, err error) {
	coordinator, err := w.coordinator(ctx, c.group)
	if err != nil {
		return nil, fmt.Errorf("find the coordinator: %w", err)
	}
	answer := kmsg.NewOffsetCommitResponse()
	// Version 2 lets the broker say how long a commit is kept, 6 has leader epochs; from 9 on groups have other kinds of members.
	err = w.ask(ctx, call{broker: coordinator, request: commitRequest(c), min: 2, max: 8}, &answer)
	if err != nil {
		return nil, err
	}
	left := make(map[topicPartition]error, len(c.offsets))
	for tp := range c.offsets {
		left[tp] = errLeftOut
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			left[topicPartition{t.Topic, p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
		}
	}
	done = make(map[topicPartition]reading, len(c.offsets))
	for tp, at := range c.offsets {
		if left[tp] == nil {
			done[tp] = at
		}
	}
	return done, joinByPartition(left)
}

func commitRequest(c groupCommit) *kmsg.OffsetCommitRequest {
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Generation, request.MemberID = c.group, c.generation, c.member
	byTopic := make(map[string][]kmsg.OffsetCommitRequestTopicPartition)
	for tp, read := range c.offsets {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = tp.partition, read.offset
		if read.epoch != nil {
			p.LeaderEpoch = *read.epoch
		}
		byTopic[tp.topic] = append(byTopic[tp.topic], p)
	}
	for name, partitions := range byTopic {
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic, topic.Partitions = name, partitions
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// coordinator returns the broker that keeps a group's offsets. A new cluster has none for some seconds.
func (w *wire) coordinator(ctx context.Context, group string) (int32, error) {
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.CoordinatorKey = group
	answer := kmsg.NewFindCoordinatorResponse()
	if err := w.ask(ctx, call{broker: anyBroker, request: request, min: 0, max: 2}, &answer); err != nil {
		return 0, err
	}
	return answer.NodeID, kerr.ErrorForCode(answer.ErrorCode)
}
