package consumer_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

func holdLoss(c *consumer.Config) { c.OnLoss = consumer.Hold }

// loseWhileStopped has offsets 10 to 14 of partition 0 deleted while the group, at 10, has no member.
func loseWhileStopped(t *testing.T, addr string) *stage {
	s := newStage(t, addr, 2)
	s.consumed(10)
	s.fill(10)
	consumertest.DeleteBefore(s.t, s.addr, s.topic, 0, 15)
	return s
}

func TestMessagesDeletedWhileStoppedAreReportedAndPassed(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		o := &observed{stage: loseWhileStopped(t, addr)}
		s := o.stage
		book, _ := s.run(o.configure)
		s.caughtUp()
		s.requireOnce(35)
		lost, _ := o.sum("firstseen.messages.lost", "")
		require.EqualValues(t, 5, lost)
		require.True(t,
			book.Has(slog.LevelError, "LOST", "partition", s.topic+"/0", "from", "10", "to", "14", "count", "5"))
		require.False(t, book.Has(slog.LevelError, "LOST", "partition", s.topic+"/1"))
	})
}

// requireHeld asserts that partition 0 stands at offset 10 with a loss of 10 to 14, while partition 1 goes on.
func (s *stage) requireHeld(book *consumertest.Log) {
	s.t.Helper()
	s.logged(book, slog.LevelError, "HELD", "partition", s.topic+"/0", "reason", "10 to 14 were deleted")
	s.effects(30)
	consumertest.ProduceTo(s.t, s.addr, append(s.recordsTo(0, 5), s.recordsTo(1, 5)...)...)
	s.effects(35)
	require.Equal(s.t, 10, s.count(`select count(*) from effects where "partition" = 0`))
	require.EqualValues(s.t, 10, s.committed(0))
	require.Equal(s.t, 1, book.Times(slog.LevelError, "HELD"), "once, and only the one partition")
	s.heldBy(consumer.HeldLost, 0)
	s.heldBy("", 1)
}

func TestMessagesDeletedWhileStoppedHoldTheirPartitionByPolicy(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := loseWhileStopped(t, addr)
		book, stop := s.run(settings(holdLoss))
		s.requireHeld(book)
		stop()

		s.start(s.consumer(nil)) // the operator's decision: go on with what is left
		s.caughtUp()
		s.requireOnce(45)
	})
}

// loseWhileRunning has offsets 10 to 14 of partition 0 deleted under a consumer that stands at 10.
func loseWhileRunning(t *testing.T, change func(*consumer.Config)) (*stage, *consumertest.Log) {
	fake := consumertest.NewFake(t)
	s := newStage(t, fake.Addr, 2)
	s.fill(10)
	book, _ := s.run(settings(change))
	s.caughtUp()
	unfetched := fake.Cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{0}, Err: kerr.UnknownServerError, Count: -1})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	require.NoError(t, unfetched.Wait(ctx, 1)) // after this no fetch of an earlier time is under way
	s.fill(10)
	consumertest.DeleteBefore(s.t, s.addr, s.topic, 0, 15)
	unfetched.Remove()
	return s, book
}

func TestMessagesDeletedWhileRunningAreReportedAndPassed(t *testing.T) {
	t.Parallel()
	s, book := loseWhileRunning(t, func(*consumer.Config) {})
	s.caughtUp()
	s.requireOnce(35)
	require.True(t,
		book.Has(slog.LevelError, "LOST", "partition", s.topic+"/0", "from", "10", "to", "14", "count", "5"))
}

func TestMessagesDeletedWhileRunningHoldTheirPartitionByPolicy(t *testing.T) {
	t.Parallel()
	s, book := loseWhileRunning(t, holdLoss)
	s.requireHeld(book)
}
