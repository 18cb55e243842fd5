package consumertest_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

func TestBrokerKeepsAddressAndRecordsOverItsEnd(t *testing.T) {
	b := consumertest.StartKafka(t)
	topic := consumertest.Name(t)
	consumertest.CreateTopic(t, b.Addr, topic, 1)
	consumertest.Produce(t, b.Addr, &kgo.Record{Topic: topic, Value: []byte("a")})

	require.NoError(t, b.Stop())
	require.NoError(t, b.Stop(), "a second stop has nothing to do")
	require.NoError(t, b.Start())
	consumertest.Produce(t, b.Addr, &kgo.Record{Topic: topic, Value: []byte("b")})

	b.Kill()
	require.NoError(t, b.Start())
	require.Equal(t, int64(2), consumertest.EndOffset(t, b.Addr, topic, 0))
}

func TestLeadershipMovesWhenABrokerStops(t *testing.T) {
	c := consumertest.StartKafkaCluster(t, 3)
	topic := consumertest.Name(t)
	consumertest.CreateTopic(t, c.Brokers[0].Addr, topic, 1)
	leader, replicas := partition(t, c.Addrs(), topic)
	require.Len(t, replicas, 3)
	old := c.Brokers[leader-1]
	var rest []string
	for _, b := range c.Brokers {
		if b != old {
			rest = append(rest, b.Addr)
		}
	}
	consumertest.Produce(t, rest[0], &kgo.Record{Topic: topic})

	require.NoError(t, old.Stop())

	consumertest.Produce(t, rest[0], &kgo.Record{Topic: topic})
	require.Equal(t, int64(2), consumertest.EndOffset(t, rest[0], topic, 0))
	next, _ := partition(t, rest, topic)
	require.NotEqual(t, leader, next)
	require.NoError(t, old.Start())
}

func partition(t *testing.T, addrs []string, topic string) (leader int32, replicas []int32) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	require.NoError(t, err)
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(t.Context(), topic)
	require.NoError(t, err)
	p := topics[topic].Partitions[0]
	return p.Leader, slices.Clone(p.Replicas)
}
