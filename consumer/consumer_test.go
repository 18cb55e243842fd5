package consumer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

func TestEachMessageTakesEffectOnceWhateverItsCopies(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 3)
		rs := s.records(500, 20)
		consumertest.Produce(t, addr, rs...)
		consumertest.Produce(t, addr, rs[100:300]...) // again, under new offsets
		stop := s.start(s.consumer(nil))
		s.caughtUp()
		consumertest.Produce(t, addr, rs...) // and again, while running
		s.caughtUp()
		stop()
		s.requireOnce(500)
		require.Equal(t, 500, s.count(`select count(*) from firstseen.message_dedup`))
	})
}
