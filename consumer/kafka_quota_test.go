package consumer_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// A quota that is too small for one fetch looks like a topic without messages.
func TestBrokerThatThrottlesToNothingIsAHoldUntilItAnswers(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	s := newStage(t, fake.Addr, 1)
	consumertest.Produce(t, s.addr, s.records(10, 3)...)
	var enough atomic.Bool
	fake.Cluster.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		if enough.Load() {
			return nil, nil, false
		}
		answer := request.(*kmsg.FetchRequest).ResponseKind().(*kmsg.FetchResponse)
		answer.ThrottleMillis = 200
		return answer, nil, true
	})
	waiting := holds.New(logger())
	stop := s.start(s.consumer(func(_ *consumer.Config, h *handlers.Config) { h.Holds = waiting }))
	throttled := func() bool {
		return slices.ContainsFunc(waiting.List(), func(h holds.Hold) bool { return h.Code == holds.Throttled })
	}
	require.Eventually(t, throttled, 3*time.Minute, 50*time.Millisecond)

	enough.Store(true)
	s.caughtUp()
	require.Eventually(t, func() bool { return !throttled() }, 3*time.Minute, 50*time.Millisecond)
	stop()
	s.requireOnce(10)
}
