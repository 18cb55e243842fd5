package consumertest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

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
