package consumer_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

func latest(c *consumer.Config) { c.StartAt = consumer.Latest }

func TestFirstStartReadsWhatIsThere(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 3)
	s.fill(10)
	s.start(s.consumer(nil))
	s.caughtUp()
	s.requireOnce(30)
}

func TestFirstStartAtLatestReadsWhatComesAfterInEveryPartition(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 3)
	s.fill(10)
	s.start(s.consumer(settings(latest)))
	s.begun()
	s.fill(10)
	s.caughtUp()
	s.requireOnce(30)
	require.Zero(t, s.count(`select count(*) from effects where "offset" < 10`))
}

// The offset that Latest stood for at the first start must be known at the second, though the first one
// committed nothing and was cut off.
func TestStartAtLatestIsRememberedBeforeAnythingIsRead(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	s := newStage(t, fake.Addr, 3)
	s.fill(10)
	noCommit := fake.Cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
	_, stop := s.run(settings(latest))
	s.begun()
	stop()
	for p := range s.partitions {
		require.EqualValues(t, consumertest.NoOffset, s.committed(int32(p)))
	}
	noCommit.Remove()

	s.fill(10)
	s.start(s.consumer(settings(latest)))
	s.caughtUp()
	s.requireOnce(30)
}

func TestPositionAloneIsWhereReadingGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 3)
	s.consumed(10)
	s.admin(func(ctx context.Context, a *kadm.Client) error { // as Kafka does after offsets.retention.minutes
		_, err := a.DeleteGroup(ctx, s.group)
		return err
	})
	s.fill(10)
	book, _ := s.run(settings(latest))
	s.caughtUp()
	s.requireOnce(60)
	require.False(t, book.Has(slog.LevelWarn, "position"))
}

func TestCommittedOffsetAloneIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 3)
	s.fill(20)
	for p := range s.partitions {
		s.moveGroup(int32(p), 10)
	}
	book, _ := s.run(nil)
	s.caughtUp()
	s.requireOnce(30)
	require.Zero(t, s.count(`select count(*) from effects where "offset" < 10`))
	for _, p := range []string{"/0", "/1", "/2"} {
		require.True(t, book.Has(slog.LevelWarn, "taking over the group", "partition", s.topic+p, "offset", "10"))
	}
}

func TestLostPositionOfOnePartitionIsReadAgainFromItsFirstMessage(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 3)
	s.consumed(10)
	s.exec(`delete from firstseen.positions where "partition" = 1`)
	s.exec(`delete from firstseen.message_dedup d using firstseen.inbox i where d.message_id = i.message_id and i."partition" = 1`)
	s.exec(`delete from firstseen.inbox where "partition" = 1`)
	s.exec(`delete from effects where "partition" = 1`)
	book, _ := s.run(nil)
	s.effects(30)
	require.True(t, book.Has(slog.LevelWarn, "Postgres lost it", "partition", s.topic+"/1"))
}

func TestCommittedOffsetAheadOfPosition(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, policy consumer.Policy) (*stage, *consumertest.Log) {
		s := newStage(t, consumertest.NewFake(t).Addr, 1)
		s.consumed(10)
		s.fill(10)
		s.moveGroup(0, 15)
		book, _ := s.run(settings(func(c *consumer.Config) { c.OnPostgresBehind = policy }))
		s.caughtUp()
		return s, book
	}
	t.Run("the position is trusted", func(t *testing.T) {
		s, book := start(t, consumer.Position)
		s.requireOnce(20)
		require.True(t, book.Has(slog.LevelWarn, "the position in Postgres, 10, is behind the committed offset, 15"))
	})
	t.Run("the committed offset is trusted", func(t *testing.T) {
		s, book := start(t, consumer.Committed)
		s.requireOnce(15)
		require.True(t, book.Has(slog.LevelWarn, "SKIPPING 10 to 14"))
	})
}

func TestReplayByOperatorFindsOnlyDuplicates(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.consumed(20)
	s.moveGroup(0, 5)
	back := time.Now()
	s.start(s.consumer(nil))
	s.caughtUp()
	s.requireOnce(20)
	require.Equal(t, 1,
		s.count(`select count(*) from firstseen.positions where next_offset = 20 and updated_at > $1`, back))
}

func TestMembersThatStartTogetherAgreeOnWhereToBegin(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.Kafka(t), 24)
	s.fill(10)
	for range 3 {
		s.start(s.consumer(settings(latest)))
	}
	s.begun()
	s.fill(10)
	s.caughtUp()
	s.requireOnce(240)
	require.Zero(t, s.count(`select count(*) from effects where "offset" < 10`))
}
