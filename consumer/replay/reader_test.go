package replay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup/identity"
)

// reading is a topic and a Reader, of which nothing is left at the test's end.
type reading struct {
	t           testing.TB
	addr, topic string
	partitions  int
	reader      *replay.Reader
	book        *consumertest.Log
}

const (
	waitLimit = 3 * time.Minute
	waitTick  = 20 * time.Millisecond
)

func newReading(t *testing.T, addr string, partitions int, change func(*replay.ReaderConfig)) *reading {
	t.Helper()
	r := &reading{t: t, addr: addr, topic: consumertest.Name(t), partitions: partitions, book: &consumertest.Log{}}
	consumertest.CreateTopic(t, addr, r.topic, partitions)
	cfg := replay.ReaderConfig{
		Connection:       consumer.Connection{Brokers: []string{addr}, RequestTimeout: 2 * time.Second},
		Logger:           r.book.Logger(),
		MetadataInterval: 200 * time.Millisecond, FetchWait: 100 * time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	r.reader, err = replay.NewReader(cfg)
	require.NoError(t, err)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		r.reader.Close()
		goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"),
			goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read.func1"),
			goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write"))
	})
	return r
}

// meagre has next to nothing fetched ahead: a batch for each partition.
func meagre(c *replay.ReaderConfig) { c.BufferBytes, c.FetchBytes = 1, 1 }

// pages are what was read, by partition.
type pages struct {
	t  testing.TB
	mu sync.Mutex
	of map[int32][]replay.Page
}

// add asserts that a partition's pages follow each other.
func (p *pages) add(page replay.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[int32][]replay.Page{}
	}
	next := int64(0)
	if before := p.of[page.Partition]; len(before) > 0 {
		next = before[len(before)-1].Next
	}
	for _, m := range page.Messages {
		if m.Offset < next || m.Partition != page.Partition {
			p.t.Errorf("message %d/%d in a page of partition %d from %d on",
				m.Partition, m.Offset, page.Partition, next)
		}
		next = m.Offset + 1
	}
	if page.Next < next {
		p.t.Errorf("page's next is %d, below %d", page.Next, next)
	}
	p.of[page.Partition] = append(p.of[page.Partition], page)
}

func (p *pages) offsets(partition int32) (offsets []int64) {
	for _, page := range p.of[partition] {
		for _, m := range page.Messages {
			offsets = append(offsets, m.Offset)
		}
	}
	return offsets
}

// next is how far a partition was read, 0 where there was no page.
func (p *pages) next(partition int32) int64 {
	if of := p.of[partition]; len(of) > 0 {
		return of[len(of)-1].Next
	}
	return 0
}

// read reads ranges; on, if set, is called for each page.
func (r *reading) read(on func(context.Context, replay.Page) error, ranges ...replay.Range) (*pages, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	got := &pages{t: r.t}
	err := r.reader.Read(ctx, consumer.Topic{Name: r.topic}, ranges, func(ctx context.Context,
		page replay.Page) error {
		got.add(page)
		if on == nil {
			return nil
		}
		return on(ctx, page)
	})
	return got, err
}

func (r *reading) mustRead(ranges ...replay.Range) *pages {
	r.t.Helper()
	got, err := r.read(nil, ranges...)
	require.NoError(r.t, err)
	return got
}

// fill writes n new messages to each partition.
func (r *reading) fill(n int) {
	r.t.Helper()
	consumertest.Fill(r.t, r.addr, r.topic, r.partitions, n)
}

// endsAt waits until partition 0 ends there: a transaction's end takes effect some time after it was ordered.
func (r *reading) endsAt(end int64) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		latest, err := r.reader.Latest(context.Background(), r.topic)
		return err == nil && latest[0] == end
	}, waitLimit, waitTick, "partition 0 does not end at %d", end)
}

// from counts up from an offset to another.
func from(first, end int64) (offsets []int64) {
	for ; first < end; first++ {
		offsets = append(offsets, first)
	}
	return offsets
}

func TestReaderReadsItsRangesInOrderAndNoMore(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		for name, change := range map[string]func(*replay.ReaderConfig){
			"by default":          nil,
			"a batch at a time":   meagre,
			"a message at a time": func(c *replay.ReaderConfig) { c.MaxBatch = 1 },
			"a byte at a time":    func(c *replay.ReaderConfig) { c.MaxBatchBytes = 1 },
		} {
			t.Run(name, func(t *testing.T) {
				r := newReading(t, addr, 4, change)
				for range 5 {
					r.fill(20)
				}
				got := r.mustRead(replay.Range{Partition: 0, To: 100}, replay.Range{Partition: 1, From: 17, To: 63},
					replay.Range{Partition: 3, From: 99, To: 100}, replay.Range{Partition: 2, From: 50, To: 50})
				require.Equal(t, from(0, 100), got.offsets(0))
				require.Equal(t, from(17, 63), got.offsets(1))
				require.Empty(t, got.of[2])
				require.Equal(t, from(99, 100), got.offsets(3))
				require.EqualValues(t, 100, got.next(0))
				require.EqualValues(t, 63, got.next(1))
				if name == "a message at a time" || name == "a byte at a time" {
					require.Len(t, got.of[0], 100)
				}
			})
		}
	})
}

