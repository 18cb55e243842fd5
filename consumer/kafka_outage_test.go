package consumer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

// producing writes new messages all the time, and waits out whatever happens to the broker. The returned function
// ends it and tells how many there are.
func (s *stage) producing() (end func() (messages int)) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.MetadataMinAge(20*time.Millisecond),
		kgo.DefaultProduceTopic(s.topic))
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var written int
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			rs := s.records(10, 10)
			if err := client.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
				s.t.Errorf("produce: %v", err)
				return
			}
			written += len(rs)
			time.Sleep(5 * time.Millisecond) // a pace, not a wait
		}
	})
	end = sync.OnceValue(func() int {
		cancel()
		wg.Wait()
		client.Close()
		return written
	})
	s.t.Cleanup(func() { end() })
	return end
}

// survives runs a consumer under load through faults, after each of which it must be seen to go on.
func (s *stage) survives(c *consumer.Consumer, faults ...func()) {
	s.t.Helper()
	end := s.producing()
	s.start(c)
	goesOn := func() {
		before := s.count(`select count(*) from effects`)
		s.eventually(func() bool { return s.count(`select count(*) from effects`) >= before+100 }, "it does not go on")
	}
	goesOn()
	for _, fault := range faults {
		fault()
		goesOn()
	}
	messages := end()
	s.caughtUp()
	s.requireOnce(messages)
}

func TestKafkaRestartLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	broker := consumertest.StartKafka(t)
	s := newStage(t, broker.Addr, 3)
	// A member that finds no broker to leave the group at is missed only when its session is over.
	soonMissed := settings(
		func(c *consumer.Config) { c.SessionTimeout, c.RequestTimeout = 9500*time.Millisecond, time.Second })
	s.survives(s.consumer(soonMissed),
		func() {
			require.NoError(t, broker.Stop())
			require.NoError(t, broker.Start())
		},
		func() {
			broker.Kill()
			require.NoError(t, broker.Start())
		},
	)
}

func TestMovedLeadersAreFollowed(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	s := newStage(t, fake.Addr, 3)
	s.survives(s.consumer(nil),
		func() {
			for p := range int32(3) {
				to := (fake.Cluster.LeaderFor(s.topic, p) + 1) % 3
				require.NoError(t, fake.Cluster.MoveTopicPartition(s.topic, p, to))
			}
		},
		fake.Cluster.ShufflePartitionLeaders,
		fake.Cluster.ShufflePartitionLeaders,
	)
}

func TestMovedCoordinatorIsFollowed(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	s := newStage(t, fake.Addr, 3)
	moved := func() {
		before := fake.Cluster.CoordinatorFor(s.group)
		for fake.Cluster.CoordinatorFor(s.group) == before {
			fake.Cluster.RehashCoordinators()
		}
	}
	s.survives(s.consumer(nil), moved, moved)
}

func TestLostBrokerIsLeftForItsSuccessor(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	s := newStage(t, fake.Addr, 3)
	other := fake.Cluster.LeaderFor(s.topic, 0)
	if other == 0 { // the one that the consumer asks first
		require.NoError(t, fake.Cluster.MoveTopicPartition(s.topic, 0, 1))
		other = 1
	}
	s.survives(s.consumer(nil), func() { require.NoError(t, fake.Cluster.RemoveNode(other)) })
}
