package consumer_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

var nightShift = operate.By{Actor: "night shift", Why: "test"}

// store is the stage's inbox, for an operator.
func (s *stage) store() *dedup.Store {
	s.t.Helper()
	store, err := dedup.Attach(context.Background(), s.pool, dedup.Config{Inbox: s.group})
	require.NoError(s.t, err)
	return store
}

// stopped is a stage whose group, without members, has read 10 messages of each of 2 partitions, and 5 more are there.
func stopped(t *testing.T, addr string) *stage {
	t.Helper()
	s := newStage(t, addr, 2)
	s.fill(10)
	stop := s.start(s.consumer(nil))
	s.caughtUp()
	stop()
	s.fill(5)
	return s
}

func (s *stage) plan(to replay.Place, partitions ...int32) *cluster.Reset {
	s.t.Helper()
	plan, err := newCluster(s.t, s.addr).PlanReset(context.Background(), s.store(), s.group, s.topic, to, partitions)
	require.NoError(s.t, err)
	return plan
}

func (s *stage) position(partition int32) int {
	s.t.Helper()
	return s.count(`select next_offset from firstseen.positions where consumer = $1 and "partition" = $2`,
		s.group, partition)
}

func TestResetBackHasMessagesReadAgainWithoutEffect(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := stopped(t, addr)
		plan := s.plan(replay.OffsetPlace(3), 1)
		require.Equal(t, []cluster.ResetPartition{{Partition: 1, Position: 10, Committed: 10,
			From: 10, To: 3, Again: 7}}, plan.Partitions)
		require.Equal(t, 10, s.position(1), "a plan moves nothing")

		require.NoError(t, newCluster(t, addr).Reset(t.Context(), s.store(), plan, nightShift))
		require.Equal(t, 3, s.position(1))
		require.EqualValues(t, 3, s.committed(1))
		require.Equal(t, 10, s.position(0))
		require.EqualValues(t, 10, s.committed(0))
		require.Equal(t, 1, s.count(`select count(*) from firstseen.audit where actor = 'night shift' and action = 'reset' and why = 'test'
			and inbox = $1 and subject = $2`, s.group, "position "+s.group+" "+s.topic+"/1: 10 to 3"))
		s.start(s.consumer(nil))
		s.caughtUp()
		s.requireOnce(30)
	})
}

func TestResetForwardSkipsAndSaysHowMuch(t *testing.T) {
	t.Parallel()
	s := stopped(t, consumertest.NewFake(t).Addr)
	plan := s.plan(replay.LatestPlace())
	require.EqualValues(t, 10, plan.Skipped())
	require.NoError(t, newCluster(t, s.addr).Reset(t.Context(), s.store(), plan, nightShift))
	s.fill(2)
	s.start(s.consumer(nil))
	s.caughtUp()
	s.requireOnce(24)
}

func TestResetStaysWithinWhatKafkaHas(t *testing.T) {
	t.Parallel()
	s := stopped(t, consumertest.NewFake(t).Addr)
	consumertest.DeleteBefore(s.t, s.addr, s.topic, 0, 12)
	plan := s.plan(replay.OffsetPlace(0))
	require.EqualValues(t, 12, plan.Partitions[0].To)
	require.Zero(t, plan.Skipped(), "what is deleted is skipped by nobody")
	plan = s.plan(replay.OffsetPlace(1000))
	require.EqualValues(t, 15, plan.Partitions[0].To)
	require.EqualValues(t, 3+5, plan.Skipped())
}

func TestResetIsRefusedWhileTheGroupHasMembers(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	s.fill(10)
	c := newCluster(t, s.addr)
	stop := s.start(s.consumer(nil))
	s.caughtUp()
	_, err := c.PlanReset(t.Context(), s.store(), s.group, s.topic, replay.EarliestPlace(), nil)
	require.ErrorIs(t, err, cluster.ErrGroupInUse)
	require.ErrorContains(t, err, "2 of "+s.topic)
	plan := &cluster.Reset{Group: s.group, Topic: s.topic, Partitions: []cluster.ResetPartition{{Partition: 0, To: 3}}}
	require.ErrorIs(t, c.Reset(t.Context(), s.store(), plan, nightShift), cluster.ErrGroupInUse)
	stop()
	require.Equal(t, 10, s.position(0))
	require.Zero(t, s.count(`select count(*) from firstseen.audit`))
}

func TestResetOfAPartOfAnUnknownTopicIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	s.fill(10)
	c := newCluster(t, s.addr)
	_, err := c.PlanReset(t.Context(), s.store(), s.group, s.topic, replay.LatestPlace(), []int32{1})
	require.ErrorContains(t, err, "reset all partitions")
	_, err = c.PlanReset(t.Context(), s.store(), s.group, consumertest.Name(t), replay.LatestPlace(), nil)
	require.ErrorContains(t, err, "does not exist")

	require.NoError(t, c.Reset(t.Context(), s.store(), s.plan(replay.LatestPlace()), nightShift))
	s.fill(1)
	s.start(s.consumer(nil))
	s.caughtUp()
	s.requireOnce(2)
	_, err = c.PlanReset(t.Context(), s.store(), "another", s.topic, replay.LatestPlace(), []int32{7})
	require.Error(t, err)
}