func TestReaderFindsWhatAHandlerWouldGet(t *testing.T) {
	r := newReading(t, consumertest.NewFake(t).Addr, 1, nil)
	id := uuid.New()
	record := consumertest.Record(r.topic, "k", "v", id.String())
	record.Headers = append(record.Headers, kgo.RecordHeader{Key: "tenant", Value: []byte("acme")})
	consumertest.Produce(t, r.addr, record, consumertest.Record(r.topic, "k", "v", ""))
	var got []replay.Page
	topic := consumer.Topic{Name: r.topic, TenantHeader: "tenant", Fingerprint: identity.FingerprintBytes}
	err := r.reader.Read(t.Context(), topic, []replay.Range{{To: 2}}, func(_ context.Context, p replay.Page) error {
		got = append(got, p)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, r.topic, got[0].Topic)
	client, err := kgo.NewClient(kgo.SeedBrokers(r.addr))
	require.NoError(t, err)
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(t.Context(), r.topic)
	require.NoError(t, err)
	require.EqualValues(t, topics[r.topic].ID, got[0].TopicID)
	m := got[0].Messages
	require.Len(t, m, 2)
	require.Equal(t, id, m[0].ID)
	require.Equal(t, "acme", m[0].Tenant)
	require.NotEmpty(t, m[0].Fingerprint)
	require.Equal(t, "k v", fmt.Sprintf("%s %s", m[0].Key, m[0].Value))
	require.NotEmpty(t, m[1].Reason, "it has no ID")
}

func TestReaderEndsWhereThePartitionEndedAtTheStart(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		r := newReading(t, addr, 2, meagre)
		for range 3 {
			r.fill(10)
		}
		more := sync.OnceFunc(func() { r.fill(10) })
		got, err := r.read(func(context.Context, replay.Page) error { more(); return nil },
			replay.Range{Partition: 0, To: math.MaxInt64}, replay.Range{Partition: 1, From: 30, To: 40})
		require.NoError(t, err)
		require.Equal(t, from(0, 30), got.offsets(0))
		require.EqualValues(t, 30, got.next(0))
		require.Empty(t, got.of[1])
	})
}

func TestReaderPassesOverAbortedMessagesAndEndsAtMarkers(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		r := newReading(t, addr, 1, nil)
		producer := consumertest.NewTransactions(r.t, r.addr, r.topic)
		producer.Open(consumertest.RecordsTo(r.topic, 0, 3)...) // 0 to 2, and the marker at 3
		producer.End(kgo.TryCommit)
		producer.Open(consumertest.RecordsTo(r.topic, 0, 3)...) // 4 to 6, and the marker at 7
		producer.End(kgo.TryAbort)
		r.fill(2) // 8 and 9
		producer.Open(consumertest.RecordsTo(r.topic, 0, 3)...)
		producer.End(kgo.TryAbort) // the marker at 13 is the last
		r.endsAt(14)
		visible := []int64{0, 1, 2, 8, 9}
		for first := range int64(14) {
			for end := first + 1; end <= 14; end++ {
				var want []int64
				for _, offset := range visible {
					if offset >= first && offset < end {
						want = append(want, offset)
					}
				}
				got := r.mustRead(replay.Range{From: first, To: end})
				require.Equal(t, want, got.offsets(0), "from %d to %d", first, end)
				require.Equal(t, end, got.next(0), "from %d", first)
			}
		}
	})
}

func TestReaderEndsAtTheLastStableOffset(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		r := newReading(t, addr, 1, nil)
		producer := consumertest.NewTransactions(r.t, r.addr, r.topic)
		r.fill(5)
		producer.Open(consumertest.RecordsTo(r.topic, 0, 3)...)
		r.fill(5) // behind the open transaction
		for _, to := range []int64{5, 6, 13, math.MaxInt64} {
			got := r.mustRead(replay.Range{From: 2, To: to})
			require.Equal(t, from(2, 5), got.offsets(0))
			require.EqualValues(t, 5, got.next(0))
		}
		require.Empty(t, r.mustRead(replay.Range{From: 5, To: 13}).of)
		require.Empty(t, r.mustRead(replay.Range{From: 100, To: 130}).of)
		producer.End(kgo.TryCommit)
		r.endsAt(14)
		// 13 is the marker
		require.Equal(t, from(2, 13), r.mustRead(replay.Range{From: 2, To: math.MaxInt64}).offsets(0))
	})
}

