package consumer_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// cutOffAt has a fake cluster say that its logs part from what was read under leader epoch 0 at an offset.
func cutOffAt(fake *kfake.Cluster, end int64) {
	consumertest.AnswerEpochs(fake, func(asked int32) (int32, int64) { return asked, end })
}

// divergeFetches has a fake cluster answer fetches that name a last epoch as a leader with another log does, and
// tells how many there were.
func divergeFetches(fake *kfake.Cluster, end int64) *atomic.Int64 {
	var named atomic.Int64
	fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		request := r.(*kmsg.FetchRequest)
		answer := request.ResponseKind().(*kmsg.FetchResponse)
		for _, t := range request.Topics {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				if p.LastFetchedEpoch < 0 || p.FetchOffset <= end {
					return nil, nil, false
				}
				partition := kmsg.NewFetchResponseTopicPartition()
				partition.Partition, partition.RecordBatches = p.Partition, []byte{}
				partition.DivergingEpoch.Epoch, partition.DivergingEpoch.EndOffset = p.LastFetchedEpoch, end
				topic.Partitions = append(topic.Partitions, partition)
				named.Add(1)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	return &named
}

func TestFetchThatFindsAnotherLogHoldsThePartition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		opts   []kfake.Opt
		reason string
	}{
		{"by topic ID", nil, "was read up to 20, under the leader epoch 0: they part at 10"},
		{"by topic name", []kfake.Opt{kfake.MaxVersions(kversion.V2_7_0())},
			"was read up to 20, under the leader epoch 0: they part at or below 10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake := consumertest.NewFake(t, append(c.opts, kfake.NumBrokers(1))...)
			s := newStage(t, fake.Addr, 1)
			s.fill(20)
			book, _ := s.run(nil)
			s.caughtUp()
			cutOffAt(fake.Cluster, 10)
			named := divergeFetches(fake.Cluster, 10)
			s.logged(book, slog.LevelError, "", "partition", s.topic+"/0", "hold",
				consumer.HeldCutOff, "reason", c.reason)
			s.heldBy(consumer.HeldCutOff, 0)
			require.NotZero(t, named.Load())
		})
	}
}

func TestLogThatWasCutOffIsReadAgainFromWhereItWasByPolicy(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	s := newStage(t, fake.Addr, 1)
	s.consumed(20)
	cutOffAt(fake.Cluster, 10)
	s.fill(5)

	restart := settings(func(c *consumer.Config) { c.OnReset = consumer.Restart })
	book, _ := s.run(restart)
	s.caughtUp()
	s.effects(25)
	require.True(t, book.Has(slog.LevelError, "reading again from where the logs part", "offset", "10"))
}

// Else a start that trusts the committed offset would skip what lies between.
func TestCommittedOffsetGoesBackWithTheLog(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	s := newStage(t, fake.Addr, 1)
	s.consumed(20)
	cutOffAt(fake.Cluster, 10)
	_, err := operate.Of(s.store()).Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: s.topic}, nightShift)
	require.NoError(t, err)
	s.run(settings(func(c *consumer.Config) { c.OnReset = consumer.Restart }))
	s.eventually(func() bool { return s.committed(0) == 10 }, "the committed offset did not go back")
}

// The messages that come at the positions of others would be taken for them.
func TestLogThatWasCutOffIsHeldWhateverThePolicyWhereIDsArePositions(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	s := newStage(t, fake.Addr, 1)
	s.unnamed(20)
	_, stop := s.run(s.byPosition(consumer.Restart))
	s.caughtUp()
	stop()
	cutOffAt(fake.Cluster, 10)
	book, _ := s.run(s.byPosition(consumer.Restart))
	s.logged(book, slog.LevelError, "", "hold", consumer.HeldCutOff, "reason", "messages are known by their positions")
	s.heldBy(consumer.HeldCutOff, 0)
}

func TestPositionBelowTheCutGoesOn(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	s := newStage(t, fake.Addr, 1)
	s.consumed(20)
	s.exec(`do $$ begin
		perform set_config('firstseen_tx.sealed', pg_current_xact_id()::text, true);
		update firstseen.positions set next_offset = 10, leader_epoch_at = 10; end $$`) // Postgres was set back
	s.fill(5)
	cutOffAt(fake.Cluster, 10)
	s.run(nil)
	s.caughtUp()
	s.effects(25)
}

