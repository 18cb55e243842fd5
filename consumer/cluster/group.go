package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/internal/wire"
)

// Group is a consumer group as its coordinator knows it.
type Group struct {
	// State is Kafka's word: "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", or "Dead" where there
	// is no such group.
	State   string
	Members []Member // sorted by ID
}

// Member is one member of a group.
type Member struct {
	ID, ClientID, Host string
	// Partitions are those that it was given, sorted; none while the group rebalances.
	Partitions []TopicPartition
}

// Owner finds the member that was given a partition; the zero Member where none was.
func (g *Group) Owner(topic string, partition int32) Member {
	for _, m := range g.Members {
		if slices.Contains(m.Partitions, TopicPartition{topic, partition}) {
			return m
		}
	}
	return Member{}
}

// Group describes a group. One that does not exist is "Dead", which is no error. The error matches ErrNotAllowed
// where the ACLs are the cause.
func (c *Cluster) Group(ctx context.Context, group string) (Group, error) {
	var found Group
	err := c.patiently(ctx, func() (err error) { found, err = c.describeGroup(ctx, group); return err })
	if errors.Is(err, kerr.GroupIDNotFound) {
		return Group{State: "Dead"}, nil
	}
	if err != nil {
		return Group{}, fmt.Errorf("describe group %s: %w", group, err)
	}
	return found, nil
}

func (c *Cluster) describeGroup(ctx context.Context, group string) (Group, error) {
	coordinator, err := c.wire.Coordinator(ctx, group)
	if err != nil {
		return Group{}, fmt.Errorf("find the coordinator: %w", err)
	}
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups = []string{group}
	answer := kmsg.NewDescribeGroupsResponse()
	if err := c.wire.Ask(ctx, wire.Call{Broker: coordinator, Request: request, Min: 0, Max: 5}, &answer); err != nil {
		return Group{}, err
	}
	for _, g := range answer.Groups {
		if g.Group == group {
			return readGroup(&g)
		}
	}
	return Group{}, wire.ErrLeftOut
}

func readGroup(g *kmsg.DescribeGroupsResponseGroup) (Group, error) {
	if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
		return Group{}, err
	}
	found := Group{State: g.State}
	for i := range g.Members {
		m, err := readMember(&g.Members[i])
		if err != nil {
			return Group{}, err
		}
		found.Members = append(found.Members, m)
	}
	slices.SortFunc(found.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return found, nil
}

func readMember(m *kmsg.DescribeGroupsResponseGroupMember) (Member, error) {
	found := Member{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost}
	if len(m.MemberAssignment) == 0 {
		return found, nil
	}
	assignment := kmsg.NewConsumerMemberAssignment()
	if err := assignment.ReadFrom(m.MemberAssignment); err != nil {
		return Member{}, fmt.Errorf("decode the assignment of member %s: %w", m.MemberID, err)
	}
	for _, t := range assignment.Topics {
		for _, p := range t.Partitions {
			found.Partitions = append(found.Partitions, TopicPartition{t.Topic, p})
		}
	}
	slices.SortFunc(found.Partitions, func(a, b TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return found, nil
}
