package consumer_test

import (
	"bytes"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

func TestRefusedCommitIsMadeUpFor(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{
		kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.NotCoordinator,
		kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.RequestTimedOut, kerr.UnknownServerError,
	} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			fake := consumertest.NewFake(t)
			s := newStage(t, fake.Addr, 3)
			s.start(s.consumer(nil))
			s.fill(10)
			s.caughtUp()
			refused := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit},
				Group: s.group, Err: refusal})
			s.fill(10)
			consumertest.Met(t, refused, 1)
			s.caughtUp()
			s.fill(10)
			s.caughtUp()
			s.requireOnce(90)
		})
	}
}

// Whatever the answer is, it is not that there is no commit: Latest would lose the ten messages behind it.
func TestUnreadableCommittedOffsetIsNotTakenForNone(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{
		kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.UnstableOffsetCommit,
		kerr.GroupAuthorizationFailed, kerr.UnknownServerError,
	} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			fake := consumertest.NewFake(t)
			s := newStage(t, fake.Addr, 1)
			s.fill(20)
			s.moveGroup(0, 10)
			refused := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch},
				Group: s.group, Err: refusal, Count: 4})
			s.start(s.consumer(settings(latest)))
			consumertest.Met(t, refused, 4)
			s.caughtUp()
			s.requireOnce(10)
		})
	}
}

func TestGroupThatCanNotBeJoinedAtFirstIsJoinedInTheEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		request kmsg.Key
		refusal *kerr.Error
	}{
		{"no coordinator yet", kmsg.FindCoordinator, kerr.CoordinatorNotAvailable},
		{"coordinator loads", kmsg.JoinGroup, kerr.CoordinatorLoadInProgress},
		{"coordinator moved", kmsg.JoinGroup, kerr.NotCoordinator},
		{"member forgotten", kmsg.JoinGroup, kerr.UnknownMemberID},
		{"group in another protocol", kmsg.JoinGroup, kerr.InconsistentGroupProtocol},
		{"rebalance goes on", kmsg.SyncGroup, kerr.RebalanceInProgress},
		{"coordinator moved while assigning", kmsg.SyncGroup, kerr.NotCoordinator},
		{"member forgotten while assigning", kmsg.SyncGroup, kerr.UnknownMemberID},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fake := consumertest.NewFake(t)
			s := newStage(t, fake.Addr, 1)
			s.fill(10)
			refused := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{c.request},
				Group: s.group, Err: c.refusal, Count: 2})
			book, _ := s.run(nil)
			consumertest.Met(t, refused, 2)
			s.caughtUp()
			s.requireOnce(10)
			require.True(t, book.Has(slog.LevelError, "Kafka does not answer", "reason", "join the group"))
		})
	}
}

func TestMemberThatTheGroupLostJoinsAgain(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration,
		kerr.RebalanceInProgress, kerr.NotCoordinator} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			fake := consumertest.NewFake(t)
			s := newStage(t, fake.Addr, 1)
			s.fill(10)
			book, _ := s.run(nil)
			s.caughtUp()
			consumertest.Met(t, fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: s.group, Err: refusal}), 1)
			s.logged(book, slog.LevelInfo, "partitions given up")
			s.fill(10)
			s.caughtUp()
			s.requireOnce(20)
		})
	}
}

func TestRefusedFetchIsMadeUpFor(t *testing.T) {
	for _, refusal := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.UnknownTopicID,
		kerr.UnknownTopicOrPartition, kerr.InconsistentTopicID, kerr.OffsetNotAvailable, kerr.KafkaStorageError,
		kerr.ReplicaNotAvailable, kerr.LeaderNotAvailable, kerr.UnknownServerError, kerr.CorruptMessage,
		kerr.OffsetOutOfRange, // from a leader that is new and behind; it is not so at the second look
	} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			fake := consumertest.NewFake(t)
			s := newStage(t, fake.Addr, 2)
			book, _ := s.run(nil)
			s.fill(10)
			s.caughtUp()
			refused := fake.Cluster.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Fetch}, Topic: s.topic, Partitions: []int32{0}, Err: refusal, Count: 3})
			consumertest.ProduceTo(t, s.addr, s.recordsTo(1, 10)...)
			s.effects(30)
			if refusal != kerr.CorruptMessage { // after that one the next fetch is ten seconds away
				consumertest.Met(t, refused, 3)
			}
			refused.Remove()
			s.fill(10)
			s.caughtUp()
			s.requireOnce(50)
			require.False(t, book.Has(slog.LevelError, "HELD"))
			require.False(t, book.Has(slog.LevelError, "LOST"))
		})
	}
}

func TestFetchCutInTheMiddleOfItsAnswerIsMadeAgain(t *testing.T) {
	t.Parallel()
	var cuts atomic.Int32
	mark := []byte("not in one piece")
	fake := consumertest.NewTampered(t, func(answer []byte) bool {
		return !bytes.Contains(answer, mark) || cuts.Add(1) > 6
	})
	s := newStage(t, fake.Addr, 3)
	s.fill(10)
	marked := s.recordsTo(1, 3)
	marked[1].Value = mark
	consumertest.ProduceTo(t, s.addr, marked...)
	s.start(s.consumer(nil))
	s.caughtUp()
	s.requireOnce(33)
	require.Greater(t, cuts.Load(), int32(6))
}

func TestCorruptBatchHoldsItsPartitionUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	var repaired atomic.Bool
	damaged := []byte("a bit of this rots")
	fake := consumertest.NewTampered(t, func(answer []byte) bool {
		if i := bytes.Index(answer, damaged); i >= 0 && !repaired.Load() {
			answer[i] ^= 1
		}
		return true
	})
	s := newStage(t, fake.Addr, 2)
	s.fill(5)
	rotten := s.recordsTo(0, 3)
	rotten[1].Value = damaged
	book, _ := s.run(nil)
	s.caughtUp()
	consumertest.ProduceTo(t, s.addr, rotten...)
	s.logged(book, slog.LevelError, "can't be decoded", "partition", s.topic+"/0", "offset", "5",
		"reason", "CORRUPT_MESSAGE")
	s.fill(5)
	s.effects(15)
	s.heldBy(consumer.HeldUndecodable, 0)
	require.EqualValues(t, 5, s.committed(0))
	require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
	repaired.Store(true)
	s.caughtUp()
	s.requireOnce(23)
	s.heldBy("", 0)
}

// Where kafka-go's own farewell gets lost, as in an outage, it comes back as a new member; the group would wait for
// the old one until its session is over, which is longer than this test waits.
func TestMemberThatWasForgottenIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	s := newStage(t, fake.Addr, 1)
	s.fill(10)
	s.run(settings(func(c *consumer.Config) { c.SessionTimeout, c.RebalanceTimeout = 4*time.Minute, 4*time.Minute }))
	s.caughtUp()
	refused := func(request kmsg.Key) *kfake.FaultHandle {
		return fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{request}, Group: s.group, Err: kerr.UnknownServerError})
	}
	join, farewell := refused(kmsg.JoinGroup), refused(kmsg.LeaveGroup)
	consumertest.Met(t, refused(kmsg.Heartbeat), 1)
	consumertest.Met(t, join, 1)
	consumertest.Met(t, farewell, 1)
	s.fill(10)
	s.caughtUp()
	s.requireOnce(20)
}