// The group was moved back by hand, or its last offsets were not committed: what was read is read again in any case.
func TestCommittedOffsetBelowTheCutGoesOn(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	s := newStage(t, fake.Addr, 1)
	s.consumed(20)
	s.commitAt(10, -1)
	s.fill(5)
	cutOffAt(fake.Cluster, 15)
	book, _ := s.run(nil)
	s.caughtUp()
	s.effects(25)
	require.True(t,
		book.Has(slog.LevelWarn, "cut off below the position", "position", "20", "parts_at", "15", "offset", "10"))
}

func (s *stage) commitAt(offset int64, epoch int32) {
	s.t.Helper()
	s.admin(func(ctx context.Context, a *kadm.Client) error {
		offsets := kadm.Offsets{}
		offsets.AddOffset(s.topic, 0, offset, epoch)
		return a.CommitAllOffsets(ctx, s.group, offsets)
	})
}

func TestCommittedEpochCountsWherePostgresHasNone(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(s *stage){
		"new to Postgres": func(s *stage) {},
		"committed offset behind the position": func(s *stage) {
			s.consumed(10)
			s.exec(`update firstseen.positions set leader_epoch = null`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := consumertest.NewFake(t, kfake.NumBrokers(1))
			s := newStage(t, fake.Addr, 1)
			s.fill(20)
			begin(s)
			s.commitAt(20, 0)
			cutOffAt(fake.Cluster, 10)
			book, _ := s.run(nil)
			s.logged(book, slog.LevelError, "", "hold", consumer.HeldCutOff, "reason",
				"was read up to 20, under the leader epoch 0")
		})
	}
}

func TestOffsetsAreCommittedWithTheirLeaderEpoch(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		s.consumed(20)
		s.admin(func(ctx context.Context, a *kadm.Client) error {
			found, err := a.FetchOffsets(ctx, s.group)
			require.EqualValues(t, 20, found[s.topic][0].At)
			require.Zero(t, found[s.topic][0].LeaderEpoch)
			return err
		})
		require.Zero(t, s.count(`select leader_epoch from firstseen.positions`))
	})
}

// A position whose leader epoch is not known, as after an upgrade, gets it with its next message.
func TestPositionFromBeforeLearnsItsLeaderEpoch(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	s := newStage(t, fake.Addr, 1)
	s.consumed(20)
	s.exec(`update firstseen.positions set leader_epoch = null`)
	s.commitAt(20, -1)
	_, stop := s.run(nil)
	s.fill(5)
	s.caughtUp()
	stop()
	s.effects(25)
	require.Zero(t, s.count(`select leader_epoch from firstseen.positions where leader_epoch_at = next_offset`))
}

// A broker that keeps no epochs refuses fetches that name one: they go on without.
func TestLeaderThatKeepsNoEpochsIsReadWithoutThem(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	s := newStage(t, fake.Addr, 1)
	fake.Cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		request := r.(*kmsg.OffsetForLeaderEpochRequest)
		answer := request.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic, partition := kmsg.NewOffsetForLeaderEpochResponseTopic(),
			kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		topic.Topic, partition.LeaderEpoch, partition.EndOffset = s.topic, -1, -1
		topic.Partitions = append(topic.Partitions, partition)
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	fake.Cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		request := r.(*kmsg.FetchRequest)
		for _, t := range request.Topics {
			for _, p := range t.Partitions {
				if p.LastFetchedEpoch >= 0 {
					return refusal(request), nil, true
				}
			}
		}
		return nil, nil, false
	})
	s.fill(20)
	s.run(nil)
	s.effects(20)
	s.fill(5)
	s.effects(25)
	s.fill(5)
	s.caughtUp()
	s.effects(30)
}

// refusal answers that all offsets are out of range.
func refusal(request *kmsg.FetchRequest) *kmsg.FetchResponse {
	answer := request.ResponseKind().(*kmsg.FetchResponse)
	for _, t := range request.Topics {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			partition := kmsg.NewFetchResponseTopicPartition()
			partition.Partition, partition.RecordBatches = p.Partition, []byte{}
			partition.ErrorCode = 1
			topic.Partitions = append(topic.Partitions, partition)
		}
		answer.Topics = append(answer.Topics, topic)
	}
	return answer
}
