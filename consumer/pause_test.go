package consumer_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

var operator = operate.By{Actor: "night shift", Why: "test"}

// inbox is the stage's, for an operator.
func (s *stage) inbox() *dedup.Store {
	s.t.Helper()
	store, err := dedup.Open(context.Background(), s.pool, dedup.Config{Inbox: s.group})
	require.NoError(s.t, err)
	return store
}

func (s *stage) pause(p dedup.Pause) (resume func()) {
	s.t.Helper()
	_, err := operate.Of(s.inbox()).Pause(context.Background(), p, operator)
	require.NoError(s.t, err)
	return func() {
		_, err := operate.Of(s.inbox()).Resume(context.Background(), p, operator)
		require.NoError(s.t, err)
	}
}

// resting waits until the consumers rest in all of the stage's partitions, and have heard how much there is to do.
func (s *stage) resting(lag int64, cs ...*consumer.Consumer) {
	s.t.Helper()
	s.eventually(func() bool {
		rest, sum := 0, int64(0)
		for _, c := range cs {
			for _, p := range c.Status().Partitions {
				if sum += p.Lag; p.Paused {
					rest++
				}
			}
		}
		return rest == s.partitions && sum == lag
	}, "not all partitions rest, with a lag of %d", lag)
}

func TestPausedTopicRestsInAllInstancesUntilItIsResumed(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 4)
	often := settings(func(c *consumer.Config) { c.MetadataInterval = 200 * time.Millisecond })
	first, second := s.consumer(often), s.consumer(often)
	stopFirst, stopSecond := s.start(first), s.start(second)
	s.eventually(func() bool { return len(first.Status().Partitions) == 2 && len(second.Status().Partitions) == 2 },
		"not shared")
	s.fill(5)
	s.caughtUp()

	resume := s.pause(dedup.Pause{Kind: dedup.PauseTopic, Topic: s.topic})
	s.resting(0, first, second)
	for lag := int64(8); lag <= 24; lag += 8 { // from the second time on no fetch tells
		s.fill(2)
		s.resting(lag, first, second)
	}

	stopFirst() // a rebalance, and then a restart, change nothing
	s.resting(24, second)
	stopSecond()
	third := s.consumer(often)
	s.start(third)
	s.resting(24, third)
	s.eventually(func() bool { return s.count(`select count(*) from firstseen.positions where fruitless = 0`) == 4 },
		"a process that ends now would make the next messages suspicious")
	require.Equal(t, 20, s.count(`select count(*) from effects`))
	for p := range int32(4) {
		require.EqualValues(t, 5, s.committed(p))
	}
	resume()
	s.caughtUp()
	s.requireOnce(44)
	s.requireCaughtUp()
}

func TestPausedPartitionKeepsNoRoomFromItsSiblings(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	s.start(s.consumer(settings(func(c *consumer.Config) {
		c.BufferBytes, c.MetadataInterval = 64<<10, 200*time.Millisecond
	})))
	s.fill(5)
	s.caughtUp()
	resume := s.pause(dedup.Pause{Kind: dedup.PausePartition, Topic: s.topic})
	s.statusOf(0, func(p consumer.PartitionStatus) bool { return p.Paused })
	rs := append(s.recordsTo(0, 100), s.recordsTo(1, 100)...)
	for _, r := range rs {
		r.Value = make([]byte, 20<<10)
	}
	consumertest.ProduceTo(t, s.addr, rs...)
	s.effects(110)
	s.statusOf(0, func(p consumer.PartitionStatus) bool { return p.Next == 5 && p.Lag == 100 })
	s.statusOf(1, func(p consumer.PartitionStatus) bool { return p.CaughtUp && !p.Paused })
	s.eventually(func() bool { return consumer.Buffered(s.latest) <= 1<<20 },
		"the paused partition keeps room, beside the next fetch")
	resume()
	s.caughtUp()
	s.requireOnce(210)
}

