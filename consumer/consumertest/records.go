package consumertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is a record whose header message-id holds an ID; an empty one leaves the header out.
func Record(topic, key, value, id string) *kgo.Record {
	r := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
	if id != "" {
		r.Headers = []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}
	}
	return r
}

// Records are n records with new IDs, spread over keys.
func Records(topic string, n, keys int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = Record(topic, fmt.Sprintf("key-%d", i%keys), fmt.Sprintf("value-%d", i), uuid.NewString())
	}
	return rs
}

// RecordsTo are n such records of five keys, for one partition.
func RecordsTo(topic string, partition int32, n int) []*kgo.Record {
	rs := Records(topic, n, 5)
	for _, r := range rs {
		r.Partition = partition
	}
	return rs
}

// Fill writes n such records to each of a topic's partitions.
func Fill(t testing.TB, addr, topic string, partitions, n int) {
	t.Helper()
	for p := range partitions {
		ProduceTo(t, addr, RecordsTo(topic, int32(p), n)...)
	}
}

// Produce writes records in their order, each to the partition that its key gives as Kafka's own clients
// choose it, and waits for all replicas. The records get the partition and offset that they were written
// to.
func Produce(t testing.TB, addr string, records ...*kgo.Record) {
	t.Helper()
	produce(t, addr, kgo.StickyKeyPartitioner(nil), records)
}

// ProduceTo is Produce to the partition that each record names.
func ProduceTo(t testing.TB, addr string, records ...*kgo.Record) {
	t.Helper()
	produce(t, addr, kgo.ManualPartitioner(), records)
}

func produce(t testing.TB, addr string, by kgo.Partitioner, records []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, err := newClient(addr,
		kgo.RecordPartitioner(by),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(max(1, len(records))),
	)
	if err != nil {
		t.Fatalf("consumertest: produce: %v", err)
	}
	defer client.Close()
	for _, r := range records {
		r.Context = nil // of an earlier call with the same record
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("consumertest: produce: %v", err)
	}
}
