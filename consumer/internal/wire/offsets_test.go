package wire

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

func TestMetadataTellsEachTopicsOwnError(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic, missing := consumertest.Name(t), consumertest.Name(t)
		consumertest.CreateTopic(t, w.addr, topic, 3)
		for range 2 { // the first call must not create the missing one
			found, err := w.Metadata(t.Context(), []string{topic, missing, topic})
			require.NoError(t, err)
			require.Len(t, found, 2)
			require.NoError(t, found[topic].Err)
			require.NotEqual(t, uuid.Nil, found[topic].ID)
			require.Len(t, found[topic].Partitions, 3)
			for i, p := range found[topic].Partitions {
				require.EqualValues(t, i, p.ID)
				require.GreaterOrEqual(t, p.Leader, int32(0))
				require.GreaterOrEqual(t, p.LeaderEpoch, int32(0))
				require.NoError(t, p.Err)
			}
			require.ErrorIs(t, found[missing].Err, kerr.UnknownTopicOrPartition)
		}
	})
}

func TestMetadataCreatesNoTopicWhereTheBrokerWould(t *testing.T) {
	w := newFakeWire(t, kfake.AllowAutoTopicCreation())
	for range 2 {
		found, err := w.Metadata(t.Context(), []string{"orders"})
		require.NoError(t, err)
		require.ErrorIs(t, found["orders"].Err, kerr.UnknownTopicOrPartition)
	}
	require.Nil(t, w.fake.TopicInfo("orders"))
}

func TestMetadataOfAnOldBrokerHasNoTopicID(t *testing.T) {
	w := newFakeWire(t, kfake.MaxVersions(kversion.V2_0_0()))
	topic := w.topic(t)
	_, part := w.at(t, topic, 0)
	require.Equal(t, uuid.Nil, part.TopicID)
	require.EqualValues(t, -1, part.LeaderEpoch)
}

func TestListOffsetsAsksEachLeaderAndSeesStableRecordsOnly(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := consumertest.Name(t)
		consumertest.CreateTopic(t, w.addr, topic, 4)
		start := time.Now().Truncate(time.Millisecond)
		var parts []TopicPartition
		want := make(map[TopicPartition]int64)
		for p := range int32(4) {
			parts = append(parts, TopicPartition{topic, p})
			want[parts[p]] = int64(p)
			for i := range p {
				consumertest.ProduceTo(t, w.addr, &kgo.Record{Topic: topic, Partition: p,
					Timestamp: start.Add(time.Duration(i) * time.Second)})
			}
		}
		producer := w.client(t, topic, kgo.TransactionalID(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, producer.BeginTransaction())
		produce(t, producer, &kgo.Record{Partition: 3, Timestamp: start.Add(time.Hour)})

		got, err := w.ListOffsets(t.Context(), parts, LatestOffset)
		require.NoError(t, err)
		require.Equal(t, want, got)
		got, err = w.ListOffsets(t.Context(), parts, EarliestOffset)
		require.NoError(t, err)
		require.Equal(t, map[TopicPartition]int64{parts[0]: 0, parts[1]: 0, parts[2]: 0, parts[3]: 0}, got)
		got, err = w.ListOffsets(t.Context(), parts, start.Add(1500*time.Millisecond).UnixMilli())
		require.NoError(t, err)
		require.Equal(t, map[TopicPartition]int64{parts[0]: -1, parts[1]: -1, parts[2]: -1, parts[3]: 2}, got)
		require.NoError(t, producer.EndTransaction(t.Context(), kgo.TryAbort))
	})
}

func TestListOffsetsNamesThePartitionsThatFailed(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t)
		known, unknown, missing := TopicPartition{topic, 0}, TopicPartition{topic, 5}, TopicPartition{"missing", 0}
		got, err := w.ListOffsets(t.Context(), []TopicPartition{known, unknown, missing}, LatestOffset)
		require.Equal(t, map[TopicPartition]int64{known: 0}, got)
		require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
		require.ErrorContains(t, err, unknown.String())
		require.ErrorContains(t, err, missing.String())
	})
	w := newFakeWire(t)
	topic := w.topic(t)
	w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: topic, Err: kerr.NotLeaderForPartition})
	got, err := w.ListOffsets(t.Context(), []TopicPartition{{topic, 0}}, LatestOffset)
	require.ErrorIs(t, err, kerr.NotLeaderForPartition)
	require.Empty(t, got)
}

func TestCommittedOffsetsTellNoCommitFromAnError(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic, group := consumertest.Name(t), consumertest.Name(t)
		consumertest.CreateTopic(t, w.addr, topic, 2)
		parts := []TopicPartition{{topic, 0}, {topic, 1}}
		var got map[TopicPartition]Reading
		require.Eventually(t, func() bool {
			var err error
			got, err = w.CommittedOffsets(t.Context(), group, parts)
			return err == nil
		}, waitLimit, waitTick, "a new cluster has no coordinator yet")
		require.Empty(t, got)

		w.commit(t, group, topic, 1, 42)
		got, err := w.CommittedOffsets(t.Context(), group, parts)
		require.NoError(t, err)
		require.Equal(t, map[TopicPartition]Reading{parts[1]: {Offset: 42}}, got)

		set := map[TopicPartition]Reading{parts[0]: {7, new(int32(0))}, parts[1]: {43, nil}}
		done, err := w.CommitOffsets(t.Context(), GroupCommit{Group: group, Generation: -1, Offsets: set})
		require.NoError(t, err)
		require.Equal(t, set, done)
		got, err = w.CommittedOffsets(t.Context(), group, parts)
		require.NoError(t, err)
		require.Equal(t, set, got, "with the leader epoch, where one was given")
	})
}

func (w *testWire) commit(t *testing.T, group, topic string, partition int32, offset int64) {
	t.Helper()
	offsets := make(kadm.Offsets)
	offsets.AddOffset(topic, partition, offset, -1)
	got, err := kadm.NewClient(w.client(t, topic)).CommitOffsets(t.Context(), group, offsets)
	require.NoError(t, err)
	require.NoError(t, got.Error())
}

func TestCommittedOffsetsReportEveryKindOfError(t *testing.T) {
	for name, fault := range map[string]kfake.Fault{
		"coordinator": {Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.CoordinatorNotAvailable},
		"group":       {Keys: []kmsg.Key{kmsg.OffsetFetch}, TopLevel: true, Err: kerr.NotCoordinator},
		"partition":   {Keys: []kmsg.Key{kmsg.OffsetFetch}, Topic: "orders", Err: kerr.UnstableOffsetCommit},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeWire(t, kfake.SeedTopics(1, "orders"))
			w.commit(t, "billing", "orders", 0, 7)
			w.fake.Fault(fault)
			got, err := w.CommittedOffsets(t.Context(), "billing", []TopicPartition{{"orders", 0}})
			require.ErrorIs(t, err, fault.Err)
			require.ErrorContains(t, err, "group billing")
			require.Empty(t, got)
		})
	}
}
