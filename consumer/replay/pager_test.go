package replay

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/wire"
)

// recordsAt are records of these offsets, from the first up to the end.
func recordsAt(first, end int64) *wire.Fetched {
	f := &wire.Fetched{Next: end}
	for at := first; at < end; at++ {
		f.Records = append(f.Records, &wire.Record{Offset: at})
		f.Costs = append(f.Costs, wire.Cost{Next: at + 1, Bytes: 1})
	}
	return f
}

// Two leaders answer where a partition moves while it is being fetched, and in any order.
func TestPagesHoldNoRecordTwiceWhereTwoLeadersAnswered(t *testing.T) {
	for name, answers := range map[string][][2]int64{
		"the same":             {{0, 10}, {0, 10}, {10, 40}},
		"the first less":       {{0, 10}, {0, 25}, {25, 40}},
		"the second less":      {{0, 25}, {0, 10}, {10, 40}},
		"the second very late": {{0, 10}, {10, 25}, {0, 5}, {5, 40}},
	} {
		for _, most := range []int{1, 3, 7, 100} {
			t.Run(fmt.Sprintf("%s, pages of %d", name, most), func(t *testing.T) {
				r, err := NewReader(ReaderConfig{Connection: consumer.Connection{Brokers: []string{"127.0.0.1:1"}},
					MaxBatch: most})
				require.NoError(t, err)
				var got []int64
				topic, err := readable(consumer.Topic{Name: "orders"}, nil)
				require.NoError(t, err)
				p := newPass(t.Context(), r, topic, func(_ context.Context, page Page) error {
					for _, m := range page.Messages {
						got = append(got, m.Offset)
						require.Less(t, m.Offset, page.Next)
					}
					return nil
				})
				defer p.finish()
				g := &pager{pass: p, partition: fetch.NewPartition(wire.TopicPartition{Topic: "orders", Partition: 3},
					wire.Topic{}, settingsOf(topic)), end: 35}
				g.partition.ReadFrom(0, nil)
				for _, a := range answers {
					f := recordsAt(a[0], a[1])
					require.True(t, r.memory.Try(f.Bytes()))
					if !g.partition.Add(f) {
						r.memory.Give(f.Bytes())
					}
				}
				for g.partition.Beyond(g.next) && g.next < g.end {
					require.NoError(t, g.page())
				}
				require.Len(t, got, 35)
				for i, offset := range got {
					require.EqualValues(t, i, offset)
				}
				require.EqualValues(t, 35, g.next)
				r.memory.Give(g.partition.Discard())
				require.Zero(t, r.memory.Used())
			})
		}
	}
}

func TestReaderKeepsToItsMemory(t *testing.T) {
	const limit = 4 << 20
	addr, topic := consumertest.NewFake(t, kfake.NumBrokers(1)).Addr, consumertest.Name(t)
	consumertest.CreateTopic(t, addr, topic, 3)
	var ranges []Range
	for p := range int32(3) {
		for range 80 {
			value := make([]byte, 100_000)
			_, _ = rand.Read(value) // so that compression has no part in it
			consumertest.ProduceTo(t, addr, &kgo.Record{Topic: topic, Partition: p, Value: value})
		}
		ranges = append(ranges, Range{Partition: p, To: 80})
	}
	r, err := NewReader(ReaderConfig{Connection: consumer.Connection{Brokers: []string{addr}}, BufferBytes: limit,
		MaxBatch: 1})
	require.NoError(t, err)
	defer r.Close()
	n := 0
	r.slots = make(chan struct{}, 1)
	err = r.Read(t.Context(), consumer.Topic{Name: topic}, ranges, func(ctx context.Context, page Page) error {
		n += len(page.Messages)
		if n == 1 {
			require.Eventually(t, func() bool { return r.memory.Used() > limit/2 }, 3*time.Minute,
				100*time.Millisecond)
		}
		require.LessOrEqual(t, r.memory.Used(), limit)
		_, err := r.Latest(ctx, topic) // while this is under way more would be fetched
		return err
	})
	require.NoError(t, err)
	require.Equal(t, 240, n)
	require.Zero(t, r.memory.Used())

	err = r.Read(t.Context(), consumer.Topic{Name: topic}, ranges,
		func(context.Context, Page) error { return context.Canceled })
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, r.memory.Used(), "also where it ended early")
}
