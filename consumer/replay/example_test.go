package replay_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// All that a topic holds now is read once more, beside whatever group consumes it.
func ExampleReader() {
	t := new(deduptest.Example)
	defer t.End()
	broker := consumertest.NewFake(t).Addr // a program connects to its own
	consumertest.CreateTopic(t, broker, "payments", 1)
	consumertest.Produce(t, broker, &kgo.Record{Topic: "payments", Key: []byte("alice"), Value: []byte("100")},
		&kgo.Record{Topic: "payments", Key: []byte("bob"), Value: []byte("20")})

	ctx := context.Background()
	reader, err := replay.NewReader(replay.ReaderConfig{Connection: consumer.Connection{Brokers: []string{broker}}})
	if err != nil {
		panic(err)
	}
	defer reader.Close()
	first, err := reader.Earliest(ctx, "payments")
	if err != nil {
		panic(err)
	}
	end, err := reader.Latest(ctx, "payments")
	if err != nil {
		panic(err)
	}
	var ranges []replay.Range
	for p := range end {
		ranges = append(ranges, replay.Range{Partition: p, From: first[p], To: end[p]})
	}
	err = reader.Read(ctx, consumer.Topic{Name: "payments"}, ranges, func(_ context.Context, page replay.Page) error {
		for _, m := range page.Messages { // with several partitions, those of others come at the same time
			fmt.Printf("%s: %s\n", m.Key, m.Value)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// alice: 100
	// bob: 20
	// <nil>
}
