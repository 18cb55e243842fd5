package consumer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// drain starts a consumer that may take limit to end, and ends it while its handler is at work in that many
// transactions, and gives the time that the end took. left asserts that no goroutine of it is left.
func (s *stage) drain(limit time.Duration, transactions int,
	h handlers.HandlerFunc) (took time.Duration, left func()) {
	s.t.Helper()
	entered, at := make(chan struct{}, 10_000), sync.Map{} // partitions: each is in one transaction at a time
	c := s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.DrainTimeout, cc.MaxBatch, cc.Transactions = limit, 10, transactions
		cc.SessionTimeout, cc.RebalanceTimeout = time.Minute, time.Minute // longer than the longest drain
		hc.AbandonAfter = 300 * time.Millisecond
		enter := handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			if _, known := at.LoadOrStore(m.Partition, true); !known {
				entered <- struct{}{}
			}
			return h(ctx, tx, m)
		})
		require.NoError(s.t, hc.Handlers.Register("effect", handlers.Each(enter), s.topic))
	})
	before := goleak.IgnoreCurrent()
	stop := s.start(c)
	for range transactions {
		<-entered
	}
	began := time.Now()
	stop() // requires that Run gives nil
	return time.Since(began), func() {
		s.t.Helper()
		goleak.VerifyNone(s.t, before,
			goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"),
			goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read.func1"),
			goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write"))
	}
}

// longDrain is time enough for the open batches on a busy machine.
const longDrain = 20 * time.Second

// requireCommitted asserts that the group's offsets cover exactly what took effect.
func (s *stage) requireCommitted(effects int) {
	s.t.Helper()
	require.Equal(s.t, effects, s.count(`select count(*) from effects`))
	require.Equal(s.t, effects, s.count(`select count(*) from firstseen.inbox`))
	sum := 0
	for p := range s.partitions {
		sum += max(0, int(consumertest.CommittedOffset(s.t, s.addr, s.group, s.topic, int32(p))))
	}
	require.Equal(s.t, effects, sum, "the group's offsets")
}

// pausing is obey after a pause.
func pausing(d time.Duration) handlers.HandlerFunc {
	return func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		select {
		case <-time.After(d):
			return obey(ctx, tx, m)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestShutdownFinishesTheOpenBatchAndCommitsIt(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		consumertest.Produce(t, addr, s.records(30, 5)...)
		_, left := s.drain(longDrain, 1, pausing(100*time.Millisecond))
		left()
		s.requireCommitted(10) // one batch of three

		stop := s.start(s.consumer(nil))
		s.caughtUp()
		stop()
		s.requireOnce(30)
	})
}

func TestShutdownEndsAHandlerThatObeysItsContextAtTheDrainsLimit(t *testing.T) {
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	consumertest.Produce(t, s.addr, s.records(30, 5)...)
	took, left := s.drain(2*time.Second, 1, pausing(time.Hour))
	left()
	require.GreaterOrEqual(t, took, 2*time.Second)
	require.Less(t, took, time.Minute)
	s.requireCommitted(0)
}

func TestShutdownCutsOffAHandlerThatIgnoresItsContext(t *testing.T) {
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	consumertest.Produce(t, s.addr, s.records(30, 5)...)
	hanging, late := make(chan struct{}), make(chan error, 1)
	took, left := s.drain(2*time.Second, 1, func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		<-hanging
		err := obey(context.WithoutCancel(ctx), tx, m)
		late <- err
		return err
	})
	require.GreaterOrEqual(t, took, 2*time.Second)
	require.Less(t, took, time.Minute)
	s.requireCommitted(0)
	close(hanging)
	require.Error(t, <-late, "what it does after that")
	left()
	s.requireCommitted(0)

	stop := s.start(s.consumer(nil))
	s.caughtUp()
	stop()
	s.requireOnce(30)
}

func TestShutdownOfManyPartitionsDrainsInTime(t *testing.T) {
	s := newStage(t, consumertest.NewFake(t).Addr, 64)
	s.fill(30)
	_, left := s.drain(longDrain, 4, pausing(50*time.Millisecond))
	left()
	done := s.count(`select count(*) from effects`)
	require.GreaterOrEqual(t, done, 4*10, "the open batches were not finished")
	s.requireCommitted(done)
}
