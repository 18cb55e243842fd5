package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

// transactional is a producer of transactions, to the partitions that the records name.
func (s *stage) transactional() *kgo.Client {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.TransactionalID(s.topic), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(s.t, err)
	s.t.Cleanup(client.Close)
	return client
}

// open begins a transaction of these records and leaves it open.
func (s *stage) open(producer *kgo.Client, records ...*kgo.Record) {
	s.t.Helper()
	require.NoError(s.t, producer.BeginTransaction())
	require.NoError(s.t, producer.ProduceSync(context.Background(), records...).FirstErr())
}

// end waits for the markers too: the coordinator answers before they are written, and others may write in between.
func (s *stage) end(producer *kgo.Client, how kgo.TransactionEndTry) {
	s.t.Helper()
	require.NoError(s.t, producer.EndTransaction(context.Background(), how))
	s.admin(func(ctx context.Context, a *kadm.Client) error {
		for {
			stable, err := a.ListCommittedOffsets(ctx, s.topic)
			if err != nil {
				return err
			}
			ends, err := a.ListEndOffsets(ctx, s.topic)
			if err != nil || reflect.DeepEqual(stable.KOffsets(), ends.KOffsets()) {
				return err
			}
			time.Sleep(waitTick)
		}
	})
}

func TestOpenTransactionHoldsItsPartitionUntilItEnds(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, addr string) {
		for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			t.Run(fmt.Sprintf("commit %v", end), func(t *testing.T) {
				s := newStage(t, addr, 2)
				producer := s.transactional()
				s.start(s.consumer(nil))
				s.begun()
				s.open(producer, s.recordsTo(0, 5)...)
				consumertest.ProduceTo(t, addr, s.recordsTo(0, 5)...) // behind the open transaction
				consumertest.ProduceTo(t, addr, s.recordsTo(1, 5)...)
				s.effects(5)
				require.Zero(t, s.count(`select count(*) from effects where "partition" = 0`))
				require.LessOrEqual(t, s.committed(0), int64(0))
				s.statusOf(0, func(p consumer.PartitionStatus) bool {
					return p.CaughtUp && p.Lag == 0 && p.End == 0 && p.HighWatermark == 10 &&
						!p.OpenTransaction.IsZero()
				})

				s.end(producer, end)
				s.caughtUp()
				s.statusOf(0, func(p consumer.PartitionStatus) bool {
					return p.CaughtUp && p.Next == p.HighWatermark && p.OpenTransaction.IsZero()
				})
				if end == kgo.TryCommit {
					s.requireOnce(15)
				} else {
					s.requireOnce(10)
				}
			})
		}
	})
}

// After this neither the last record nor the last batch is at the end: a marker is.
func TestPartitionEndingInAMarkerHasNoLag(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		producer := s.transactional()
		s.start(s.consumer(nil))
		for _, c := range []struct {
			end     kgo.TransactionEndTry
			effects int
		}{{kgo.TryCommit, 5}, {kgo.TryAbort, 5}, {kgo.TryAbort, 5}, {kgo.TryCommit, 10}} {
			s.open(producer, s.recordsTo(0, 5)...)
			s.end(producer, c.end)
			s.caughtUp()
			s.requireCaughtUp()
			s.requireOnce(c.effects)
		}
		require.EqualValues(t, 24, s.committed(0))
	})
}

// A group that was taken over may stand above the last stable offset: a transaction that is open there is no
// sign of a topic that was cut off.
func TestCommittedOffsetWithinAnOpenTransactionIsNoReset(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		producer := s.transactional()
		s.fill(5)
		s.open(producer, s.recordsTo(0, 5)...)
		s.moveGroup(0, 8)
		book, _ := s.run(nil)
		s.begun()
		s.end(producer, kgo.TryCommit)
		s.caughtUp()
		s.requireOnce(2)
		require.False(t, book.has(slog.LevelError, "HELD"))
	})
}

// surviving are the records of partition 0 that are there to read.
func (s *stage) surviving() (records []*kgo.Record) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: {0: kgo.NewOffset().At(0)}}))
	require.NoError(s.t, err)
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

// compact makes a topic of three batches that compaction leaves holes in and at the end of, and of an aborted
// transaction behind them, and returns how many records are left to read.
func (s *stage) compact(now func()) (left int) {
	s.t.Helper()
	consumertest.DeleteTopic(s.t, s.addr, s.topic)
	consumertest.CreateTopic(s.t, s.addr, s.topic, 1, "cleanup.policy=compact", "segment.ms=500",
		"min.cleanable.dirty.ratio=0.001", "min.compaction.lag.ms=0", "delete.retention.ms=100")
	segmentEnds := func() { time.Sleep(600 * time.Millisecond) } // by the broker's clock, at the next record
	for batch := range 3 {
		rs := s.records(10, 10)
		rs[0].Key = fmt.Append(nil, "kept ", batch)
		consumertest.Produce(s.t, s.addr, rs...)
		segmentEnds()
	}
	producer := s.transactional()
	s.open(producer, s.recordsTo(0, 3)...)
	s.end(producer, kgo.TryAbort)
	require.Eventually(s.t, func() bool {
		now()
		left = len(s.surviving())
		return left <= 13
	}, waitLimit, waitTick, "never compacted")
	return left
}

func TestCompactedPartitionHasNoLag(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, addr string, compact func()) {
		s := newStage(t, addr, 1)
		left := s.compact(compact)
		_, stop := s.run(nil)
		s.caughtUp()
		s.requireCaughtUp()
		s.requireOnce(left)
		require.Less(t, left, 30)
		stop()

		// From anywhere, holes too, the same end is reached.
		for offset := int64(1); offset < s.committed(0); offset += 4 {
			s.moveGroup(0, offset)
			_, stop := s.run(nil)
			s.caughtUp()
			s.requireCaughtUp()
			stop()
		}
		s.requireOnce(left)
	}
	t.Run("fake", func(t *testing.T) {
		fake := consumertest.NewFake(t)
		test(t, fake.Addr, fake.Cluster.Compact)
	})
	t.Run("kafka", func(t *testing.T) { test(t, consumertest.Kafka(t), func() {}) })
}
