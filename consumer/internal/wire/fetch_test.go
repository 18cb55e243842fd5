package wire

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
	"github.com/firstseen/firstseen/dedup/memory"
)

func TestFetchReadsEveryCodecByteForByte(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		for name, codec := range wiretest.Codecs {
			t.Run(name, func(t *testing.T) {
				topic := w.topic(t)
				var sent []*kgo.Record
				for i := range 300 {
					sent = append(sent, &kgo.Record{
						Key: fmt.Append(nil, "key-", i), Value: bytes.Repeat([]byte{byte(i)}, i),
						Headers: []kgo.RecordHeader{{Key: "message-id", Value: fmt.Append(nil, i)}},
					})
				}
				produce(t, w.client(t, topic, kgo.ProducerBatchCompression(codec)), sent...)
				requireSame(t, sent, w.all(t, topic, 0, eager))
			})
		}
	})
}

func requireSame(t testing.TB, sent []*kgo.Record, got []*Record) {
	t.Helper()
	require.Equal(t, fetchedOf(sent), got)
}

func TestFetchKeepsNullEmptyAndRepeatedHeadersApart(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t)
		sent := []*kgo.Record{
			{Key: nil, Value: nil},
			{Key: []byte{}, Value: []byte{}},
			{Key: []byte("null"), Value: []byte("null"), Headers: []kgo.RecordHeader{
				{Key: "h", Value: []byte("2")}, {Key: "h", Value: nil}, {Key: "h", Value: []byte{}},
				{Key: "h", Value: []byte("1")}, {Key: "", Value: []byte{0xff, 0}},
			}},
			{Key: nil, Value: []byte{},
				Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("3")}, {Key: "g", Value: nil}}},
		}
		produce(t, w.client(t, topic), sent...)
		requireSame(t, sent, w.mustFetch(t, topic, 0).Records)
	})
}

func TestFetchShowsCommittedTransactionsOnly(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t)
		producer := w.client(t, topic, kgo.TransactionalID(topic))
		for i, commit := range []bool{false, true, false, true} {
			transact(t, producer, kgo.TransactionEndTry(commit), fmt.Sprint("a", i), fmt.Sprint("b", i))
		}
		require.NoError(t, producer.BeginTransaction())
		produce(t, producer, values("open")...)
		plain := w.client(t, topic)
		produce(t, plain, values("behind the open one")...)

		got := w.mustFetch(t, topic, 0)
		require.Equal(t, []string{"a1", "b1", "a3", "b3"}, valuesOf(got.Records))
		require.EqualValues(t, 12, got.Next, "past the last control record")
		require.EqualValues(t, 12, got.LastStable)
		require.EqualValues(t, 14, got.HighWatermark)

		stuck := w.mustFetch(t, topic, got.Next)
		require.Empty(t, stuck.Records)
		require.EqualValues(t, 12, stuck.Next)

		require.NoError(t, producer.EndTransaction(t.Context(), kgo.TryAbort))
		require.Equal(t, []string{"behind the open one"}, valuesOf(w.all(t, topic, 12, eager)))
		require.EqualValues(t, 15, w.mustFetch(t, topic, 14).Next, "a control record alone moves next on")
		require.Equal(t, []string{"b1", "a3", "b3", "behind the open one"}, valuesOf(w.all(t, topic, 4, eager)))
	})
}

func transact(t *testing.T, producer *kgo.Client, end kgo.TransactionEndTry, vs ...string) {
	t.Helper()
	require.NoError(t, producer.BeginTransaction())
	produce(t, producer, values(vs...)...)
	require.NoError(t, producer.EndTransaction(t.Context(), end))
}

func TestFetchMovesPastGapsThatCompactionLeaves(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t, "cleanup.policy=compact", "segment.ms=500", "min.cleanable.dirty.ratio=0.001",
			"min.compaction.lag.ms=0", "delete.retention.ms=100")
		producer := w.client(t, topic)
		for b := range 3 {
			var batch []*kgo.Record
			for i := range 10 {
				batch = append(batch, &kgo.Record{Key: fmt.Append(nil, i), Value: fmt.Append(nil, b, "-", i)})
			}
			// A key of each batch's own at its start keeps the batch, so that it ends in a gap.
			batch[0].Key = fmt.Append(nil, "batch", b)
			produce(t, producer, batch...)
			w.roll()
		}
		produce(t, producer, &kgo.Record{Key: []byte("last"), Value: []byte("last")})
		w.roll()
		produce(t, producer, &kgo.Record{Key: []byte("active"), Value: []byte("active")})

		survivors := w.compacted(t, topic, 14)
		for from := range int64(32) {
			want := slices.DeleteFunc(slices.Clone(survivors), func(r *Record) bool { return r.Offset < from })
			require.Equal(t, valuesOf(want), valuesOf(w.all(t, topic, from, eager)), "from %d", from)
		}
	})
}

