package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

func newCluster(t testing.TB, addr string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(cluster.Config{Connection: consumer.Connection{Brokers: []string{addr}},
		Logger: logger()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestClusterTellsWhereAGroupStands(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		c, topic, group := newCluster(t, addr), consumertest.Name(t), consumertest.Name(t)
		consumertest.CreateTopic(t, addr, topic, 2, "retention.ms=-1")
		long, then := time.UnixMilli(1_600_000_000_000), time.UnixMilli(1_700_000_000_000)
		consumertest.ProduceTo(t, addr, &kgo.Record{Topic: topic, Timestamp: then}, &kgo.Record{Topic: topic,
			Timestamp: long}, &kgo.Record{Topic: topic})
		producer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID(topic),
			kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, err)
		defer producer.Close()
		require.NoError(t, producer.BeginTransaction())
		require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 0}).FirstErr())

		require.NoError(t, c.CommitOffsets(t.Context(), group, topic, map[int32]int64{0: 2}))
		got, err := c.Offsets(t.Context(), group, []string{topic, consumertest.Name(t)})
		require.NoError(t, err)
		require.Len(t, got, 2)
		end := consumertest.EndOffset(t, addr, topic, 0)
		require.Equal(t, cluster.GroupOffset{Topic: topic, Committed: 2, Earliest: 0, Stable: 3, End: end}, got[0])
		require.Equal(t, topic, got[1].Topic)
		require.EqualValues(t, 1, got[1].Partition)
		require.EqualValues(t, -1, got[1].Committed)

		oldest, err := c.Oldest(t.Context(), topic)
		require.NoError(t, err)
		require.True(t, then.Equal(oldest[0]), oldest)
		_, has := oldest[1]
		require.False(t, has)
	})
}

func TestClusterMovesOnlyAGroupWithoutMembers(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		c, topic, name := newCluster(t, addr), consumertest.Name(t), consumertest.Name(t)
		consumertest.CreateTopic(t, addr, topic, 2)
		group, err := c.Group(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, cluster.Group{State: "Dead"}, group)

		member, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic),
			kgo.ClientID("someone"),
			kgo.Balancers(kgo.RangeBalancer()))
		require.NoError(t, err)
		defer member.Close()
		go member.PollFetches(t.Context())
		require.Eventually(t, func() bool {
			group, err = c.Group(context.Background(), name)
			return err == nil && group.State == "Stable"
		}, waitLimit, 50*time.Millisecond)
		require.Len(t, group.Members, 1)
		m := group.Members[0]
		require.Equal(t, "someone", m.ClientID)
		require.NotEmpty(t, m.Host)
		require.Equal(t,
			[]cluster.TopicPartition{{Topic: topic, Partition: 0}, {Topic: topic, Partition: 1}}, m.Partitions)
		require.Equal(t, m, group.Owner(topic, 1))
		require.Zero(t, group.Owner(topic, 2))

		err = c.CommitOffsets(t.Context(), name, topic, map[int32]int64{1: 7})
		require.ErrorIs(t, err, cluster.ErrGroupInUse)
		require.Equal(t, consumertest.NoOffset, int(consumertest.CommittedOffset(t, addr, name, topic, 1)))

		member.Close()
		require.Eventually(t, func() bool {
			return c.CommitOffsets(context.Background(), name, topic, map[int32]int64{1: 7}) == nil
		}, waitLimit, 50*time.Millisecond)
		require.EqualValues(t, 7, consumertest.CommittedOffset(t, addr, name, topic, 1))
		group, err = c.Group(t.Context(), name)
		require.NoError(t, err)
		require.Empty(t, group.Members)
		require.Equal(t, "Empty", group.State)
	})
}

func TestClusterTellsTheSettingsOfTopics(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		c, forever, day, missing := newCluster(t, addr), consumertest.Name(t),
			consumertest.Name(t), consumertest.Name(t)
		consumertest.CreateTopic(t, addr, forever, 1, "retention.ms=-1", "cleanup.policy=compact")
		consumertest.CreateTopic(t, addr, day, 3, "retention.ms=86400000", "retention.bytes=1000000",
			"segment.ms=3600000", "max.message.bytes=2000000", "min.insync.replicas=1")
		got, err := c.Topics(t.Context(), []string{forever, missing, day})
		require.NoError(t, err)
		require.Len(t, got, 3)
		require.NoError(t, got[0].Hidden)
		require.EqualValues(t, -1, got[0].Retention)
		require.Equal(t, "compact", got[0].Cleanup)
		require.Equal(t, cluster.TopicFacts{Name: missing, Missing: true}, got[1])
		require.NotEqual(t, uuid.Nil, got[2].ID)
		require.Positive(t, got[2].Replicas)
		got[2].ID, got[2].Replicas = uuid.Nil, 0
		require.Equal(t,
			cluster.TopicFacts{Name: day, Partitions: 3, Retention: 24 * time.Hour, RetentionBytes: 1_000_000,
				Segment: time.Hour, Cleanup: "delete", MinInsync: 1, MaxMessageBytes: 2_000_000}, got[2])

		settings, err := c.Settings(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, settings.ClusterID)
		require.Positive(t, settings.Brokers)
		require.Regexp(t, `v\d+\.\d+`, settings.Version)
	})
}

func TestClusterTellsWhatTheBrokerDoesWithUnknownTopics(t *testing.T) {
	t.Parallel()
	settings, err := newCluster(t, consumertest.Kafka(t)).Settings(t.Context())
	require.NoError(t, err)
	require.NoError(t, settings.Hidden)
	require.Equal(t, 1, settings.Brokers)
}

func TestClusterSaysWhatItMayNotSee(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	c, topic := newCluster(t, fake.Addr), consumertest.Name(t)
	consumertest.CreateTopic(t, fake.Addr, topic, 2)
	deny := func(err *kerr.Error, key kmsg.Key) {
		fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: -1})
	}
	deny(kerr.TopicAuthorizationFailed, kmsg.DescribeConfigs)
	facts, err := c.Topics(t.Context(), []string{topic})
	require.NoError(t, err)
	require.ErrorIs(t, facts[0].Hidden, cluster.ErrNotAllowed)
	require.Equal(t, 2, facts[0].Partitions)

	settings, err := c.Settings(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, settings.Hidden, cluster.ErrNotAllowed)

	deny(kerr.GroupAuthorizationFailed, kmsg.DescribeGroups)
	_, err = c.Group(t.Context(), "payments")
	require.ErrorIs(t, err, cluster.ErrNotAllowed)

	deny(kerr.GroupAuthorizationFailed, kmsg.OffsetFetch)
	offsets, err := c.Offsets(t.Context(), "payments", []string{topic})
	require.ErrorIs(t, err, cluster.ErrNotAllowed)
	require.Len(t, offsets, 2)
	require.EqualValues(t, 0, offsets[0].End)
}
