package consumer_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// The way that the help of the command replay gives: pause the handler, add it, replay to it, resume it.
func TestNewHandlerIsFilledInOrderWhileItIsPaused(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	more := func() { consumertest.Produce(t, s.addr, s.records(60, 7)...) }
	more()
	stop := s.start(s.consumer(nil))
	s.caughtUp()
	stop()

	paused := dedup.Pause{Kind: dedup.PauseHandler, Handler: "later"}
	_, err := operate.Of(s.store()).Pause(t.Context(), paused, nightShift)
	require.NoError(t, err)
	more()
	s.start(s.consumer(func(_ *consumer.Config, hc *handlers.Config) {
		hc.LanePoll, hc.PausePoll = 20*time.Millisecond, 20*time.Millisecond
		s.handling("effect", "later")(hc)
	}))
	s.caughtUp()
	require.Equal(t, 60, s.count(`select count(*) from firstseen.parked`))

	var once sync.Once
	result := s.replayer(func(_ *replay.ReaderConfig,
		hc *handlers.Config) {
		s.handling("later")(hc)
	}).mustRun(func(c *replay.Config) {
		c.Progress = func(replay.Result) { once.Do(more) }
	})
	require.Equal(t, handlers.Result{New: 60, Duplicates: 60}, result.Result)
	_, err = operate.Of(s.store()).Resume(t.Context(), paused, nightShift)
	require.NoError(t, err)
	s.settled()
	for _, handler := range []string{"effect", "later"} {
		require.Equal(t, 180,
			s.count(`select count(distinct message_id) from effects where handler = $1`, handler), handler)
		require.Equal(t, 180, s.count(`select count(*) from effects where handler = $1`, handler), handler)
	}
	require.Zero(t, s.count(`select count(*) from (
		select "offset" < lag("offset") over (partition by handler, "partition", key order by seq) as back from effects) e where back`))
}

func TestReplayKeepsItsRate(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	consumertest.Produce(t, s.addr, s.records(60, 7)...)
	result := s.replayer(nil).mustRun(func(c *replay.Config) { c.Rate = 100 })
	require.EqualValues(t, 60, result.Read)
	require.GreaterOrEqual(t, result.Elapsed, 400*time.Millisecond) // all but the last batches, of 10 at most
}
