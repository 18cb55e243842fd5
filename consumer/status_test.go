package consumer_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// statusOf waits until the latest consumer has a partition and its status is as wanted.
func (s *stage) statusOf(partition int32, is func(p consumer.PartitionStatus) bool) {
	s.t.Helper()
	var last consumer.Status
	require.Eventually(s.t, func() bool {
		last = s.latest.Status()
		return slices.ContainsFunc(last.Partitions, func(p consumer.PartitionStatus) bool {
			return p.Topic == s.topic && p.Partition == partition && is(p)
		})
	}, waitLimit, waitTick)
	if s.t.Failed() {
		s.t.Logf("%+v", last)
	}
}

// heldBy waits until a partition is held for a reason, or for none.
func (s *stage) heldBy(code string, partition int32) {
	s.t.Helper()
	s.statusOf(partition, func(p consumer.PartitionStatus) bool {
		return p.Held == code && p.HeldSince.IsZero() == (code == "") && time.Since(p.HeldSince) > 0
	})
}

// requireCaughtUp asserts that all partitions are, as the group's offsets say already.
func (s *stage) requireCaughtUp() {
	s.t.Helper()
	status := s.latest.Status()
	require.Equal(s.t, consumer.Consuming, status.State)
	require.Len(s.t, status.Partitions, s.partitions)
	for _, p := range status.Partitions {
		end := consumertest.EndOffset(s.t, s.addr, s.topic, p.Partition)
		require.True(s.t, p.CaughtUp, "%+v", p)
		require.Equal(s.t, []int64{end, end, end, 0}, []int64{p.Next, p.End, p.HighWatermark, p.Lag}, "%+v", p)
		require.Zero(s.t, p.LagTime)
	}
}

func TestStatusFollowsAConsumersLife(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	s.fill(5)
	c := s.consumer(nil)
	require.Equal(t, consumer.Starting, c.Status().State)
	require.Empty(t, c.Status().Partitions)
	stop := s.start(c)
	s.caughtUp()
	s.requireCaughtUp()
	status := c.Status()
	require.EqualValues(t, 1, status.Rebalances)
	require.Positive(t, status.Generation)
	require.Zero(t, status.KafkaSince)
	require.EqualValues(t, 0, status.Partitions[0].Partition)
	require.WithinDuration(t, time.Now(), status.Since, time.Minute)
	s.statusOf(1, func(p consumer.PartitionStatus) bool { return p.Committed == 5 })

	second := s.consumer(nil)
	stopSecond := s.start(second)
	s.eventually(func() bool {
		return len(c.Status().Partitions) == 1 && len(second.Status().Partitions) == 1 && c.Status().Rebalances >= 2
	}, "not rebalanced")
	stop()
	require.Equal(t, consumer.Ended, c.Status().State)
	require.Empty(t, c.Status().Partitions)
	stopSecond()
}

func TestStatusTellsLagAndItsAge(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	rs := s.recordsTo(0, 10)
	for i, r := range rs {
		r.Timestamp = time.Now().Add(time.Duration(i)*time.Minute - time.Hour)
	}
	s.fill(1)
	s.start(s.consumer(nil))
	s.caughtUp()
	hold, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = hold.Rollback(context.Background()) }()
	_, err = hold.Exec(t.Context(), `lock table effects in access exclusive mode`)
	require.NoError(t, err)
	consumertest.ProduceTo(t, s.addr, rs...)
	s.statusOf(0, func(p consumer.PartitionStatus) bool {
		return p.Next == 1 && p.Lag == 10 && !p.CaughtUp && p.LagTime > 59*time.Minute && p.LagTime < 61*time.Minute
	})
	require.NoError(t, hold.Rollback(context.Background()))
	s.caughtUp()
	s.requireCaughtUp()
}

func TestStatusSaysThatPostgresHoldsThePartitions(t *testing.T) {
	t.Parallel()
	s, server := newStageOnOwnServer(t, consumertest.NewFake(t).Addr, 2)
	s.fill(5)
	s.start(s.consumer(nil))
	s.caughtUp()
	require.NoError(t, server.Stop(pgserver.Immediate))
	s.fill(5)
	for p := range int32(2) {
		s.heldBy(consumer.HeldPostgres, p)
	}
	require.Zero(t, s.latest.Status().KafkaSince)
	require.NoError(t, server.Start(t.Context()))
	s.pool.Reset()
	s.caughtUp()
	s.heldBy("", 0)
	s.requireCaughtUp()
}

func TestStatusSaysSinceWhenKafkaIsAway(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	s := newStage(t, fake.Addr, 1)
	s.fill(5)
	s.start(s.consumer(nil))
	s.caughtUp()
	before := time.Now()
	fake.Cluster.Close()
	s.eventually(func() bool { return !s.latest.Status().KafkaSince.IsZero() }, "Kafka's end is not told")
	since := s.latest.Status().KafkaSince
	require.WithinDuration(t, before, since, 5*time.Second)
	s.eventually(func() bool { return s.latest.Status().State == consumer.Joining }, "the partitions are not given up")
	require.False(t, s.latest.Status().KafkaSince.After(since.Add(time.Second)), "it goes on to be the same time")
}
