package crashtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/dedup/wait"
)

// broker is the cluster of one run, with the sample's topics.
type broker struct {
	addrs    []string
	topics   []string
	client   *kgo.Client
	admin    *kadm.Client
	embedded *kfake.Cluster  // nil where a cluster was named
	groups   map[string]bool // that our consumers were in
}

// openBroker connects to a cluster, or starts one in this process where none is named, and makes the topics.
func openBroker(ctx context.Context, addrs, topics []string, partitions int) (_ *broker, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	b := &broker{addrs: addrs, groups: map[string]bool{}}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if len(addrs) == 0 {
		if b.embedded, err = kfake.NewCluster(kfake.NumBrokers(1)); err != nil {
			return nil, fmt.Errorf("start the embedded broker: %w", err)
		}
		b.addrs = b.embedded.ListenAddrs()
	}
	b.client, err = kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.ClientID(ourName), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(20*time.Millisecond))
	if err != nil {
		return nil, err
	}
	b.admin = kadm.NewClient(b.client)
	for _, topic := range topics {
		const replicas = -1 // as many as the broker makes by default
		if _, err := b.admin.CreateTopic(ctx, int32(partitions), replicas, nil, topic); err != nil {
			return nil, fmt.Errorf("create topic %s: %w", topic, err)
		}
		b.topics = append(b.topics, topic)
	}
	return b, b.await(ctx, partitions)
}

// await waits until all partitions can be read and written.
func (b *broker) await(ctx context.Context, partitions int) error {
	for {
		ends, err := b.admin.ListEndOffsets(ctx, b.topics...)
		if err == nil {
			err = ends.Error()
		}
		there := !slices.ContainsFunc(b.topics, func(t string) bool { return len(ends[t]) != partitions })
		if err == nil && there {
			return nil
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// close deletes what was made on a cluster that is there.
func (b *broker) close() {
	if b.client != nil {
		if b.embedded == nil {
			b.clean()
		}
		b.client.Close()
	}
	if b.embedded != nil {
		b.embedded.Close()
	}
}

// clean deletes our groups and topics, with nobody left in them. What can't be deleted the next run says.
func (b *broker) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	groups := slices.Collect(maps.Keys(b.groups))
	if described, err := b.admin.DescribeGroups(ctx, groups...); err == nil {
		for _, g := range described {
			_ = b.leave(ctx, g, nil)
		}
	}
	_, _ = b.admin.DeleteGroups(ctx, groups...)
	_, _ = b.admin.DeleteTopics(ctx, b.topics...)
	for wait.Sleep(ctx, 20*time.Millisecond) {
		listed, err := b.admin.ListTopics(ctx, b.topics...)
		if err == nil && !slices.ContainsFunc(b.topics, listed.Has) {
			return
		}
	}
}

// send produces records in their order. They get the offsets that they are written to.
func (b *broker) send(ctx context.Context, records []*kgo.Record) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	if err := b.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return nil
}

// settleMembers takes all members but those of some client IDs out of the groups that these are in, and says
// whether there is one. A member that was killed can't say goodbye, and the group would wait for its session to
// end. It is taken out once its successor is there: a group that is empty may make the next one wait for others.
func (b *broker) settleMembers(ctx context.Context, clientIDs ...string) (joined bool, err error) {
	listed, err := b.admin.ListGroups(ctx)
	if err != nil {
		return false, err
	}
	groups, err := b.admin.DescribeGroups(ctx, listed.Groups()...)
	if err != nil {
		return false, err
	}
	for _, g := range groups {
		there := map[string]bool{}
		for _, m := range g.Members {
			there[m.ClientID] = true
		}
		if slices.ContainsFunc(clientIDs, func(id string) bool { return !there[id] }) {
			continue
		}
		joined, b.groups[g.Group] = true, true
		if err := b.leave(ctx, g, clientIDs); err != nil {
			return true, err
		}
	}
	return joined, nil
}

// leave takes all members out of a group but those of some client IDs.
func (b *broker) leave(ctx context.Context, g kadm.DescribedGroup, but []string) error {
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = g.Group
	for _, m := range g.Members {
		if !slices.Contains(but, m.ClientID) {
			gone := kmsg.NewLeaveGroupRequestMember()
			gone.MemberID = m.MemberID
			leave.Members = append(leave.Members, gone)
		}
	}
	if len(leave.Members) == 0 {
		return nil
	}
	_, err := leave.RequestWith(ctx, b.client)
	return err
}
