package wire

import (
	"context"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
)

// testWire is a wire to a broker, and what a test does to that broker by other means.
type testWire struct {
	*Client
	addr string
	fake *kfake.Cluster // nil on a real Kafka
}

// onBrokers runs a test against kfake and against a real Kafka.
func onBrokers(t *testing.T, test func(t *testing.T, w *testWire)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) { test(t, newFakeWire(t)) })
	t.Run("kafka", func(t *testing.T) { test(t, newTestWire(t, consumertest.Kafka(t), &kafka.Transport{})) })
}

func newFakeWire(t testing.TB, opts ...kfake.Opt) *testWire {
	t.Helper()
	fake := consumertest.NewFake(t, opts...)
	w := newTestWire(t, fake.Addr, &kafka.Transport{})
	w.fake = fake.Cluster
	return w
}

func newTestWire(t testing.TB, addr string, transport *kafka.Transport) *testWire {
	t.Helper()
	before := goleak.IgnoreCurrent()
	transport.MetadataTTL = time.Second
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"),
			goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write"),
			goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*Cluster).run"))
	})
	return &testWire{Client: New(transport, []string{addr}, "wire-test", 10*time.Second), addr: addr}
}

// topic makes a topic of one partition.
func (w *testWire) topic(t testing.TB, configs ...string) string {
	t.Helper()
	topic := consumertest.Name(t)
	consumertest.CreateTopic(t, w.addr, topic, 1, configs...)
	return topic
}

// client is a franz-go client for producing to a topic in ways that consumertest has no need for.
func (w *testWire) client(t testing.TB, topic string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{kgo.SeedBrokers(w.addr), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0)}, opts...)
	client, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func produce(t testing.TB, client *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
}

// values are records of these values, the least that a test needs.
func values(values ...string) []*kgo.Record {
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Value: []byte(v)})
	}
	return records
}

func valuesOf(records []*Record) []string {
	out := []string{}
	for _, r := range records {
		out = append(out, string(r.Value))
	}
	return out
}

// fetchedOf is what records are when they are fetched.
func fetchedOf(records []*kgo.Record) []*Record {
	var out []*Record
	for _, r := range records {
		f := &Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			f.Headers = append(f.Headers, dedup.Header{Key: h.Key, Value: h.Value})
		}
		out = append(out, f)
	}
	return out
}

// at is the first partition of a topic, from an offset on, and its leader.
func (w *testWire) at(t testing.TB, topic string, offset int64) (int32, FetchPartition) {
	t.Helper()
	found, err := w.Metadata(t.Context(), []string{topic})
	require.NoError(t, err)
	require.NoError(t, found[topic].Err)
	p := found[topic].Partitions[0]
	return p.Leader, FetchPartition{
		Topic: topic, TopicID: found[topic].ID, Partition: p.ID, LeaderEpoch: p.LeaderEpoch,
		Offset: offset, MaxBytes: 1 << 20,
	}
}

const (
	waitLimit = 3 * time.Minute
	waitTick  = 100 * time.Millisecond
)

var eager = FetchOptions{MaxWait: 200 * time.Millisecond, MinBytes: 1, MaxBytes: 8 << 20}

// one fetches one partition.
func (w *testWire) one(ctx context.Context, leader int32, part FetchPartition, opts FetchOptions) (Fetched, error) {
	got, err := w.Fetch(ctx, leader, []FetchPartition{part}, opts)
	if err != nil {
		return Fetched{}, err
	}
	return got[0], got[0].Err
}

func (w *testWire) mustFetch(t testing.TB, topic string, offset int64) Fetched {
	t.Helper()
	leader, part := w.at(t, topic, offset)
	got, err := w.one(t.Context(), leader, part, eager)
	require.NoError(t, err)
	return got
}

// all fetches from an offset to the last stable one.
func (w *testWire) all(t testing.TB, topic string, offset int64, opts FetchOptions) []*Record {
	t.Helper()
	leader, part := w.at(t, topic, offset)
	var records []*Record
	for {
		got, err := w.one(t.Context(), leader, part, opts)
		require.NoError(t, err)
		records = append(records, got.Records...)
		if got.Next >= got.LastStable {
			return records
		}
		require.Greater(t, got.Next, part.Offset, "no progress below the last stable offset")
		part.Offset = got.Next
	}
}
