package consumer_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/handlers"
)

func TestAddedPartitionsAreReadFromTheirFirstMessage(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		for _, at := range []consumer.StartAt{consumer.Earliest, consumer.Latest} {
			t.Run(string(at), func(t *testing.T) {
				s := newStage(t, addr, 1)
				s.start(s.consumer(settings(func(c *consumer.Config) { c.StartAt = at })))
				s.begun()
				s.fill(5)
				s.caughtUp()
				consumertest.AddPartitions(t, addr, s.topic, 2)
				consumertest.ProduceTo(t, addr, append(s.recordsTo(1, 15), s.recordsTo(2, 15)...)...)
				s.partitions = 3
				s.effects(35)
				s.caughtUp()
				s.requireOnce(35)
			})
		}
	})
}

// alsoOn registers the effect handler for the stage's topic and another one.
func (s *stage) alsoOn(topic string) func(*consumer.Config, *handlers.Config) {
	return func(_ *consumer.Config, h *handlers.Config) {
		require.NoError(s.t, h.Handlers.Register("effect", effect("effect"), s.topic, topic))
	}
}

// other is the same stage, looking at another topic of one partition.
func (s *stage) other(topic string) *stage {
	o := *s
	o.topic, o.partitions = topic, 1
	return &o
}

func (s *stage) exists(topic string) (exists bool) {
	s.admin(func(ctx context.Context, a *kadm.Client) error {
		topics, err := a.ListTopics(ctx)
		exists = topics.Has(topic)
		return err
	})
	return exists
}

func TestMissingTopicIsNamedNotCreatedAndReadOnceItIsThere(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		missing := s.other(consumertest.Name(t) + "-missing")
		s.fill(10)
		book, _ := s.run(s.alsoOn(missing.topic))
		s.caughtUp()
		require.True(t, book.Has(slog.LevelError, "the topic does not exist", "topic", missing.topic))
		s.fill(10)
		s.caughtUp()
		require.False(t, s.exists(missing.topic))

		consumertest.CreateTopic(t, addr, missing.topic, 1)
		missing.fill(10)
		missing.effects(30)
		missing.caughtUp()
	}
	t.Run("fake", func(t *testing.T) { test(t, consumertest.NewFake(t, kfake.AllowAutoTopicCreation()).Addr) })
	t.Run("kafka", func(t *testing.T) { test(t, consumertest.Kafka(t)) })
}

func TestOnlyTopicMissingIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t, kfake.AllowAutoTopicCreation()).Addr, 1)
	missing := s.other(consumertest.Name(t) + "-missing")
	book, _ := s.run(func(_ *consumer.Config, h *handlers.Config) {
		require.NoError(t, h.Handlers.Register("effect", effect("effect"), missing.topic))
	})
	s.logged(book, slog.LevelError, "the topic does not exist", "topic", missing.topic)
	require.False(t, s.exists(missing.topic))
	consumertest.CreateTopic(t, s.addr, missing.topic, 1)
	missing.fill(10)
	missing.effects(10)
}

func TestDeletedTopicLeavesTheOthersGoing(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		doomed := s.other(consumertest.Name(t) + "-doomed")
		consumertest.CreateTopic(t, addr, doomed.topic, 1)
		s.fill(5)
		doomed.fill(5)
		book, _ := s.run(s.alsoOn(doomed.topic))
		s.effects(10)
		s.caughtUp()
		consumertest.DeleteTopic(t, addr, doomed.topic)
		s.logged(book, slog.LevelError, "the topic does not exist", "topic", doomed.topic)
		s.fill(5)
		s.caughtUp()
		s.effects(15)
		require.False(t, s.exists(doomed.topic))
	})
}
