package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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

// leaveGroup takes a member out of its group. That it is not there is as good.
func (w *wire) leaveGroup(ctx context.Context, group, member string) error {
	coordinator, err := w.coordinator(ctx, group)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group, request.MemberID = group, member
	answer := kmsg.NewLeaveGroupResponse()
	if err := w.ask(ctx, call{broker: coordinator, request: request, min: 0, max: 2}, &answer); err != nil {
		return fmt.Errorf("leave group %s: %w", group, err)
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		return fmt.Errorf("leave group %s: %w", group, err)
	}
	return nil
}
