package replay_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
)

func TestReaderFollowsMovedLeaders(t *testing.T) {
	fake := consumertest.NewFake(t)
	r := newReading(t, fake.Addr, 3, meagre)
	var ranges []replay.Range
	for range 20 {
		r.fill(5)
	}
	for p := range int32(3) {
		ranges = append(ranges, replay.Range{Partition: p, To: 100})
	}
	var n atomic.Int32
	got, err := r.read(func(context.Context, replay.Page) error {
		if n.Add(1)%10 == 0 {
			fake.Cluster.ShufflePartitionLeaders()
		}
		return nil
	}, ranges...)
	require.NoError(t, err)
	for p := range int32(3) {
		require.Equal(t, from(0, 100), got.offsets(p))
	}
}

func TestReaderMakesUpForRefusedFetches(t *testing.T) {
	for _, refusal := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownTopicID, kerr.UnknownTopicOrPartition,
		kerr.OffsetNotAvailable, kerr.KafkaStorageError, kerr.UnknownServerError,
		kerr.OffsetOutOfRange, // from a leader that is new and behind
	} {
		t.Run(refusal.Message, func(t *testing.T) {
			fake := consumertest.NewFake(t)
			r := newReading(t, fake.Addr, 2, nil)
			r.fill(10)
			refused := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch},
				Partitions: []int32{0}, Err: refusal, Count: 3})
			got := r.mustRead(replay.Range{Partition: 0, To: 10}, replay.Range{Partition: 1, To: 10})
			consumertest.Met(t, refused, 3)
			require.Equal(t, from(0, 10), got.offsets(0))
			require.Equal(t, from(0, 10), got.offsets(1))
		})
	}
}

func TestReaderWaitsForBrokersThatAreAway(t *testing.T) {
	var away atomic.Bool
	var refused atomic.Int32
	fake := consumertest.NewTampered(t, func([]byte) bool {
		if !away.Load() {
			return true
		}
		away.Store(refused.Add(1)%20 != 0)
		return false
	})
	r := newReading(t, fake.Addr, 1, meagre)
	for range 5 {
		r.fill(10)
	}
	away.Store(true)
	leave := sync.OnceFunc(func() { away.Store(true) })
	got, err := r.read(func(context.Context, replay.Page) error { leave(); return nil }, replay.Range{To: 50})
	require.NoError(t, err)
	require.Equal(t, from(0, 50), got.offsets(0))
	require.EqualValues(t, 40, refused.Load())
	require.True(t, r.book.Has(slog.LevelError, "Kafka does not answer", "reason", "find offsets"))
	require.True(t, r.book.Has(slog.LevelWarn, "fetches from a broker fail"))
}

func TestReaderWaitsForBrokersNoLongerThanItsContext(t *testing.T) {
	r := newReading(t, consumertest.NewFake(t).Addr, 1,
		func(c *replay.ReaderConfig) { c.Brokers = []string{"127.0.0.1:1"} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.reader.Read(ctx, consumer.Topic{Name: r.topic}, []replay.Range{{To: 1}}, nil) }()
	require.Eventually(t, func() bool {
		return r.book.Has(slog.LevelError, "Kafka does not answer", "reason", "find offsets")
	}, waitLimit, waitTick)
	cancel()
	err := <-ended
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "refused", "it says what the matter was")
}

// emptyFetch is an answer that there is nothing in the partitions that are asked for.
func emptyFetch(r *kmsg.FetchRequest, lastStable int64) *kmsg.FetchResponse {
	answer := r.ResponseKind().(*kmsg.FetchResponse)
	for _, topic := range r.Topics {
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.HighWatermark, p.LastStableOffset = partition.Partition, lastStable, lastStable
			t.Partitions = append(t.Partitions, p)
		}
		answer.Topics = append(answer.Topics, t)
	}
	return answer
}

// answering has fetches answered by a function, where it gives an answer.
func answering(fake *consumertest.Fake, answer func(r *kmsg.FetchRequest, offset int64) *kmsg.FetchResponse) {
	fake.Cluster.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		r := request.(*kmsg.FetchRequest)
		if a := answer(r, r.Topics[0].Partitions[0].FetchOffset); a != nil {
			return a, nil, true
		}
		return nil, nil, false
	})
}

func TestReaderEndsWhereNothingIsLeftUpToTheEndOfThePartition(t *testing.T) {
	fake := consumertest.NewFake(t)
	r := newReading(t, fake.Addr, 1, meagre)
	r.fill(5)
	r.fill(5)
	answering(fake, func(r *kmsg.FetchRequest, offset int64) *kmsg.FetchResponse {
		if offset < 5 {
			return nil
		}
		return emptyFetch(r, 10)
	})
	got := r.mustRead(replay.Range{To: 10})
	require.Equal(t, from(0, 5), got.offsets(0))
	require.EqualValues(t, 10, got.next(0))
	require.EqualValues(t, 8, r.mustRead(replay.Range{From: 6, To: 8}).next(0))
}

