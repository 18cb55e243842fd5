package devstack

import (
	"context"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newBroker(t *testing.T) *broker {
	t.Helper()
	b, err := openBroker(t.Context(), "", names{Topic: "topic", Group: "group"}, 2)
	require.NoError(t, err)
	t.Cleanup(b.close)
	return b
}

// joinAndDie joins the group and is not heard of again, as a process that was killed.
func joinAndDie(t *testing.T, b *broker, clientID string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ClientID(clientID))
	require.NoError(t, err)
	defer client.Close()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version = 2
	join.Group, join.ProtocolType = "group", "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 60_000, 60_000
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name = kafka.RoundRobinGroupBalancer{}.ProtocolName()
	join.Protocols = append(join.Protocols, protocol)
	broker := client.Broker(0)
	_, err = broker.Request(t.Context(), join)
	require.NoError(t, err)
}

func TestDeadMemberIsExpelledOnceItsSuccessorIsThere(t *testing.T) {
	b := newBroker(t)
	joinAndDie(t, b, "first")
	joined, err := b.expel(t.Context(), "second")
	require.NoError(t, err)
	require.False(t, joined)

	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: "group", Brokers: []string{b.addr}, Topics: []string{"topic"},
		Dialer: &kafka.Dialer{ClientID: "second"}, SessionTimeout: time.Minute, RebalanceTimeout: time.Minute,
	})
	require.NoError(t, err)
	defer group.Close()
	member := make(chan error, 1)
	go func() {
		_, err := group.Next(ctx)
		member <- err
	}()
	require.Eventually(t, func() bool {
		joined, err := b.expel(ctx, "second")
		return err == nil && joined
	}, 3*time.Minute, 10*time.Millisecond)
	require.NoError(t, <-member, "the session of the dead one had a minute to go")
}

func TestLagIsWhatLiesBeyondTheCommittedOffsets(t *testing.T) {
	b := newBroker(t)
	for _, partition := range []int32{0, 0, 0, 1} {
		r := &kgo.Record{Topic: "topic", Partition: partition}
		client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, err)
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
		client.Close()
	}
	lag, err := b.lag(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(4), lag, "of a group that is not there")

	commit(t, b, 0, 2)
	lag, err = b.lag(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(2), lag)

	require.NoError(t, b.trim(t.Context()))
	starts, err := b.admin.ListStartOffsets(t.Context(), "topic")
	require.NoError(t, err)
	start, _ := starts.Lookup("topic", 0)
	require.Equal(t, int64(2), start.Offset)
	start, _ = starts.Lookup("topic", 1)
	require.Zero(t, start.Offset)
}

func commit(t *testing.T, b *broker, partition int32, offset int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset("topic", partition, offset, -1)
	require.NoError(t, b.admin.CommitAllOffsets(t.Context(), "group", offsets))
}