// roll lets segment.ms pass, after which a broker closes the segment at the next append.
func (w *testWire) roll() { time.Sleep(600 * time.Millisecond) }

// compacted waits until compaction has left want records of a topic.
func (w *testWire) compacted(t *testing.T, topic string, want int) (left []*Record) {
	t.Helper()
	require.Eventually(t, func() bool {
		if w.fake != nil {
			w.fake.Compact()
		}
		left = w.all(t, topic, 0, eager)
		return len(left) == want
	}, 3*time.Minute, 100*time.Millisecond)
	return left
}

func TestFetchReportsAnOffsetOutOfRange(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t)
		produce(t, w.client(t, topic), values("a", "b")...)
		leader, part := w.at(t, topic, 7)
		got, err := w.one(t.Context(), leader, part, eager)
		require.ErrorIs(t, err, kerr.OffsetOutOfRange)
		require.ErrorContains(t, err, topic+"/0@7")
		require.EqualValues(t, 7, got.Next)
	})
}

func TestFetchFromABrokerThatNobodyKnowsSaysSo(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		_, part := w.at(t, w.topic(t), 0)
		_, err := w.one(t.Context(), 99, part, eager)
		require.ErrorIs(t, err, kerr.BrokerNotAvailable)
		require.ErrorContains(t, err, "broker 99")
	})
}

func TestFetchFromAFormerLeaderReportsIt(t *testing.T) {
	w := newFakeWire(t)
	topic := w.topic(t)
	leader, part := w.at(t, topic, 0)
	other := (leader + 1) % 3
	_, err := w.one(t.Context(), other, part, eager)
	require.ErrorIs(t, err, kerr.NotLeaderForPartition)

	require.NoError(t, w.fake.MoveTopicPartition(topic, 0, other))
	_, err = w.one(t.Context(), other, part, eager)
	require.ErrorIs(t, err, kerr.FencedLeaderEpoch)
}

func TestFetchByIDRefusesATopicThatWasCreatedAgain(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t)
		produce(t, w.client(t, topic), values("old")...)
		leader, part := w.at(t, topic, 0)
		require.NotEqual(t, uuid.Nil, part.TopicID)
		consumertest.DeleteTopic(t, w.addr, topic)
		consumertest.CreateTopic(t, w.addr, topic, 1)
		produce(t, w.client(t, topic), values("new")...)

		_, err := w.one(t.Context(), leader, part, eager)
		require.ErrorIs(t, err, kerr.UnknownTopicID)
		require.Equal(t, []string{"new"}, valuesOf(w.all(t, topic, 0, eager)))
	})
}

func TestFetchWorksByNameOnAnOldBroker(t *testing.T) {
	for _, old := range []*kversion.Versions{kversion.V1_0_0(), kversion.V2_0_0(),
		kversion.V2_3_0(), kversion.V2_7_0(), kversion.V3_0_0()} {
		t.Run(old.VersionGuess(), func(t *testing.T) {
			w := newFakeWire(t, kfake.MaxVersions(old))
			topic := w.topic(t)
			produce(t, w.client(t, topic, kgo.MaxVersions(old)), values("a", "b")...)
			require.Equal(t, []string{"a", "b"}, valuesOf(w.all(t, topic, 0, eager)))
		})
	}
}

func TestFetchAnswersForPartitionsInTheOrderAsked(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic, missing := consumertest.Name(t), consumertest.Name(t)
		consumertest.CreateTopic(t, w.addr, topic, 3)
		found, err := w.Metadata(t.Context(), []string{topic})
		require.NoError(t, err)
		leader := found[topic].Partitions[2].Leader
		part := func(p int32) FetchPartition {
			return FetchPartition{Topic: topic, TopicID: found[topic].ID,
				Partition: p, LeaderEpoch: -1, MaxBytes: 1 << 20}
		}
		gone := FetchPartition{Topic: missing, TopicID: uuid.New(), LeaderEpoch: -1, MaxBytes: 1 << 20}
		consumertest.ProduceTo(t, w.addr, &kgo.Record{Topic: topic, Partition: 2, Value: []byte("x")})

		got, err := w.Fetch(t.Context(), leader, []FetchPartition{part(7), gone, part(2)}, eager)
		require.NoError(t, err)
		require.Len(t, got, 3)
		require.ErrorIs(t, got[0].Err, kerr.UnknownTopicOrPartition)
		require.ErrorIs(t, got[1].Err, kerr.UnknownTopicID)
		require.Equal(t, missing, got[1].Topic)
		require.Equal(t, []string{"x"}, valuesOf(got[2].Records))
	})
}