// Ranges end and begin in the holes that compaction left, and before and behind them.
func TestReaderEndsARangeWhoseTailWasCompactedAway(t *testing.T) {
	test := func(t *testing.T, addr string, compact func()) {
		r := newReading(t, addr, 1, nil)
		require.Less(t, consumertest.Compact(r.t, r.addr, r.topic, compact), 30)
		before := offsetsOf(consumertest.Surviving(r.t, r.addr, r.topic))
		end := consumertest.EndOffset(t, addr, r.topic, 0)
		read := map[int64]*pages{}
		for to := int64(1); to <= end; to++ {
			read[to] = r.mustRead(replay.Range{To: to})
			require.Equal(t, to, r.mustRead(replay.Range{From: to - 1, To: to}).next(0))
		}
		after := offsetsOf(consumertest.Surviving(r.t, r.addr, r.topic)) // Kafka may have compacted on
		for to, got := range read {
			require.Equal(t, to, got.next(0))
			require.Subset(t, below(before, to), got.offsets(0))
			require.Subset(t, got.offsets(0), below(after, to))
		}
	}
	t.Run("fake", func(t *testing.T) {
		fake := consumertest.NewFake(t)
		test(t, fake.Addr, fake.Cluster.Compact)
	})
	t.Run("kafka", func(t *testing.T) { test(t, consumertest.Kafka(t), func() {}) })
}

func offsetsOf(records []*kgo.Record) []int64 {
	offsets := []int64{}
	for _, r := range records {
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

func below(offsets []int64, end int64) []int64 {
	these := []int64{}
	for _, offset := range offsets {
		if offset < end {
			these = append(these, offset)
		}
	}
	return these
}

func TestReaderNamesMessagesThatWereDeleted(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		for _, c := range []struct {
			first, end int64
			lost       string
			left       []int64
		}{
			{3, 30, "3 to 14", from(15, 30)},
			{3, 15, "3 to 14", nil},
			{3, 9, "3 to 8", nil},
			{15, 30, "", from(15, 30)},
		} {
			t.Run(fmt.Sprintf("%d to %d", c.first, c.end), func(t *testing.T) {
				r := newReading(t, addr, 1, nil)
				r.fill(20)
				r.fill(20)
				consumertest.DeleteBefore(r.t, r.addr, r.topic, 0, 15)
				got, err := r.read(nil, replay.Range{From: c.first, To: c.end})
				if c.lost == "" {
					require.NoError(t, err)
					require.Equal(t, c.left, got.offsets(0))
					return
				}
				require.ErrorContains(t, err, r.topic+"/0@"+c.lost+" were deleted")
				require.Empty(t, got.of)

				goOn := newReading(t, addr, 1, func(c *replay.ReaderConfig) { c.OnLoss = consumer.Continue })
				goOn.topic = r.topic
				got = goOn.mustRead(replay.Range{From: c.first, To: c.end})
				require.Equal(t, c.left, got.offsets(0))
				require.Equal(t, c.end, got.next(0))
				require.True(t, goOn.book.Has(slog.LevelError, "LOST", "partition", r.topic+"/0", "from", "3"))
			})
		}
	})
}

func TestReaderNamesWhatDoesNotExist(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		r := newReading(t, addr, 2, nil)
		_, err := r.read(nil, replay.Range{Partition: 1, To: 5}, replay.Range{Partition: 2, To: 5})
		require.EqualError(t, err, "read topic "+r.topic+": partition 2 does not exist")
		for _, name := range []string{r.topic + "-missing", "no name for a topic"} {
			r.topic = name
			_, err = r.read(nil, replay.Range{To: 5})
			require.EqualError(t, err, "read topic "+name+": it does not exist")
			_, err = r.reader.Latest(t.Context(), name)
			require.ErrorContains(t, err, name+": it does not exist")
		}
	})
}

func TestReaderReportsEveryFaultAtOnce(t *testing.T) {
	_, err := replay.NewReader(replay.ReaderConfig{OnLoss: consumer.Hold})
	require.ErrorContains(t, err, "brokers")
	require.ErrorContains(t, err, "on loss")

	r, err := replay.NewReader(replay.ReaderConfig{Connection: consumer.Connection{Brokers: []string{"127.0.0.1:1"}}})
	require.NoError(t, err)
	err = r.Read(t.Context(), consumer.Topic{Fingerprint: "?"},
		[]replay.Range{{Partition: 1, From: 3, To: 2}, {Partition: 2, From: -1}, {Partition: 2}}, nil)
	for _, fault := range []string{"a name is required", "partition 1: from 3 to 2", "partition 2: from -1",
		"named twice", "fingerprint"} {
		require.ErrorContains(t, err, fault)
	}
}

