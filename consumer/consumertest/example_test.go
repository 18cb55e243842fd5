package consumertest_test

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func Example() {
	t := new(deduptest.Example) // a *testing.T in a test
	defer t.End()

	addr, topic := consumertest.NewFake(t).Addr, consumertest.Name(t)
	consumertest.CreateTopic(t, addr, topic, 1)
	consumertest.Produce(t, addr, &kgo.Record{Topic: topic, Value: []byte("hello")})
	fmt.Println(consumertest.EndOffset(t, addr, topic, 0))
	// Output: 1
}