// A reset that dies between its two steps skips nothing, and the next one repairs it.
func TestHalfAResetSkipsNothing(t *testing.T) {
	t.Parallel()
	for _, to := range []int64{15, 3} {
		fake := consumertest.NewFake(t)
		s := stopped(t, fake.Addr)
		refused := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit},
			Err: kerr.InvalidCommitOffsetSize, Count: -1})
		plan := s.plan(replay.OffsetPlace(to))
		err := newCluster(t, fake.Addr).Reset(t.Context(), s.store(), plan, nightShift)
		require.ErrorContains(t, err, "reset it again")
		refused.Remove()
		require.EqualValues(t, to, s.position(0))
		require.EqualValues(t, 10, s.committed(0))

		again := s.plan(replay.OffsetPlace(to))
		require.EqualValues(t, min(to, 10), again.Partitions[0].From)
		if to < 10 {
			require.NoError(t, newCluster(t, fake.Addr).Reset(t.Context(), s.store(), again, nightShift))
			require.EqualValues(t, to, s.committed(0))
		}
		s.start(s.consumer(nil))
		s.caughtUp()
		s.requireOnce(30)
	}
}

func TestResetFencesAnOwnerThatHangs(t *testing.T) {
	t.Parallel()
	s := stopped(t, consumertest.NewFake(t).Addr)
	store := s.store()
	position, err := store.Acquire(t.Context(), s.group, s.topic, 0, "hung")
	require.NoError(t, err)
	require.NoError(t, newCluster(t, s.addr).Reset(t.Context(), store, s.plan(replay.OffsetPlace(10)), nightShift))
	_, err = store.Accept(t.Context(), &dedup.Batch{Position: position, Next: 11})
	require.ErrorIs(t, err, dedup.ErrFenced)
}

func TestStandingIsWhatPostgresAndKafkaSay(t *testing.T) {
	t.Parallel()
	s := stopped(t, consumertest.NewFake(t).Addr)
	c := newCluster(t, s.addr)
	standing, err := c.Standing(t.Context(), s.store(), s.group, []string{s.topic})
	require.NoError(t, err)
	require.Equal(t, "Empty", standing.Group.State)
	require.Len(t, standing.Partitions, 2)
	p := standing.Partitions[1]
	require.NotEmpty(t, p.Owner)
	p.Owner = ""
	require.Equal(t, cluster.PartitionStanding{GroupOffset: cluster.GroupOffset{Topic: s.topic, Partition: 1,
		Committed: 10, Stable: 15, End: 15}, LeaderEpoch: new(int32(0)), Position: 10, Lag: 5}, p)

	s.start(s.consumer(nil))
	s.caughtUp()
	standing, err = c.Standing(t.Context(), s.store(), s.group, []string{s.topic})
	require.NoError(t, err)
	require.Equal(t, "firstseen", standing.Partitions[0].Member.ClientID)
	require.Zero(t, standing.Partitions[0].Lag)
	standing, err = c.Standing(t.Context(), s.store(), "nobody-"+uuid.NewString(), []string{s.topic})
	require.NoError(t, err)
	require.EqualValues(t, -1, standing.Partitions[0].Position)
}

// What lies behind the last stable offset is in a producer's open transaction: nobody can read it yet, and so it is
// no lag, and a reset to there would skip it.
func TestStandingAndResetEndAtTheLastStableOffset(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := stopped(t, addr)
		consumertest.NewTransactions(s.t, s.addr, s.topic).Open(s.recordsTo(0, 5)...)
		consumertest.ProduceTo(t, addr, s.recordsTo(0, 5)...)

		standing, err := newCluster(t, addr).Standing(t.Context(), s.store(), s.group, []string{s.topic})
		require.NoError(t, err)
		at := standing.Partitions[0]
		require.Equal(t, []int64{10, 15, 25, 5}, []int64{at.Position, at.Stable, at.End, at.Lag})

		for _, place := range []replay.Place{replay.LatestPlace(), replay.OffsetPlace(20)} {
			plan := s.plan(place, 0)
			require.Equal(t, []cluster.ResetPartition{{Partition: 0, Position: 10, Committed: 10,
				From: 10, To: 15, Skipped: 5}}, plan.Partitions)
		}
		within := *s.plan(replay.LatestPlace(), 0)
		within.Partitions[0].To = 18 // as a group that was taken over may stand
		require.NoError(t, newCluster(t, addr).Reset(t.Context(), s.store(), &within, nightShift))
		standing, err = newCluster(t, addr).Standing(t.Context(), s.store(), s.group, []string{s.topic})
		require.NoError(t, err)
		require.Zero(t, standing.Partitions[0].Lag, "and not below")
		back := s.plan(replay.OffsetPlace(12), 0).Partitions[0]
		require.EqualValues(t, 3, back.Again, "what lies behind the last stable offset was not read")
	})
}
