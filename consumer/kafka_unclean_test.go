package consumer_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

// Broker 2 misses messages 10 to 19, which were read, and becomes the leader while only it is there. By the time that
// anybody looks it has taken in other messages at those offsets, and more.
func TestMessagesOfAnUncleanLeaderAreNotSkipped(t *testing.T) {
	t.Parallel()
	cluster := consumertest.StartKafkaCluster(t, 3)
	t.Run("a clean election holds nothing", func(t *testing.T) {
		s := newStage(t, cluster.Brokers[2].Addr, 1)
		s.topic = consumertest.Name(t)
		consumertest.CreateTopicOn(t, s.addr, s.topic, []int32{1, 2, 3})
		s.fill(10)
		book, stop := s.run(nil)
		s.caughtUp()
		cluster.Brokers[0].Kill()
		s.fill(10)
		s.caughtUp()
		stop()
		again, _ := s.run(nil)
		s.fill(10)
		s.caughtUp()
		s.requireOnce(30)
		require.Positive(t,
			s.count(`select leader_epoch from firstseen.positions where leader_epoch_at = next_offset`))
		for _, b := range []*consumertest.Log{book, again} {
			require.False(t, b.Has(slog.LevelError, "", "hold", consumer.HeldCutOff))
		}
		require.NoError(t, cluster.Brokers[0].Start())
	})
	for _, c := range []struct {
		running  bool
		replicas []int32 // the leader first
		reason   string
	}{
		{false, []int32{1, 2}, "they part at 10"},
		{true, []int32{1, 2}, "they part at 10"},
		// Here the epoch that was read last has begun when broker 2 was gone already.
		{false, []int32{2, 1}, "they part at or below 10"},
	} {
		t.Run(fmt.Sprintf("running %v, replicas %v", c.running, c.replicas), func(t *testing.T) {
			first, second := cluster.Brokers[0], cluster.Brokers[1]
			s := newStage(t, cluster.Brokers[2].Addr, 1)
			s.topic = consumertest.Name(t)
			consumertest.CreateTopicOn(t, s.addr, s.topic, c.replicas, "min.insync.replicas=1",
				"unclean.leader.election.enable=true")
			s.fill(10)
			book, stop := s.run(nil)
			s.caughtUp()
			second.Kill()
			s.fill(10)
			s.caughtUp()
			if !c.running {
				stop()
			}
			first.Kill()
			require.NoError(t, second.Start())
			s.fill(25)
			if !c.running {
				book, stop = s.run(nil)
			}
			s.logged(book, slog.LevelError, "", "partition", s.topic+"/0", "hold",
				consumer.HeldCutOff, "reason", c.reason)
			s.heldBy(consumer.HeldCutOff, 0)
			s.effects(20)
			stop()

			book, stop = s.run(settings(func(c *consumer.Config) { c.OnReset = consumer.Restart }))
			s.effects(45)
			s.caughtUp()
			require.True(t, book.Has(slog.LevelError, "reading again from where the logs part"))
			stop()
			require.NoError(t, first.Start())
		})
	}
}
