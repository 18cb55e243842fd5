package consumertest_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

func Example() {
	t := new(exampleTest) // a *testing.T in a test
	defer t.end()

	addr, topic := consumertest.NewFake(t).Addr, consumertest.Name(t)
	consumertest.CreateTopic(t, addr, topic, 1)
	consumertest.Produce(t, addr, &kgo.Record{Topic: topic, Value: []byte("hello")})
	fmt.Println(consumertest.EndOffset(t, addr, topic, 0))
	// Output: 1
}

// exampleTest is as much of a test as an example needs.
type exampleTest struct {
	testing.TB
	cleanups []func()
}

func (t *exampleTest) Helper() {}

func (t *exampleTest) Name() string { return "Example" }

func (t *exampleTest) Cleanup(f func()) { t.cleanups = append([]func(){f}, t.cleanups...) }

func (t *exampleTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleTest) end() {
	for _, f := range t.cleanups {
		f()
	}
}
