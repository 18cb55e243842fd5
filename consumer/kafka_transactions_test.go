package consumer_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

func TestOpenTransactionHoldsItsPartitionUntilItEnds(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			t.Run(fmt.Sprintf("commit %v", end), func(t *testing.T) {
				s := newStage(t, addr, 2)
				producer := consumertest.NewTransactions(s.t, s.addr, s.topic)
				s.start(s.consumer(nil))
				s.begun()
				producer.Open(s.recordsTo(0, 5)...)
				consumertest.ProduceTo(t, addr, s.recordsTo(0, 5)...) // behind the open transaction
				consumertest.ProduceTo(t, addr, s.recordsTo(1, 5)...)
				s.effects(5)
				require.Zero(t, s.count(`select count(*) from effects where "partition" = 0`))
				require.LessOrEqual(t, s.committed(0), int64(0))
				s.statusOf(0, func(p consumer.PartitionStatus) bool {
					return p.CaughtUp && p.Lag == 0 && p.End == 0 && p.HighWatermark == 10 &&
						!p.OpenTransaction.IsZero()
				})

				producer.End(end)
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
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		producer := consumertest.NewTransactions(s.t, s.addr, s.topic)
		s.start(s.consumer(nil))
		for _, c := range []struct {
			end     kgo.TransactionEndTry
			effects int
		}{{kgo.TryCommit, 5}, {kgo.TryAbort, 5}, {kgo.TryAbort, 5}, {kgo.TryCommit, 10}} {
			producer.Open(s.recordsTo(0, 5)...)
			producer.End(c.end)
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
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		producer := consumertest.NewTransactions(s.t, s.addr, s.topic)
		s.fill(5)
		producer.Open(s.recordsTo(0, 5)...)
		s.moveGroup(0, 8)
		book, _ := s.run(nil)
		s.begun()
		producer.End(kgo.TryCommit)
		s.caughtUp()
		s.requireOnce(2)
		require.False(t, book.Has(slog.LevelError, "HELD"))
	})
}

func TestCompactedPartitionHasNoLag(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, addr string, compact func()) {
		s := newStage(t, addr, 1)
		left := consumertest.Compact(s.t, s.addr, s.topic, compact)
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
