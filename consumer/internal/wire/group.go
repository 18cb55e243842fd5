package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CommittedOffsets asks a group's coordinator for its committed offsets. A partition without a commit is
// absent in the map; whatever else keeps an offset from being known is an error and never an absence,
// also a commit that a producer's transaction has under way (KIP-447).
func (w *Client) CommittedOffsets(ctx context.Context, group string, parts []TopicPartition) (
	map[TopicPartition]Reading, error) {
	if len(parts) == 0 {
		return map[TopicPartition]Reading{}, nil
	}
	coordinator, err := w.Coordinator(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("find the coordinator of group %s: %w", group, err)
	}
	answer := kmsg.NewOffsetFetchResponse()
	// From version 8 on the request is one for many groups; before 2 a group's own error had no place.
	err = w.Ask(ctx, Call{Broker: coordinator, Request: committedRequest(group, parts), Min: 2, Max: 7}, &answer)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return map[TopicPartition]Reading{}, nil // kfake's way to say that there is no commit
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

// OffsetIn is the offset there, or -1.
func OffsetIn(readings map[TopicPartition]Reading, at TopicPartition) int64 {
	if r, ok := readings[at]; ok {
		return r.Offset
	}
	return -1
}

func readCommitted(parts []TopicPartition, answer *kmsg.OffsetFetchResponse) (map[TopicPartition]Reading, error) {
	found := make(map[TopicPartition]Reading, len(parts))
	left := make(map[TopicPartition]error, len(parts))
	for _, tp := range parts {
		left[tp] = ErrLeftOut
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p.Partition}
			left[tp] = kerr.ErrorForCode(p.ErrorCode)
			if p.Offset < 0 {
				continue
			}
			at := Reading{Offset: p.Offset}
			if p.LeaderEpoch >= 0 { // from version 5 on, where who committed it gave one
				at.Epoch = &p.LeaderEpoch
			}
			found[tp] = at
		}
	}
	return found, joinByPartition(left)
}

func committedRequest(group string, parts []TopicPartition) *kmsg.OffsetFetchRequest {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group, request.RequireStable = group, true
	byTopic := make(map[string][]int32)
	for _, tp := range parts {
		byTopic[tp.Topic] = append(byTopic[tp.Topic], tp.Partition)
	}
	for name, partitions := range byTopic {
		topic := kmsg.NewOffsetFetchRequestTopic()
		topic.Topic, topic.Partitions = name, partitions
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// GroupCommit is a commit of a group's offsets. generation is -1 and member empty for nobody's, which only a group
// without members allows.
type GroupCommit struct {
	Group      string
	Generation int32
	Member     string
	Offsets    map[TopicPartition]Reading
}

// CommitOffsets commits, and gives what is committed: where some are refused, which the error says, the others are.
func (w *Client) CommitOffsets(ctx context.Context, c GroupCommit) (done map[TopicPartition]Reading, err error) {
	coordinator, err := w.Coordinator(ctx, c.Group)
	if err != nil {
		return nil, fmt.Errorf("find the coordinator: %w", err)
	}
	answer := kmsg.NewOffsetCommitResponse()
	// Version 2 lets the broker say how long a commit is kept, 6 has leader epochs; from 9 on groups have other kinds
	// of members.
	err = w.Ask(ctx, Call{Broker: coordinator, Request: commitRequest(c), Min: 2, Max: 8}, &answer)
	if err != nil {
		return nil, err
	}
	left := make(map[TopicPartition]error, len(c.Offsets))
	for tp := range c.Offsets {
		left[tp] = ErrLeftOut
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			left[TopicPartition{t.Topic, p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
		}
	}
	done = make(map[TopicPartition]Reading, len(c.Offsets))
	for tp, at := range c.Offsets {
		if left[tp] == nil {
			done[tp] = at
		}
	}
	return done, joinByPartition(left)
}

func commitRequest(c GroupCommit) *kmsg.OffsetCommitRequest {
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Generation, request.MemberID = c.Group, c.Generation, c.Member
	byTopic := make(map[string][]kmsg.OffsetCommitRequestTopicPartition)
	for tp, read := range c.Offsets {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = tp.Partition, read.Offset
		if read.Epoch != nil {
			p.LeaderEpoch = *read.Epoch
		}
		byTopic[tp.Topic] = append(byTopic[tp.Topic], p)
	}
	for name, partitions := range byTopic {
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic, topic.Partitions = name, partitions
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// Coordinator returns the broker that keeps a group's offsets. A new cluster has none for some seconds.
func (w *Client) Coordinator(ctx context.Context, group string) (int32, error) {
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.CoordinatorKey = group
	answer := kmsg.NewFindCoordinatorResponse()
	if err := w.Ask(ctx, Call{Broker: AnyBroker, Request: request, Min: 0, Max: 2}, &answer); err != nil {
		return 0, err
	}
	return answer.NodeID, kerr.ErrorForCode(answer.ErrorCode)
}

// LeaveGroup takes a member out of its group. That it is not there is as good.
func (w *Client) LeaveGroup(ctx context.Context, group, member string) error {
	coordinator, err := w.Coordinator(ctx, group)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group, request.MemberID = group, member
	answer := kmsg.NewLeaveGroupResponse()
	if err := w.Ask(ctx, Call{Broker: coordinator, Request: request, Min: 0, Max: 2}, &answer); err != nil {
		return fmt.Errorf("leave group %s: %w", group, err)
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		return fmt.Errorf("leave group %s: %w", group, err)
	}
	return nil
}