// twoHandlers registers the handler effect and one beside it.
func (s *stage) twoHandlers(change func(*consumer.Config)) func(*consumer.Config, *handlers.Config) {
	return func(cc *consumer.Config, hc *handlers.Config) {
		for _, name := range []string{"effect", "sibling"} {
			require.NoError(s.t, hc.Handlers.Register(name, effect(name), s.topic))
		}
		if change != nil {
			change(cc)
		}
	}
}

func TestPausedHandlerParksUpToTheLimitWhileItsSiblingGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	resume := s.pause(dedup.Pause{Kind: dedup.PauseHandler, Handler: "effect"})
	c := s.consumer(s.twoHandlers(func(cc *consumer.Config) { cc.MaxParked, cc.MaxBatch = 50, 10 }))
	stop := s.start(c)
	consumertest.Produce(t, s.addr, s.records(40, 5)...)
	s.caughtUp()
	require.Equal(t, []dedup.Pause{{Kind: dedup.PauseHandler, Handler: "effect"}}, nameless(c.Status().Pauses))
	require.Equal(t, 40, s.count(`select count(*) from effects where handler = 'sibling'`))
	require.Equal(t, 40, s.count(`select count(*) from effects`))
	require.Equal(t, 40, s.count(`select count(*) from firstseen.parked where attempts = 0`))

	consumertest.Produce(t, s.addr, s.records(60, 5)...)
	s.heldBy(consumer.HeldMaxParked, 0)
	require.LessOrEqual(t, s.count(`select count(*) from firstseen.parked`), 60,
		"no more than a batch beyond the limit")
	resume()
	s.settled()
	stop()
	s.requireBoth(100)
	require.Zero(t, s.count(`select count(*) from firstseen.inbox where attempts > 0`))
}

func TestRestartsParkNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	resume := s.pause(dedup.Pause{Kind: dedup.PauseHandler, Handler: "effect"})
	consumertest.Produce(t, s.addr, s.records(300, 5)...)
	small := settings(func(cc *consumer.Config) { cc.MaxParked, cc.MaxBatch = 50, 10 })
	for range 2 {
		stop := s.start(s.consumer(small))
		s.heldBy(consumer.HeldMaxParked, 0)
		require.LessOrEqual(t, s.count(`select count(*) from firstseen.parked`), 60,
			"more than a batch beyond the limit")
		stop()
	}
	resume()
	s.start(s.consumer(small))
	s.caughtUp()
	s.settled()
	s.requireOnce(300)
}

// nameless leaves out when, by whom and why.
func nameless(pauses []dedup.Pause) (out []dedup.Pause) {
	for _, p := range pauses {
		p.At, p.Actor, p.Why = time.Time{}, "", ""
		out = append(out, p)
	}
	return out
}

// requireBoth asserts that n messages took effect once for each of two handlers, each key's in order.
func (s *stage) requireBoth(n int) {
	s.t.Helper()
	for _, handler := range []string{"effect", "sibling"} {
		require.Equal(s.t, n, s.count(`select count(*) from effects where handler = $1`, handler), handler)
	}
	require.Equal(s.t, 2*n, s.count(`select count(distinct (handler, message_id)) from effects`))
	require.Equal(s.t, 2*n, s.count(`select count(*) from firstseen.inbox`))
	require.Zero(s.t, s.count(`select count(*) from (
		select "offset" < lag("offset") over (partition by handler, "partition", key order by seq) as back from effects) e where back`),
		"effects out of order within their key")
}

