package consumertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Surviving are the committed records of a topic's partition 0 that are there to read.
func Surviving(t testing.TB, addr, topic string) (records []*kgo.Record) {
	t.Helper()
	client, err := newClient(addr, kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	if err != nil {
		t.Fatalf("consumertest: read %s: %v", topic, err)
	}
	defer client.Close()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		fetches := client.PollFetches(ctx)
		cancel()
		if fetches.NumRecords() == 0 {
			return records
		}
		records = append(records, fetches.Records()...)
	}
}

// Compact makes a topic anew, of three batches that compaction leaves holes in and at the end of, and of an aborted
// transaction behind them. It waits for compaction, which now is called to speed up, and gives how many records are
// left to read.
func Compact(t testing.TB, addr, topic string, now func()) (left int) {
	t.Helper()
	DeleteTopic(t, addr, topic)
	CreateTopic(t, addr, topic, 1, "cleanup.policy=compact", "segment.ms=500",
		"min.cleanable.dirty.ratio=0.001", "min.compaction.lag.ms=0", "delete.retention.ms=100")
	segmentEnds := func() { time.Sleep(600 * time.Millisecond) } // by the broker's clock, at the next record
	for batch := range 3 {
		rs := Records(topic, 10, 10)
		rs[0].Key = fmt.Append(nil, "kept ", batch)
		Produce(t, addr, rs...)
		segmentEnds()
	}
	producer := NewTransactions(t, addr, topic)
	producer.Open(RecordsTo(topic, 0, 3)...)
	producer.End(kgo.TryAbort)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := poll(ctx, func() error {
		now()
		if left = len(Surviving(t, addr, topic)); left > 13 {
			return errors.New("it was never compacted")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("consumertest: topic %s: %v", topic, err)
	}
	return left
}
