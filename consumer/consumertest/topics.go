package consumertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	limit         = 3 * time.Minute
	pollEvery     = 50 * time.Millisecond
	brokerDefault = -1 // of a topic's replicas
)

var notInNames = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

// Name gives a name for a topic or a group that nobody else on the broker has, with the test's in it.
func Name(t testing.TB) string {
	name := notInNames.ReplaceAllString(t.Name(), "-")
	if len(name) > 200 {
		name = name[:200]
	}
	return fmt.Sprintf("%s-%08x", name, rand.Uint32())
}

// CreateTopic makes a topic with the broker's default of replicas and waits until all its partitions can
// be written. Configs are written name=value.
func CreateTopic(t testing.TB, addr, topic string, partitions int, configs ...string) {
	t.Helper()
	admin(t, addr, "create topic "+topic, func(ctx context.Context, a *kadm.Client) error {
		values := map[string]*string{}
		for _, config := range configs {
			name, value, _ := strings.Cut(config, "=")
			values[name] = &value
		}
		if err := createTopic(ctx, a, topic, partitions, values); err != nil {
			return err
		}
		return awaitPartitions(ctx, a, addr, topic, partitions)
	})
}

// createTopic does so with brokers of old, too: before 2.4 there is no default of replicas, and with ZooKeeper a topic
// that was deleted is there for a while after the metadata names it no longer.
func createTopic(ctx context.Context, a *kadm.Client, topic string, partitions int, configs map[string]*string) (
	err error) {
	still := poll(ctx, func() error {
		_, err = a.CreateTopic(ctx, int32(partitions), brokerDefault, configs, topic)
		if errors.Is(err, kerr.InvalidReplicationFactor) {
			_, err = a.CreateTopic(ctx, int32(partitions), 1, configs, topic)
		}
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return err
		}
		return nil
	})
	return cmp.Or(still, err)
}

// CreateTopicOn makes a topic of one partition, whose replicas are on some brokers, the preferred leader first, and
// waits until it can be written. Configs are written name=value.
func CreateTopicOn(t testing.TB, addr, topic string, brokers []int32, configs ...string) {
	t.Helper()
	admin(t, addr, "create topic "+topic, func(ctx context.Context, a *kadm.Client) error {
		request := kmsg.NewPtrCreateTopicsRequest()
		asked := kmsg.NewCreateTopicsRequestTopic()
		asked.Topic, asked.NumPartitions, asked.ReplicationFactor = topic, -1, -1
		asked.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: brokers}}
		for _, config := range configs {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			name, value, _ := strings.Cut(config, "=")
			c.Name, c.Value = name, &value
			asked.Configs = append(asked.Configs, c)
		}
		request.Topics = []kmsg.CreateTopicsRequestTopic{asked}
		client, err := newClient(addr)
		if err != nil {
			return err
		}
		defer client.Close()
		answer, err := request.RequestWith(ctx, client)
		if err == nil {
			err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
		}
		if err != nil {
			return err
		}
		return awaitPartitions(ctx, a, addr, topic, 1)
	})
}

// DeleteTopic deletes a topic and waits until the broker does not name it any more.
func DeleteTopic(t testing.TB, addr, topic string) {
	t.Helper()
	admin(t, addr, "delete topic "+topic, func(ctx context.Context, a *kadm.Client) error {
		if _, err := a.DeleteTopic(ctx, topic); err != nil {
			return err
		}
		return poll(ctx, func() error {
			topics, err := a.ListTopics(ctx, topic)
			if err == nil && topics.Has(topic) {
				err = fmt.Errorf("it is still there")
			}
			return err
		})
	})
}

// AddPartitions gives a topic more partitions and waits until they can be written.
func AddPartitions(t testing.TB, addr, topic string, more int) {
	t.Helper()
	admin(t, addr, "add partitions to "+topic, func(ctx context.Context, a *kadm.Client) error {
		before, err := a.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		added, err := a.CreatePartitions(ctx, more, topic)
		if err != nil {
			return err
		}
		if err := added.Error(); err != nil {
			return err
		}
		return awaitPartitions(ctx, a, addr, topic, len(before[topic].Partitions)+more)
	})
}

// DeleteBefore deletes a partition's records below an offset, as retention does.
func DeleteBefore(t testing.TB, addr, topic string, partition int32, offset int64) {
	t.Helper()
	admin(t, addr, fmt.Sprintf("delete records of %s/%d", topic, partition),
		func(ctx context.Context, a *kadm.Client) error {
			var to kadm.Offsets
			to.AddOffset(topic, partition, offset, -1)
			deleted, err := a.DeleteRecords(ctx, to)
			if err != nil {
				return err
			}
			return deleted.Error()
		})
}

// awaitPartitions waits until a topic's partitions can be read, and every broker knows of them: metadata reach one
// broker after the other.
func awaitPartitions(ctx context.Context, a *kadm.Client, addr, topic string, partitions int) error {
	err := poll(ctx, func() error {
		ends, err := a.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		if have := len(ends[topic]); have != partitions {
			return fmt.Errorf("%d of %d partitions are there", have, partitions)
		}
		return ends.Error()
	})
	if err != nil {
		return err
	}
	client, err := newClient(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	return poll(ctx, func() error { return knownToAll(ctx, client, topic, partitions) })
}

func knownToAll(ctx context.Context, client *kgo.Client, topic string, partitions int) error {
	brokers, err := kadm.NewClient(client).ListBrokers(ctx)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrMetadataRequest()
	of := kmsg.NewMetadataRequestTopic()
	of.Topic = kmsg.StringPtr(topic)
	request.Topics = []kmsg.MetadataRequestTopic{of}
	for _, id := range brokers.NodeIDs() {
		answer, err := request.RequestWith(ctx, client.Broker(int(id)))
		if err != nil {
			return err
		}
		if have := len(answer.Topics[0].Partitions); have != partitions {
			return fmt.Errorf("broker %d knows %d of %d partitions", id, have, partitions)
		}
	}
	return nil
}

// admin does something with a client of its own, within the limit, and fails the test with its error.
func admin(t testing.TB, addr, what string, do func(context.Context, *kadm.Client) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, err := newClient(addr)
	if err != nil {
		t.Fatalf("consumertest: %s: %v", what, err)
	}
	defer client.Close()
	if err := do(ctx, kadm.NewClient(client)); err != nil {
		t.Fatalf("consumertest: %s: %v", what, err)
	}
}

// poll repeats try until it gives no error, and gives the last one when the context's time is over.
func poll(ctx context.Context, try func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
