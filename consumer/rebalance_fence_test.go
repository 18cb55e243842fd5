package consumer_test

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/handlers"
)

func TestFiftyRebalancesUnderLoadKeepOnceAndOrder(t *testing.T) {
	t.Parallel()
	const rebalances = 50
	s := newStage(t, consumertest.NewFake(t).Addr, 6)
	group := s.groupAdmin()
	drops := group.watchOffsets()
	load := s.load(10, 20*time.Millisecond)
	a, b := s.startChild(s.child("a")), s.startChild(s.child("b"))
	var c *childProcess
	group.awaitStable("a", "b")
	for i := 0; generation(a.logs()) < rebalances; i++ {
		time.Sleep(rand.N(50 * time.Millisecond)) // into any moment of a generation
		switch i % 4 {
		case 0: // the group forgets a living member, which works on until it hears of it
			group.removeAllBut("b")
		case 1: // a third one comes
			c = s.startChild(s.child("c"))
			group.awaitStable("a", "b", "c")
			continue
		case 2: // and is killed
			c.signal(syscall.SIGKILL)
			c.awaitKilled()
			group.removeAllBut("a", "b")
		case 3: // one is stopped wherever it is, is given up by the group, and goes on
			b.signal(syscall.SIGSTOP)
			group.removeAllBut("a")
			group.awaitStable("a")
			b.signal(syscall.SIGCONT)
		}
		group.awaitStable("a", "b")
	}
	unique := load.unique()
	s.settled() // what was set apart too
	s.requireOnce(unique)
	require.Empty(t, drops(), "the group's offsets moved back")
	for _, name := range []string{"a", "b"} {
		require.NotZero(t, s.count(`select count(*) from effects where made_by = $1`, name), "effects of %s", name)
	}
	t.Logf("%d messages in %d generations", unique, generation(a.logs()))
}

var generations = regexp.MustCompile(`msg="partitions assigned" .*generation=(\d+)`)

// generation is the last one that a member has logged.
func generation(logs string) (last int) {
	for _, found := range generations.FindAllStringSubmatch(logs, -1) {
		last, _ = strconv.Atoi(found[1])
	}
	return last
}

func TestMemberStoppedPastItsSessionChangesNothingWhenItGoesOn(t *testing.T) {
	t.Parallel()
	for _, at := range []handlers.Stage{
		handlers.StageAccepted, handlers.StageHandled, handlers.StageCommitted, consumer.StageAcquiring,
	} {
		t.Run("fake/"+string(at), func(t *testing.T) { stopAndGoOn(t, consumertest.NewFake(t).Addr, at, false) })
	}
	t.Run("kafka/handled", func(t *testing.T) { stopAndGoOn(t, consumertest.Kafka(t), handlers.StageHandled, false) })
	t.Run("fake/timed out", func(t *testing.T) {
		stopAndGoOn(t, consumertest.NewFake(t).Addr, handlers.StageHandled, true)
	})
}

// stopAndGoOn has member a stop itself at a place, b take the partition over when the group has given a up, and a
// go on. The group gives a up when its session times out, or at once as if it had.
func stopAndGoOn(t *testing.T, addr string, at handlers.Stage, timesOut bool) {
	s := newStage(t, addr, 1)
	group := s.groupAdmin()
	drops := group.watchOffsets()
	consumertest.Produce(t, addr, s.records(10, 3)...)
	m := s.child("a")
	m.MaxBatch, m.At, m.Times, m.Signal = 1, at, 5, syscall.SIGSTOP
	switch {
	case timesOut:
		m.SessionTimeout = 10 * time.Second
	case at == consumer.StageAcquiring:
		m.Times = 2
	default:
		m.Deaf = true // so it works on after it was stopped, until Postgres tells it
	}
	a := s.startChild(m)
	if at == consumer.StageAcquiring { // it reads the committed offsets, and is stopped before it uses them
		s.caughtUp()
		group.removeAllBut()
	}
	a.awaitStopped()
	byA := s.count(`select count(*) from effects`)
	require.NotZero(t, byA)
	if timesOut {
		group.awaitEmpty()
	}
	group.removeAllBut()

	consumertest.Produce(t, addr, s.records(10, 3)...)
	heard := &heard{}
	stop := s.start(s.consumer(func(cc *consumer.Config, _ *handlers.Config) {
		cc.ClientID, cc.MaxBatch, cc.Logger = "b", 1, heard.logger()
	}))
	s.caughtUp()
	s.requireOnce(20)
	open := at == handlers.StageAccepted || at == handlers.StageHandled
	require.Equal(t, open, heard.has("ended transactions that an earlier owner had left open"))

	a.signal(syscall.SIGCONT)
	group.awaitStable("a", "b")
	require.Equal(t, byA, s.count(`select count(*) from effects where made_by = 'a'`), "effects of the stopped member")
	s.requireOnce(20)
	consumertest.Produce(t, addr, s.records(10, 3)...)
	s.caughtUp()
	a.Stop(syscall.SIGTERM, 20*time.Second)
	stop()
	s.requireOnce(30)
	require.Empty(t, drops(), "the group's offsets moved back")
	if m.Deaf {
		require.Contains(t, a.logs(), "another owner has acquired the position")
		require.False(t, heard.has("another owner has acquired the position"))
		require.False(t, heard.has("is behind the committed offset"), "the position moved back")
	}
}

func TestOffsetNeverPassesTheMessageThatIsBeingHandled(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		group := s.groupAdmin()
		drops := group.watchOffsets()
		rs := s.records(10, 10)
		rs[2].Value = []byte("sleep:5s")
		consumertest.Produce(t, addr, rs...)
		m := s.child("a")
		m.MaxBatch = 1
		a := s.startChild(m)
		require.Eventually(t, func() bool { return group.committed()[0] == 2 && s.inTransaction() == 1 }, 3*time.Minute,
			20*time.Millisecond, "the third message was not reached")
		time.Sleep(500 * time.Millisecond) // several commits later
		a.signal(syscall.SIGKILL)
		a.awaitKilled()
		require.Equal(t, int64(2), group.committed()[0])
		require.Equal(t, 2, s.count(`select count(*) from effects`))

		group.removeAllBut()
		stop := s.start(s.consumer(nil))
		s.caughtUp()
		stop()
		s.requireOnce(10)
		require.Empty(t, drops(), "the group's offsets moved back")
	})
}
