package consumer_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
)

// byPosition has messages identified by where they are in their topic.
func (s *stage) byPosition(policy consumer.Policy) func(*consumer.Config, *handlers.Config) {
	return settings(func(c *consumer.Config) {
		source, err := identity.ParseSource("position")
		require.NoError(s.t, err)
		rule, err := identity.NewRule(source)
		require.NoError(s.t, err)
		c.Topics = []consumer.Topic{{Name: s.topic, Identity: rule}}
		c.OnReset = policy
	})
}

// unnamed writes n messages without an ID.
func (s *stage) unnamed(n int) {
	s.t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = s.record("key", fmt.Sprint(i), "")
	}
	consumertest.Produce(s.t, s.addr, rs...)
}

func (s *stage) recreate(messages int) {
	s.t.Helper()
	consumertest.DeleteTopic(s.t, s.addr, s.topic)
	consumertest.CreateTopic(s.t, s.addr, s.topic, s.partitions)
	s.unnamed(messages)
}

// The messages have no ID but their position, and must not be taken for the old topic's.
func TestRecreatedTopicIsHeldAndThenReadFromItsFirstMessage(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		for _, running := range []bool{true, false} {
			for _, messages := range []int{150, 50} {
				t.Run(fmt.Sprintf("running %v, %d messages", running, messages), func(t *testing.T) {
					t.Parallel()
					s := newStage(t, addr, 1)
					s.unnamed(100)
					book, stop := s.run(s.byPosition(consumer.Hold))
					s.caughtUp()
					if running {
						s.recreate(messages)
					} else {
						stop()
						s.recreate(messages)
						book, stop = s.run(s.byPosition(""))
					}
					s.logged(book, slog.LevelError, "HELD", "partition", s.topic+"/0", "reason",
						"deleted and created again")
					s.heldBy(consumer.HeldTopicReset, 0)
					s.effects(100)
					stop()
					s.effects(100)

					book, _ = s.run(s.byPosition(consumer.Restart))
					s.effects(100 + messages)
					s.caughtUp()
					require.True(t, book.Has(slog.LevelWarn, "deleted and created again",
						"partition", s.topic+"/0", "offset", "0"))
				})
			}
		}
	})
}

func TestRecreatedTopicIsReadFromItsFirstMessageWithoutRestartWherePolicySaysSo(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		s.unnamed(100)
		s.run(s.byPosition(consumer.Restart))
		s.caughtUp()
		s.recreate(150)
		s.effects(250)
		s.caughtUp()
	})
}

// A look at the metadata would show it too; here nobody looks and nothing is fetched while the topic is made anew, and
// the broker's answer to the next fetch must tell.
func TestRecreatedTopicIsNoticedByTheFetch(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	s := newStage(t, fake.Addr, 1)
	s.unnamed(100)
	change := s.byPosition(consumer.Hold)
	book, _ := s.run(func(c *consumer.Config, h *handlers.Config) {
		change(c, h)
		c.MetadataInterval = time.Hour
	})
	s.caughtUp()
	consumertest.Met(t, fake.Cluster.Fault(kfake.Fault{ // the one that the consumer waits ten seconds after
		Keys: []kmsg.Key{kmsg.Fetch}, Topic: s.topic, Err: kerr.CorruptMessage}), 1)
	s.recreate(150)
	s.logged(book, slog.LevelError, "HELD", "partition", s.topic+"/0", "reason", "deleted and created again")
	s.effects(100)
}

// Brokers before 2.8 have no topic IDs: there a topic that ends below the position shows it, or from 2.3 on its
// leader epoch. Nothing of it is the log that was read.
func TestTopicThatEndsBelowThePositionIsHeldAndThenReadFromItsFirstMessage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		running        bool
		version        *kversion.Versions
		reason, reread string
	}{
		// one that runs may look while the topic is being filled
		{true, kversion.V2_7_0(), "part at or below ", "reading again from where the logs part"},
		{false, kversion.V2_7_0(), "part at or below 50", "reading again from where the logs part"},
		{true, kversion.V2_2_0(), ", below the position 100", "ends below the position"},
		{false, kversion.V2_2_0(), "ends at 50, below the position 100", "ends below the position"},
	} {
		t.Run(fmt.Sprintf("running %v, %s", c.running, c.version.VersionGuess()), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, consumertest.NewFake(t, kfake.MaxVersions(c.version)).Addr, 1)
			s.fill(100)
			book, stop := s.run(nil)
			s.caughtUp()
			again := func() {
				consumertest.DeleteTopic(t, s.addr, s.topic)
				consumertest.CreateTopic(t, s.addr, s.topic, 1)
				s.fill(50)
			}
			if c.running {
				again()
			} else {
				stop()
				again()
				book, stop = s.run(nil)
			}
			s.logged(book, slog.LevelError, "HELD", "partition", s.topic+"/0", "reason", c.reason)
			s.heldBy(consumer.HeldCutOff, 0)
			s.effects(100)
			stop()

			book, _ = s.run(settings(func(c *consumer.Config) { c.OnReset = consumer.Restart }))
			s.effects(150)
			s.caughtUp()
			require.True(t, book.Has(slog.LevelError, c.reread))
		})
	}
}

// Their positions would have doctor find fault, and retention keep every ID, for ever.
func TestPartitionsThatATopicMadeAnewLacksAreForgottenWithItsRestart(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 3)
	s.consumed(10)
	consumertest.DeleteTopic(t, s.addr, s.topic)
	consumertest.CreateTopic(t, s.addr, s.topic, 1)
	s.partitions = 1
	s.fill(5)
	_, stop := s.run(nil)
	s.heldBy(consumer.HeldTopicReset, 0)
	stop()
	require.Equal(t, 3, s.count(`select count(*) from firstseen.positions`), "nobody has decided yet")

	s.run(settings(func(c *consumer.Config) { c.OnReset = consumer.Restart }))
	s.effects(35)
	require.Equal(t, 1, s.count(`select count(*) from firstseen.positions`))
}

func TestRecreatedTopicIsNotHeldAgainOnceItWasRestarted(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.unnamed(100)
	_, stop := s.run(s.byPosition(consumer.Hold))
	s.caughtUp()
	stop()
	s.recreate(150)
	_, stop = s.run(s.byPosition(consumer.Restart))
	s.effects(250)
	s.caughtUp()
	stop()
	s.unnamed(10)
	s.run(s.byPosition(consumer.Hold))
	s.effects(260)
}
