package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
)

// A default broker takes the years before Postgres' first, and -1 for none; of the future only an hour, since Kafka
// 4.0.
func TestNothingWaitsForATimestampAndItIsPublishedAsItCame(t *testing.T) {
	t.Parallel()
	const first = 1_700_000_000_123
	texts := map[int64]string{first: "2023-11-14T22:13:20.123Z", -1: "", -210866803200001: "-210866803200001"}
	widely := map[int64]string{1764300000000000000: "1764300000000000000", 1764300000000000: "1764300000000000",
		253402300799999: "9999-12-31T23:59:59.999Z", math.MaxInt64: "9223372036854775807"}
	g := newGrave(t, consumertest.Kafka(t))
	g.topic = consumertest.Name(t) // one that keeps whatever is old, from the first moment on
	consumertest.CreateTopic(t, g.addr, g.topic, 1, "retention.ms=-1")
	want := g.produceStamped(texts)
	g.configure("message.timestamp.after.max.ms", strconv.Itoa(math.MaxInt64))
	want += g.produceStamped(widely)
	stop, _ := g.run()
	g.died(want)
	stop()
	require.Equal(t, want, g.count(`select count(*) from firstseen.inbox`))
	require.Equal(t, 2, g.count(
		`select count(*) from firstseen.inbox where raw_timestamp in (1764300000000000000, -210866803200001)`))
	require.Equal(t, 1,
		g.count(`select count(*) from firstseen.inbox where produced_at is null and raw_timestamp is null`))
	for _, r := range g.read() {
		number, err := strconv.ParseInt(string(r.Value), 10, 64)
		require.NoError(t, err)
		text, ok := texts[number]
		if !ok {
			text = widely[number]
		}
		require.Equal(t, text, header(r, "firstseen-timestamp"))
		require.WithinDuration(t, time.Now(), r.Timestamp, 10*time.Minute, "it is kept as long as others")
		want--
	}
	require.Zero(t, want)
}

// produceStamped writes two messages with each of the timestamps, one for the inbox and one that dies, and gives the
// number of timestamps.
func (g *grave) produceStamped(texts map[int64]string) int {
	for number := range texts {
		for _, key := range []string{"n2", "dies"} {
			g.produceBatch(kmsg.RecordBatch{FirstTimestamp: number, MaxTimestamp: number,
				ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: wiretest.EncodeRecord(
					&kmsg.Record{Key: []byte(key), Value: []byte(strconv.FormatInt(number, 10)),
						Headers: []kmsg.Header{{Key: "message-id", Value: []byte(uuid.NewString())}}})})
		}
	}
	return len(texts)
}

// produceBatch writes a batch as it is: the client's own way counts in nanoseconds, which has no such times.
func (s *stage) produceBatch(b kmsg.RecordBatch) {
	s.t.Helper()
	// later ones name the topic by its ID
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.MaxVersions(kversion.V3_6_0()))
	require.NoError(s.t, err)
	defer client.Close()
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = wiretest.EncodeBatch(b)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = s.topic, append(topic.Partitions, partition)
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis, request.Topics = -1, 30_000, append(request.Topics, topic)
	var refusal error
	s.eventually(func() bool { // a broker takes its time until it goes by a setting that was just made
		answer, err := request.RequestWith(s.t.Context(), client)
		require.NoError(s.t, err)
		refusal = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
		return !errors.Is(refusal, kerr.InvalidTimestamp)
	}, "its timestamp is refused")
	require.NoError(s.t, refusal)
}

func (s *stage) configure(name, value string) {
	s.t.Helper()
	s.admin(func(ctx context.Context, a *kadm.Client) error {
		found, err := a.AlterTopicConfigs(ctx,
			[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, s.topic)
		if err == nil {
			err = found[0].Err
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		return nil
	})
}