func TestFetchDeliversABatchLargerThanAskedFor(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t, "max.message.bytes=4194304")
		large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		produce(t, w.client(t, topic, kgo.ProducerBatchMaxBytes(3<<20),
			kgo.ProducerBatchCompression(kgo.NoCompression())), values(large+"1", large+"2", "small")...)
		leader, part := w.at(t, topic, 0)
		part.MaxBytes = 1000
		small := FetchOptions{MaxWait: time.Second, MinBytes: 1, MaxBytes: 1000}
		got, err := w.one(t.Context(), leader, part, small)
		require.NoError(t, err)
		require.NotEmpty(t, got.Records)
		require.GreaterOrEqual(t, got.Bytes(), 1<<20)
		require.Equal(t, []string{large + "1", large + "2", "small"}, valuesOf(w.all(t, topic, 0, small)))
	})
}

func TestFetchStopsWhereItsMemoryEndsAndLosesNothing(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t)
		producer := w.client(t, topic, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
		var sent []*kgo.Record
		for i := range 20 {
			batch := values(strings.Repeat(string(rune('a'+i)), 100_000))
			produce(t, producer, batch...)
			sent = append(sent, batch...)
		}
		leader, part := w.at(t, topic, 0)
		tight := eager
		tight.Room = &Room{free: 250_000}
		got, err := w.one(t.Context(), leader, part, tight)
		require.NoError(t, err)
		require.Len(t, got.Records, 2)
		require.EqualValues(t, 2, got.Next)
		require.LessOrEqual(t, got.Bytes(), 250_000)
		require.Equal(t, valuesOf(fetchedOf(sent)), valuesOf(w.all(t, topic, 0, eager)),
			"the rest comes with the next fetches")
	})
}

// A fetch that begins with too little memory is begun anew with what it lacked.
func TestFetchGetsThroughHoweverLittleMemoryItBeginsWith(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t)
		random := make([]byte, 400_000)
		_, _ = rand.Read(random)
		sent := values("small", strings.Repeat("large", 100_000), string(random), "small")
		for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.ZstdCompression(),
			kgo.NoCompression()} {
			produce(t, w.client(t, topic, kgo.ProducerBatchCompression(codec)), sent[i])
		}
		account := memory.New(100_000)
		r := &Room{account: account}
		leader, part := w.at(t, topic, 0)
		var records []*Record
		for tries := 0; len(records) < len(sent); tries++ {
			require.Less(t, tries, 20)
			require.NoError(t, r.Begin(t.Context(), 1))
			got, err := w.one(t.Context(), leader, part,
				FetchOptions{MaxWait: time.Second, MinBytes: 1, MaxBytes: 1000, Room: r})
			again := r.End(got.Next > part.Offset, err)
			require.True(t, err == nil || again, "%v", err)
			if err != nil {
				r = r.Successor()
				continue
			}
			require.Equal(t, got.Bytes(), account.Used())
			records, part.Offset = append(records, got.Records...), got.Next
			account.Give(got.Bytes())
		}
		requireSame(t, sent, records)
		require.Zero(t, account.Used())
	})
}

// A partition that waits must not keep a whole response, of which it counts its own part only; but for one record that
// is most of it.
func TestOnlyARecordThatIsMostOfAResponseKeepsIt(t *testing.T) {
	w := New(nil, nil, "", 0)
	large := kmsg.Record{Value: bytes.Repeat([]byte{7}, 100_000)}
	sets := [][]byte{wiretest.BatchOf(t, "none", 0, wiretest.Usual(100)...), wiretest.BatchOf(t, "none", 0, large)}
	body := bytes.Join(sets, nil)
	room := &Room{account: memory.New(1 << 20), buf: body}
	require.NoError(t, room.Begin(t.Context(), 1<<20))
	body, err := room.allocate(len(body))
	require.NoError(t, err)
	got := w.decode([]FetchPartition{{Topic: "orders", Partition: 0}, {Topic: "orders", Partition: 1}},
		fetchResponse{version: fetchByName, partitions: []partitionResponse{
			{topic: "orders", partition: 0, records: body[:len(sets[0])]},
			{topic: "orders", partition: 1, records: body[len(sets[0]):]},
		}}, room, len(body))
	clear(body)
	require.Equal(t, wiretest.Usual(8)[7].Value, got[0].Records[7].Value)
	require.Equal(t, make([]byte, 100_000), got[1].Records[0].Value)
	require.Less(t, got[1].Bytes(), len(body)+10_000)
	require.GreaterOrEqual(t, got[1].Bytes(), len(body))
	room.End(true, nil)
	require.Equal(t, got[0].Bytes()+got[1].Bytes(), room.account.Used())
	require.Nil(t, room.buf, "the next answer must not overwrite it")
}