func TestHandlerPausedAndResumedInTrafficKeepsOrderAndMakesEachEffectOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 3)
	for range 2 {
		s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
			s.twoHandlers(nil)(cc, hc)
			hc.LanePoll, cc.MaxBatch = 20*time.Millisecond, 20
		}))
	}
	end := s.producing()
	for range 4 {
		resume := s.pause(dedup.Pause{Kind: dedup.PauseHandler, Handler: "effect"})
		before := s.count(`select count(*) from effects`)
		s.eventually(func() bool { return s.count(`select count(*) from effects`) >= before+200 },
			"the sibling does not go on")
		s.eventually(func() bool { return s.count(`select count(*) from firstseen.parked`) >= 50 },
			"nothing is parked")
		resume()
		drained := s.count(`select count(*) from effects where handler = 'effect'`)
		s.eventually(func() bool {
			return s.count(`select count(*) from effects where handler = 'effect'`) >= drained+50
		}, "it is not resumed")
	}
	n := end()
	s.settled()
	s.requireBoth(n)
	require.Zero(t, s.count(`select count(*) from firstseen.inbox where attempts > 0`))
}

func TestProcessKilledWhileItsHandlerIsPausedLosesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	consumertest.Produce(t, s.addr, s.records(30, 5)...)
	resume := s.pause(dedup.Pause{Kind: dedup.PauseHandler, Handler: "effect"})
	for round, at := range []handlers.Stage{handlers.StageHandled, handlers.StageCommitted} {
		m := s.child(fmt.Sprint("killed-", round))
		m.MaxBatch, m.At, m.Times, m.Signal = 5, at, 2, syscall.SIGKILL
		s.startChild(m).awaitKilled()
		s.groupAdmin().removeAllBut()
	}
	parked := s.count(`select count(*) from firstseen.parked`)
	require.GreaterOrEqual(t, parked, 10)
	require.Equal(t, parked, s.count(`select next_offset from firstseen.positions`))
	stop := s.start(s.consumer(nil))
	s.caughtUp()
	require.Zero(t, s.count(`select count(*) from effects`))
	resume()
	s.settled()
	stop()
	s.requireOnce(30)
}

// An answer that was under way when its partition was paused is not kept, and its room is given back.
func TestAnswerThatComesAfterAPauseKeepsNoRoom(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	s := newStage(t, fake.Addr, 3) // 0 and 2 are fetched together
	entered, leave := make(chan struct{}), make(chan struct{})
	stop := s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.SessionTimeout, cc.RebalanceTimeout, cc.RequestTimeout = 5*time.Minute, 5*time.Minute, time.Minute
		hc.Handlers = &handlers.Registry{}
		require.NoError(t, hc.Handlers.Register("effect", handlers.Each(handlers.HandlerFunc(func(ctx context.Context,
			tx pgx.Tx, m dedup.Message) error {
			if m.Offset == 0 {
				close(entered)
				<-leave
			}
			return obey(ctx, tx, m)
		})), s.topic))
	}))
	consumertest.ProduceTo(t, s.addr, s.recordsTo(0, 1)...)
	<-entered

	holding, release, later := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var hold, look sync.Once
	fake.Cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		asked := map[int32]bool{}
		for _, topic := range r.(*kmsg.FetchRequest).Topics {
			for _, p := range topic.Partitions {
				asked[p.Partition] = true
			}
		}
		if asked[0] {
			hold.Do(func() {
				close(holding)
				fake.Cluster.SleepControl(func() { <-release })
			})
		} else if asked[2] {
			look.Do(func() { close(later) })
		}
		return nil, nil, false
	})
	<-holding
	consumertest.ProduceTo(t, s.addr, s.recordsTo(0, 100)...)
	resume := s.pause(dedup.Pause{Kind: dedup.PausePartition, Topic: s.topic})
	s.statusOf(0, func(p consumer.PartitionStatus) bool { return p.Paused })
	close(leave)
	s.eventually(func() bool { return consumer.Resting(s.latest, s.topic, 0) }, "it does not rest")
	close(release)
	<-later // what was held was taken in before that
	require.Zero(t, consumer.BufferedOf(s.latest, s.topic, 0))
	resume()
	s.caughtUp()
	stop()
	require.Zero(t, consumer.Buffered(s.latest), "it was not given back")
	s.requireOnce(101)
}
