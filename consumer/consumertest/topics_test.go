package consumertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

func TestTopicsAndRecordsOnBothBrokers(t *testing.T) {
	for name, addr := range brokers() {
		t.Run(name, func(t *testing.T) {
			addr := addr(t)
			topic, group := consumertest.Name(t), consumertest.Name(t)
			consumertest.CreateTopic(t, addr, topic, 2, "cleanup.policy=compact", "segment.ms=200")

			key := []byte("k")
			records := []*kgo.Record{{Topic: topic, Partition: 1, Key: key}, {Topic: topic, Partition: 1, Key: key}}
			consumertest.ProduceTo(t, addr, records...)
			require.Equal(t, int64(1), records[1].Offset)
			require.Equal(t, int64(0), consumertest.EndOffset(t, addr, topic, 0))
			require.Equal(t, int64(2), consumertest.EndOffset(t, addr, topic, 1))

			require.Equal(t, int64(consumertest.NoOffset), consumertest.CommittedOffset(t, addr, group, topic, 1))
			commit(t, addr, group, topic, 1, 2)
			require.Equal(t, int64(2), consumertest.CommittedOffset(t, addr, group, topic, 1))

			consumertest.AddPartitions(t, addr, topic, 1)
			consumertest.ProduceTo(t, addr, &kgo.Record{Topic: topic, Partition: 2, Key: key})
			require.Equal(t, int64(1), consumertest.EndOffset(t, addr, topic, 2))

			consumertest.DeleteTopic(t, addr, topic)
			consumertest.CreateTopic(t, addr, topic, 1)
			require.Equal(t, int64(0), consumertest.EndOffset(t, addr, topic, 0))
		})
	}
}

func TestRecordsOfOneKeyShareAPartition(t *testing.T) {
	for name, addr := range brokers() {
		t.Run(name, func(t *testing.T) {
			addr, topic := addr(t), consumertest.Name(t)
			consumertest.CreateTopic(t, addr, topic, 3)
			var records []*kgo.Record
			for i := range 30 {
				records = append(records, &kgo.Record{Topic: topic, Key: fmt.Append(nil, i%10)})
			}

			consumertest.Produce(t, addr, records...)

			partitions := map[string]int32{}
			used := map[int32]bool{}
			for _, r := range records {
				if before, seen := partitions[string(r.Key)]; seen {
					require.Equal(t, before, r.Partition)
				}
				partitions[string(r.Key)] = r.Partition
				used[r.Partition] = true
			}
			require.Greater(t, len(used), 1)
		})
	}
}

func brokers() map[string]func(testing.TB) string {
	return map[string]func(testing.TB) string{
		"kafka": consumertest.Kafka,
		"fake":  func(t testing.TB) string { return consumertest.NewFake(t).Addr },
	}
}

func commit(t *testing.T, addr, group, topic string, partition int32, offset int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer client.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, partition, offset, -1)
	require.NoError(t, kadm.NewClient(client).CommitAllOffsets(context.Background(), group, offsets))
}
