package devstack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/dedup/wait"
)

// broker is the cluster that is produced to, with the topic and the group of this run.
type broker struct {
	addr     string
	topic    string
	group    string
	client   *kgo.Client
	admin    *kadm.Client
	embedded *kfake.Cluster // nil where the cluster was named
	second   *broker        // the same with the topic that the outbox is sent to, and its group; nil: there is none
}

// openBroker connects to a cluster, or starts one in this process where none is named, and makes the topic.
func openBroker(ctx context.Context, addr string, n names, partitions int) (_ *broker, err error) {
	b := &broker{addr: addr, topic: n.Topic, group: n.Group}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if addr == "" {
		if b.embedded, err = kfake.NewCluster(kfake.NumBrokers(1)); err != nil {
			return nil, fmt.Errorf("start the embedded broker: %w", err)
		}
		b.addr = b.embedded.ListenAddrs()[0]
	}
	b.client, err = kgo.NewClient(kgo.SeedBrokers(b.addr),
		kgo.DefaultProduceTopic(n.Topic), kgo.ClientID("firstseen-dev"), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", b.addr, err)
	}
	b.admin = kadm.NewClient(b.client)
	if err := b.createTopic(ctx, partitions); err != nil {
		return nil, fmt.Errorf("create topic %s on %s: %w", n.Topic, b.addr, err)
	}
	if n.Sent != "" {
		second := *b
		second.topic, second.group = n.Sent, n.Second
		if err := second.createTopic(ctx, partitions); err != nil {
			return nil, fmt.Errorf("create topic %s on %s: %w", n.Sent, b.addr, err)
		}
		b.second = &second
	}
	return b, nil
}

func (b *broker) createTopic(ctx context.Context, partitions int) error {
	const limit, replicas = 30 * time.Second, -1 // as many as the broker makes by default
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var configs map[string]*string
	if b.embedded != nil { // it frees whole segments only, see trim
		configs = map[string]*string{"segment.bytes": kadm.StringPtr("1048576")}
	}
	if _, err := b.admin.CreateTopic(ctx, int32(partitions), replicas, configs, b.topic); err != nil {
		return err
	}
	for { // a real cluster takes a moment until each partition has its leader
		ends, err := b.admin.ListEndOffsets(ctx, b.topic)
		if err == nil && ends.Error() == nil && len(ends[b.topic]) == partitions {
			return nil
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return errors.Join(context.Cause(ctx), err, ends.Error())
		}
	}
}

func (b *broker) close() {
	if b.client != nil {
		b.client.Close()
	}
	if b.embedded != nil {
		b.embedded.Close()
	}
}

// lag counts the messages beyond the groups' committed offsets.
func (b *broker) lag(ctx context.Context) (lag int64, err error) {
	if b.second != nil {
		if lag, err = b.second.lag(ctx); err != nil {
			return 0, err
		}
	}
	ends, err := b.admin.ListEndOffsets(ctx, b.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("read end offsets of %s: %w", b.topic, err)
	}
	committed, err := b.committed(ctx)
	if err != nil {
		return 0, err
	}
	ends.Each(func(end kadm.ListedOffset) {
		lag += end.Offset
		if at, ok := committed.Lookup(end.Topic, end.Partition); ok && at.At > 0 {
			lag -= at.At
		}
	})
	return lag, nil
}

func (b *broker) committed(ctx context.Context) (kadm.OffsetResponses, error) {
	committed, err := b.admin.FetchOffsets(ctx, b.group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err == nil {
		err = committed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read committed offsets of %s: %w", b.group, err)
	}
	return committed, nil
}

// trim deletes from the embedded broker, which keeps all in memory, what lies below the committed offsets.
func (b *broker) trim(ctx context.Context) error {
	if b.embedded == nil {
		return nil
	}
	if b.second != nil {
		if err := b.second.trim(ctx); err != nil {
			return err
		}
	}
	committed, err := b.committed(ctx)
	if err != nil || len(committed) == 0 {
		return err
	}
	if _, err := b.admin.DeleteRecords(ctx, committed.Offsets()); err != nil {
		return fmt.Errorf("trim topic %s: %w", b.topic, err)
	}
	return nil
}

// expel removes all members but the one with the client ID from each group, once that one is there, and reports whether
// it is in all of them. A member that was killed can't say goodbye, and for the rest of its session the group would wait for it
// before giving its partitions to another. It is expelled after its successor came, not before: a group that
// is empty makes the next one wait for others (group.initial.rebalance.delay.ms, 3 s by default).
func (b *broker) expel(ctx context.Context, clientID string) (joined bool, err error) {
	joined, err = b.expelFrom(ctx, b.group, clientID)
	if b.second == nil {
		return joined, err
	}
	second, errSecond := b.expelFrom(ctx, b.second.group, clientID)
	return joined && second, errors.Join(err, errSecond)
}

func (b *broker) expelFrom(ctx context.Context, group, clientID string) (joined bool, err error) {
	groups, err := b.admin.DescribeGroups(ctx, group)
	if err != nil {
		return false, fmt.Errorf("describe group %s: %w", group, err)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = group
	for _, m := range groups[group].Members {
		if m.ClientID == clientID {
			joined = true
			continue
		}
		gone := kmsg.NewLeaveGroupRequestMember()
		gone.MemberID = m.MemberID
		leave.Members = append(leave.Members, gone)
	}
	if !joined || len(leave.Members) == 0 {
		return joined, nil
	}
	if _, err := leave.RequestWith(ctx, b.client); err != nil {
		return true, fmt.Errorf("expel members from group %s: %w", group, err)
	}
	return true, nil
}