func TestReaderEndsWithTheFirstErrorOfItsCaller(t *testing.T) {
	r := newReading(t, consumertest.NewFake(t).Addr, 3, nil)
	r.fill(10)
	refused := errors.New("refused")
	var others sync.WaitGroup
	others.Add(2)
	got, err := r.read(func(ctx context.Context, p replay.Page) error {
		if p.Partition == 1 {
			others.Wait()
			return refused
		}
		others.Done()
		<-ctx.Done() // its end is what is waited for
		return ctx.Err()
	}, replay.Range{Partition: 0, To: 10}, replay.Range{Partition: 1, To: 10}, replay.Range{Partition: 2, To: 10})
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "page "+r.topic+"/1@0")
	require.Len(t, got.of, 3)
}

func TestReaderReadsNoMoreWhereItsCallerEndsAGoroutine(t *testing.T) {
	r := newReading(t, consumertest.NewFake(t).Addr, 2, func(c *replay.ReaderConfig) { c.Concurrency = 1 })
	r.fill(10)
	_, err := r.read(func(context.Context, replay.Page) error { runtime.Goexit(); return nil },
		replay.Range{Partition: 0, To: 10}, replay.Range{Partition: 1, To: 10})
	require.ErrorContains(t, err, "goroutine")
	require.Equal(t, from(0, 10), r.mustRead(replay.Range{To: 10}).offsets(0), "another Read goes on")
}

func TestReaderEndsWithItsContext(t *testing.T) {
	r := newReading(t, consumertest.NewFake(t).Addr, 1, meagre)
	r.fill(10)
	r.fill(10)
	ctx, cancel := context.WithCancel(t.Context())
	err := r.reader.Read(ctx, consumer.Topic{Name: r.topic}, []replay.Range{{To: 20}}, func(context.Context,
		replay.Page) error {
		cancel()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestReaderHasOnePageOfAPartitionOutAndAsManyAsItMayInAll(t *testing.T) {
	r := newReading(t, consumertest.NewFake(t).Addr, 5, func(c *replay.ReaderConfig) {
		c.Concurrency, c.MaxBatch = 3,
			5
	})
	r.fill(50)
	var out, most atomic.Int32
	var of [5]atomic.Int32
	var together sync.WaitGroup // of the first three, which wait for each other
	together.Add(3)
	var first atomic.Int32
	var ranges []replay.Range
	for p := range int32(5) {
		ranges = append(ranges, replay.Range{Partition: p, To: 50})
	}
	_, err := r.read(func(_ context.Context, p replay.Page) error {
		if n := of[p.Partition].Add(1); n > 1 {
			t.Errorf("%d pages of partition %d at once", n, p.Partition)
		}
		n := out.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if first.Add(1) <= 3 {
			together.Done()
			together.Wait()
		}
		out.Add(-1)
		of[p.Partition].Add(-1)
		return nil
	}, ranges...)
	require.NoError(t, err)
	require.EqualValues(t, 3, most.Load())
}

func TestReaderFindsOffsets(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		r := newReading(t, addr, 3, nil)
		begin := time.Now().Truncate(time.Millisecond).Add(-time.Hour)
		for i := range 10 {
			record := consumertest.RecordsTo(r.topic, 0, 1)
			record[0].Timestamp = begin.Add(time.Duration(i) * time.Second)
			consumertest.ProduceTo(t, addr, record...)
		}
		consumertest.ProduceTo(t, addr, consumertest.RecordsTo(r.topic, 1, 4)...)
		consumertest.NewTransactions(r.t, r.addr, r.topic).Open(consumertest.RecordsTo(r.topic, 1, 4)...)
		consumertest.DeleteBefore(r.t, r.addr, r.topic, 0, 2)
		want := func(name string, got map[int32]int64, err error, offsets ...int64) {
			t.Helper()
			require.NoError(t, err)
			require.Equal(t, map[int32]int64{0: offsets[0], 1: offsets[1], 2: offsets[2]}, got, name)
		}
		earliest, err := r.reader.Earliest(t.Context(), r.topic)
		want("earliest", earliest, err, 2, 0, 0)
		latest, err := r.reader.Latest(t.Context(), r.topic)
		want("latest", latest, err, 10, 4, 0)
		for at, offset := range map[time.Time]int64{
			time.Unix(-5, 0): 2, begin: 2, begin.Add(3 * time.Second): 3, begin.Add(3*time.Second + 1): 4,
			begin.Add(2900 * time.Millisecond): 3, begin.Add(9 * time.Second): 9, begin.Add(time.Minute): 10,
		} {
			got, err := r.reader.At(t.Context(), r.topic, at)
			want(at.String(), got, err, offset, 0, 0)
		}
		got, err := r.reader.At(t.Context(), r.topic, time.Now().Add(time.Hour))
		want("later than all", got, err, 10, 4, 0)
	})
}
