package consumer_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

func TestConsumerKilledAgainAndAgainLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	t.Run("fake", func(t *testing.T) { killAgainAndAgain(t, consumertest.NewFake(t).Addr, deduptest.Kills(t, 20), 0) })
	t.Run("kafka", func(t *testing.T) { killAgainAndAgain(t, consumertest.Kafka(t), (deduptest.Kills(t, 20)+9)/10, 0) })
	t.Run("failing", func(t *testing.T) {
		killAgainAndAgain(t, consumertest.NewFake(t).Addr, (deduptest.Kills(t, 20)+3)/4, 0.02)
	})
}

// killPoints are the places where the consumer kills itself; at every other round it is killed at random.
var killPoints = []handlers.Stage{
	handlers.StageAccepted, handlers.StageHandled, handlers.StageCommitted,
	consumer.StageDraining, consumer.StageAcquiring,
}

func killAgainAndAgain(t *testing.T, addr string, n int, fail float64) {
	s := newStage(t, addr, 4)
	group := s.groupAdmin()
	drops := group.watchOffsets()
	load := s.load(10, 20*time.Millisecond)
	// A slow machine may need more than a few rounds, and longer ones, until anything is done.
	for round := 0; round < n || round < n+20 && s.count(`select count(*) from effects`) == 0; round++ {
		m := s.child(fmt.Sprintf("round-%d", round))
		m.Fail = fail
		if round%2 == 0 {
			s.killAtRandom(group, m, time.Duration(1+max(0, round-n))*time.Second)
		} else {
			m.At, m.Times = killPoints[round/2%len(killPoints)], 1+rand.IntN(3)
			s.killAtPoint(group, m)
		}
	}
	require.NotZero(t, s.count(`select count(*) from effects`), "no round came so far as to do anything")
	unique := load.unique()
	t.Logf("%d kills, %d messages, of which %d were done before the last start",
		n, unique, s.count(`select count(*) from effects`))

	last := s.consumer(s.obeying(failing(fail), handlers.Retry{Base: 50 * time.Millisecond, Cap: 500 * time.Millisecond,
		MaxAttempts: 1000}))
	group.removeAllBut()
	stop := s.start(last)
	s.settled()
	stop()

	s.requireOnce(unique)
	if fail > 0 {
		require.NotZero(t, s.count(`select count(*) from firstseen.inbox where attempts > 0`), "nothing failed")
	}
	require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
	require.Empty(t, drops(), "the group's offsets moved back")
}

// killAtRandom kills the child within a time, wherever it is.
func (s *stage) killAtRandom(group *groupAdmin, m childMember, within time.Duration) {
	s.t.Helper()
	end := time.Now().Add(rand.N(within))
	p := s.startChild(m)
	for time.Now().Before(end) {
		group.removeAllBut(m.Name)
		time.Sleep(min(50*time.Millisecond, time.Until(end))) // up to the moment that was drawn
	}
	p.signal(syscall.SIGKILL)
	p.awaitKilled()
}

// killAtPoint waits until the child has killed itself. Members that died before, whose sessions the group would
// wait for, are removed meanwhile.
func (s *stage) killAtPoint(group *groupAdmin, m childMember) {
	s.t.Helper()
	m.Signal = syscall.SIGKILL
	if m.At == consumer.StageDraining {
		m.Times = 1
	}
	p := s.startChild(m)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		group.removeAllBut(m.Name)
		if m.At == consumer.StageDraining && strings.Contains(p.logs(), "partitions assigned") {
			p.signal(syscall.SIGTERM) // a member that has nothing yet has nothing to drain
		}
		select {
		case <-p.Done():
			p.awaitKilled()
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	p.awaitKilled()
}

func TestProcessKilledAfterItsHandlerMakesTheEffectOnce(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		consumertest.Produce(t, addr, s.records(3, 3)...)
		m := s.child("killed")
		m.MaxBatch, m.At, m.Times, m.Signal = 1, handlers.StageHandled, 2, syscall.SIGKILL
		s.startChild(m).awaitKilled()
		require.Equal(t, 1, s.count(`select count(*) from effects`))
		require.Equal(t, 1, s.count(`select count(*) from firstseen.message_dedup`))

		s.groupAdmin().removeAllBut()
		stop := s.start(s.consumer(nil))
		s.caughtUp()
		stop()
		s.requireOnce(3)
	})
}

// A kernel does so to a container that is too small: nothing proves that a message was the cause.
func TestAProcessThatIsKilledAtEachStartBlamesNoMessage(t *testing.T) {
	t.Parallel()
	const messages = 20
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	group := s.groupAdmin()
	consumertest.Produce(t, s.addr, s.records(messages, messages)...)
	for round := range 2 * suspectAttempts {
		m := s.child(fmt.Sprint("round-", round))
		m.At, m.Times, m.Signal = handlers.StageAccepted, 1, syscall.SIGKILL
		s.startChild(m).awaitKilled()
		group.removeAllBut()
	}
	book := &consumertest.Log{}
	stop := s.start(s.consumerOf(effect("effect"), func(cc *consumer.Config, _ *handlers.Config) {
		cc.Logger = book.Logger()
	}))
	s.allSettled(messages)
	stop()
	s.requireOnce(messages)
	require.Zero(t, s.count(`select sum(attempts) from firstseen.inbox`))
	require.Equal(t, 1, book.Times(slog.LevelWarn, "acquired again without having moved: its next messages are parked",
		"partition", s.topic+"/0", "offset", "0", "times", strconv.Itoa(2*suspectAttempts+1)))
}