func TestReaderTakesNoEmptyAnswerForTheEndWhileThereIsSomething(t *testing.T) {
	for name, c := range map[string]struct {
		patience time.Duration // a Reader has as much as it takes some looks at the cluster
		empty    func(r *kmsg.FetchRequest, offset int64) *kmsg.FetchResponse
	}{
		"tiered storage is slow": {time.Millisecond, func(r *kmsg.FetchRequest, offset int64) *kmsg.FetchResponse {
			if offset != 5 {
				return nil
			}
			return emptyFetch(r, 10)
		}},
		"the client is throttled": {time.Millisecond, func(r *kmsg.FetchRequest, _ int64) *kmsg.FetchResponse {
			answer := r.ResponseKind().(*kmsg.FetchResponse)
			answer.ThrottleMillis = 1
			return answer
		}},
		"a new leader is behind": {time.Minute,
			func(r *kmsg.FetchRequest, _ int64) *kmsg.FetchResponse { return emptyFetch(r, 5) }},
	} {
		t.Run(name, func(t *testing.T) {
			fake := consumertest.NewFake(t)
			r := newReading(t, fake.Addr, 1,
				func(cfg *replay.ReaderConfig) { meagre(cfg); cfg.MetadataInterval = c.patience })
			r.fill(5)
			r.fill(5)
			var left atomic.Int32 // of the answers that only a Reader at a loss asks for
			left.Store(3)
			answering(fake, func(r *kmsg.FetchRequest, offset int64) *kmsg.FetchResponse {
				if offset < 5 || left.Load() == 0 {
					return nil
				}
				answer := c.empty(r, offset)
				if r.MinBytes == 0 {
					left.Add(-1)
				}
				return answer
			})
			got := r.mustRead(replay.Range{To: 10})
			require.Equal(t, from(0, 10), got.offsets(0))
			require.Zero(t, left.Load())
		})
	}
}

func TestReaderFetchesNothingBehindItsRange(t *testing.T) {
	fake := consumertest.NewFake(t)
	r := newReading(t, fake.Addr, 1, meagre)
	for range 3 {
		r.fill(20)
	}
	behind := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true,
		Count: -1, When: func(r kmsg.Request) bool {
			return r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset >= 20
		}})
	_, err := r.read(func(ctx context.Context, _ replay.Page) error {
		for range 10 { // while these are asked something else could be fetched
			if _, err := r.reader.Latest(ctx, r.topic); err != nil {
				return err
			}
		}
		return nil
	}, replay.Range{To: 20})
	require.NoError(t, err)
	require.Zero(t, behind.Hits())
}

// Nothing is fetched between the first page and the new topic.
func TestReaderNoticesATopicThatWasMadeAnew(t *testing.T) {
	fake := consumertest.NewFake(t)
	r := newReading(t, fake.Addr, 1, func(c *replay.ReaderConfig) { meagre(c); c.MetadataInterval = time.Hour })
	for range 4 {
		r.fill(10)
	}
	ahead := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	again := sync.OnceFunc(func() {
		consumertest.Met(t, ahead, 2) // the second batch fills the buffer
		consumertest.DeleteTopic(t, r.addr, r.topic)
		consumertest.CreateTopic(t, r.addr, r.topic, 1)
		r.fill(40)
	})
	got, err := r.read(func(context.Context, replay.Page) error { again(); return nil }, replay.Range{To: 40})
	require.ErrorContains(t, err, "it was deleted and created again")
	require.NotEmpty(t, got.of[0])
	require.LessOrEqual(t, len(got.of[0]), 2, "the second one may have been asked for, and not answered yet")
}

func TestReaderNoticesATopicThatIsDeleted(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		r := newReading(t, addr, 1, meagre)
		for range 4 {
			r.fill(10)
		}
		drop := sync.OnceFunc(func() { consumertest.DeleteTopic(t, addr, r.topic) })
		_, err := r.read(func(context.Context, replay.Page) error { drop(); return nil }, replay.Range{To: 40})
		require.ErrorContains(t, err, "it was deleted meanwhile")
	})
}

// Brokers before 2.8 have no topic IDs: there a topic that was made anew may be noticed because it ends too soon.
func TestReaderNoticesAPartitionThatEndsBelowItsRange(t *testing.T) {
	for _, messages := range []int{50, 30} {
		t.Run(fmt.Sprintf("%d messages", messages), func(t *testing.T) {
			fake := consumertest.NewFake(t, kfake.MaxVersions(kversion.V2_7_0()))
			r := newReading(t, fake.Addr, 1, meagre)
			r.fill(50)
			r.fill(50)
			unread := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch},
				Count: -1, When: func(r kmsg.Request) bool {
					return r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset >= 50
				}})
			again := sync.OnceFunc(func() {
				unseen := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata},
					Err: kerr.LeaderNotAvailable, Count: -1})
				require.NoError(t, fake.Cluster.DeleteTopic(r.topic))
				require.NoError(t, fake.Cluster.CreateTopic(r.topic, 1, nil))
				unseen.Remove()
				r.fill(messages)
				unread.Remove()
			})
			got, err := r.read(func(_ context.Context, p replay.Page) error {
				if p.Next == 50 {
					again()
				}
				return nil
			}, replay.Range{To: 100})
			require.ErrorContains(t, err, "partition 0 ends below 100 now")
			require.Equal(t, from(0, 50), got.offsets(0))
		})
	}
}

func TestReaderRefusesWhatItCanNotDecode(t *testing.T) {
	damaged := []byte("a bit of this rots")
	fake := consumertest.NewTampered(t, func(answer []byte) bool {
		for i := range len(answer) - len(damaged) {
			if string(answer[i:i+len(damaged)]) == string(damaged) {
				answer[i] ^= 1
			}
		}
		return true
	})
	r := newReading(t, fake.Addr, 1, nil)
	r.fill(5)
	rotten := consumertest.RecordsTo(r.topic, 0, 3)
	rotten[1].Value = damaged
	consumertest.ProduceTo(t, r.addr, rotten...)
	got, err := r.read(nil, replay.Range{To: 8})
	require.ErrorIs(t, err, kerr.CorruptMessage)
	require.ErrorContains(t, err, r.topic+"/0@5")
	require.Equal(t, from(0, got.next(0)), got.offsets(0))
	require.LessOrEqual(t, got.next(0), int64(5))
}
