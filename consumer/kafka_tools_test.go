package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/handlers"
)

const (
	waitLimit = 3 * time.Minute
	waitTick  = 20 * time.Millisecond
)

// logged waits for such an entry.
func (s *stage) logged(l *consumertest.Log, level slog.Level, message string, attrs ...string) {
	s.t.Helper()
	s.eventually(func() bool { return l.Has(level, message, attrs...) },
		"never logged: %s %q %v", level, message, attrs)
}

func (s *stage) eventually(is func() bool, message string, args ...any) {
	s.t.Helper()
	require.Eventually(s.t, is, waitLimit, waitTick, fmt.Sprintf(message, args...))
}

// run starts a consumer whose log is kept.
func (s *stage) run(change func(*consumer.Config, *handlers.Config)) (book *consumertest.Log, stop func()) {
	s.t.Helper()
	book = &consumertest.Log{}
	c := s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.Logger = book.Logger()
		if change != nil {
			change(cc, hc)
		}
	})
	return book, s.start(c)
}

// consumed writes n new messages to each partition, and has them read by a consumer that ends.
func (s *stage) consumed(n int) {
	s.t.Helper()
	s.fill(n)
	_, stop := s.run(nil)
	s.caughtUp()
	stop()
}

// settings changes the consumer's own config only.
func settings(change func(*consumer.Config)) func(*consumer.Config, *handlers.Config) {
	return func(cc *consumer.Config, _ *handlers.Config) { change(cc) }
}

// effects waits until n messages have taken effect, and asserts that they are n different ones.
func (s *stage) effects(n int) {
	s.t.Helper()
	s.eventually(func() bool { return s.count(`select count(*) from effects`) >= n }, "fewer than %d effects", n)
	require.Equal(s.t, n, s.count(`select count(*) from effects`), "effects")
	require.Equal(s.t, n, s.count(`select count(distinct message_id) from effects`), "messages that took effect")
}

// begun waits until all partitions have a position.
func (s *stage) begun() {
	s.t.Helper()
	s.eventually(func() bool {
		return s.count(`select count(*) from firstseen.positions where next_offset is not null`) == s.partitions
	}, "not all partitions have a position")
}

func (s *stage) recordsTo(partition int32, n int) []*kgo.Record {
	return consumertest.RecordsTo(s.topic, partition, n)
}

// fill writes n new messages to each partition.
func (s *stage) fill(n int) {
	s.t.Helper()
	consumertest.Fill(s.t, s.addr, s.topic, s.partitions, n)
}

// admin does something to the broker with a client of its own.
func (s *stage) admin(do func(ctx context.Context, a *kadm.Client) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	require.NoError(s.t, err)
	defer client.Close()
	require.NoError(s.t, do(ctx, kadm.NewClient(client)))
}

// moveGroup sets the group's offset in a partition, as an operator does while no member is there.
func (s *stage) moveGroup(partition int32, offset int64) {
	s.t.Helper()
	s.admin(func(ctx context.Context, a *kadm.Client) error {
		var to kadm.Offsets
		to.AddOffset(s.topic, partition, offset, -1)
		return a.CommitAllOffsets(ctx, s.group, to)
	})
}

func (s *stage) committed(partition int32) int64 {
	s.t.Helper()
	return consumertest.CommittedOffset(s.t, s.addr, s.group, s.topic, partition)
}
