package sender_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/sender"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

func onBrokers(t *testing.T, test func(t *testing.T, addr string)) {
	t.Run("fake", func(t *testing.T) { test(t, consumertest.NewFake(t).Addr) })
	t.Run("kafka", func(t *testing.T) { test(t, consumertest.Kafka(t)) })
}

func newSender(t *testing.T, addr string) *sender.Sender {
	t.Helper()
	s, err := sender.New(consumer.Connection{Brokers: []string{addr}})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// read gives all records of a topic, each partition's in order.
func read(t *testing.T, addr, topic string) (records []*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	there := 0
	ends.Each(func(o kadm.ListedOffset) { there += int(max(0, o.Offset)) })
	for len(records) < there && ctx.Err() == nil {
		records = append(records, client.PollFetches(ctx).Records()...)
	}
	return records
}

func message(topic, key, value string) dedup.Message {
	return dedup.Message{ID: uuid.New(), Topic: topic, Key: []byte(key), Value: []byte(value)}
}

func TestMessagesBecomeRecordsByteForByteUnderTheirIDs(t *testing.T) {
	onBrokers(t, func(t *testing.T, addr string) {
		topic := consumertest.Name(t)
		consumertest.CreateTopic(t, addr, topic, 1)
		var ms []dedup.Message
		for _, key := range [][]byte{nil, {}, []byte("null"), {0, 255}} {
			for _, value := range [][]byte{nil, {}, []byte("null"), {0, 255}} {
				ms = append(ms, dedup.Message{ID: uuid.New(), Topic: topic, Key: key, Value: value,
					Headers: []dedup.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte{0}}}})
			}
		}
		for _, err := range newSender(t, addr).Send(t.Context(), ms) {
			require.NoError(t, err)
		}
		got := read(t, addr, topic)
		require.Len(t, got, len(ms))
		for i, r := range got {
			require.Equal(t, ms[i].Key, r.Key)
			require.Equal(t, ms[i].Value, r.Value)
			require.Equal(t, []kgo.RecordHeader{{Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte{0}},
				{Key: "message-id", Value: []byte(ms[i].ID.String())}}, r.Headers)
		}
	})
}

func TestKeysGoWhereKafkasProducersPutThem(t *testing.T) {
	onBrokers(t, func(t *testing.T, addr string) {
		topic := consumertest.Name(t)
		consumertest.CreateTopic(t, addr, topic, 7)
		var ms []dedup.Message
		var rs []*kgo.Record
		for i := range 60 {
			key := fmt.Sprint("key ", i)
			ms = append(ms, message(topic, key, "ours"))
			rs = append(rs, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte("theirs")})
		}
		consumertest.Produce(t, addr, rs...)
		for _, err := range newSender(t, addr).Send(t.Context(), ms) {
			require.NoError(t, err)
		}
		theirs := map[string]int32{}
		got := read(t, addr, topic)
		require.Len(t, got, 120)
		for _, r := range got {
			if string(r.Value) == "theirs" {
				theirs[string(r.Key)] = r.Partition
			}
		}
		for _, r := range got {
			require.Equal(t, theirs[string(r.Key)], r.Partition, "key %s", r.Key)
		}
	})
}

func TestWhatIsTooLargeIsPermanentAndTakesNoOtherAlong(t *testing.T) {
	onBrokers(t, func(t *testing.T, addr string) {
		topic := consumertest.Name(t)
		consumertest.CreateTopic(t, addr, topic, 1, "max.message.bytes=20000")
		var ms []dedup.Message
		var want []string
		for i := range 50 {
			value := fmt.Sprint(i)
			if i%17 == 3 {
				large := make([]byte, 30000)
				_, _ = rand.Read(large)
				value = string(large)
			} else {
				want = append(want, value)
			}
			ms = append(ms, message(topic, "k", value))
		}
		for i, err := range newSender(t, addr).Send(t.Context(), ms) {
			if i%17 == 3 {
				require.ErrorContains(t, err, "produce to "+topic)
			} else {
				require.NoError(t, err)
			}
		}
		var got []string
		for _, r := range read(t, addr, topic) {
			got = append(got, string(r.Value))
		}
		require.Equal(t, want, got, "each once, and in order")
	})
}

// Batches are larger together than a broker takes.
func TestManyBytesAreSentInSeveralRequests(t *testing.T) {
	addr := consumertest.Kafka(t)
	topic := consumertest.Name(t)
	consumertest.CreateTopic(t, addr, topic, 1)
	var ms []dedup.Message
	for range 60 {
		value := make([]byte, 100<<10)
		_, _ = rand.Read(value)
		ms = append(ms, message(topic, "k", string(value)))
	}
	for _, err := range newSender(t, addr).Send(t.Context(), ms) {
		require.NoError(t, err)
	}
	for i, r := range read(t, addr, topic) {
		require.Equal(t, ms[i].Value, r.Value)
	}
}

func TestMissingTopicCountsAnAttemptOfItsMessagesOnlyAndIsNotCreated(t *testing.T) {
	onBrokers(t, func(t *testing.T, addr string) {
		there, missing := consumertest.Name(t), consumertest.Name(t)
		consumertest.CreateTopic(t, addr, there, 1)
		errs := newSender(t, addr).Send(t.Context(),
			[]dedup.Message{message(missing, "a", ""), message(there, "a", ""), message(missing, "b", "")})
		require.NoError(t, errs[1])
		for _, i := range []int{0, 2} {
			require.ErrorIs(t, errs[i], kerr.UnknownTopicOrPartition)
			require.Equal(t, errs[i], unavailable(errs[i]), "it is no outage")
		}
		require.Len(t, read(t, addr, there), 1)
	})
}

func TestNameThatNoTopicCanHaveIsPermanent(t *testing.T) {
	errs := newSender(t, consumertest.Kafka(t)).Send(t.Context(), []dedup.Message{message("no topic's name!", "a", "")})
	require.ErrorIs(t, errs[0], kerr.InvalidTopicException)
	require.Equal(t, fmt.Sprintf("%T", handlers.Permanent(nil)), fmt.Sprintf("%T", errs[0]))
}

func TestBrokersThatAreAwayAreAnOutage(t *testing.T) {
	s, err := sender.New(consumer.Connection{Brokers: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	defer s.Close()
	for _, err := range s.Send(t.Context(), []dedup.Message{message("t", "a", ""), message("t", "b", "")}) {
		require.Equal(t, handlers.Unavailable(errors.New("")), unavailable(err))
	}
}

// refuseWrites has the fake broker answer whatever is produced to a topic with an error.
func refuseWrites(fake *consumertest.Fake, topic string, refusal *kerr.Error) {
	fake.Cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		r := request.(*kmsg.ProduceRequest)
		if r.Topics[0].Topic != topic {
			return nil, nil, false
		}
		answer := r.ResponseKind().(*kmsg.ProduceResponse)
		answer.Topics = []kmsg.ProduceResponseTopic{{Topic: topic, TopicID: r.Topics[0].TopicID,
			Partitions: []kmsg.ProduceResponseTopicPartition{{Partition: r.Topics[0].Partitions[0].Partition,
				ErrorCode: refusal.Code}}}}
		return answer, nil, true
	})
}

func TestMessagesOfTopicsThatAreMissingOrDeniedDieWithTheReasonAndTheRestFlows(t *testing.T) {
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	there, denied, missing := consumertest.Name(t), consumertest.Name(t), consumertest.Name(t)
	for _, topic := range []string{there, denied} {
		consumertest.CreateTopic(t, fake.Addr, topic, 2)
	}
	refuseWrites(fake, denied, kerr.TopicAuthorizationFailed)
	db := deduptest.New(t)
	relay, err := outbox.New(t.Context(), outbox.Config{Logger: slog.New(slog.DiscardHandler),
		Pool:     deduptest.OpenPool(t, db.DSN, func(c *pgxpool.Config) { c.MaxConns = 12 }),
		IdlePoll: 50 * time.Millisecond, LanePoll: 10 * time.Millisecond,
		Destinations: []outbox.Destination{{Name: "kafka", Topics: []string{there, denied, missing},
			Sender: newSender(t, fake.Addr),
			Retry:  handlers.Retry{Base: time.Millisecond, Cap: 10 * time.Millisecond, MaxAttempts: 3}}}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { relay.Run(ctx) })
	var writer outbox.Writer
	const n = 12
	for i := range n {
		for _, topic := range []string{there, denied, missing} {
			_, err := writer.Add(ctx, db.Pool, outbox.Message{Topic: topic, Key: fmt.Append(nil, i%4)})
			require.NoError(t, err)
		}
	}
	dead := func(topic, reason string) (n int) {
		_ = db.Pool.QueryRow(ctx, `select count(*) from firstseen.dead_letters where topic = $1 and attempts = 3
			and reason = 'attempts_exhausted' and error ~* $2`, topic, reason).Scan(&n)
		return n
	}
	require.Eventually(t, func() bool {
		return dead(denied, "authoriz") == n && dead(missing, "unknown.topic") == n
	}, 3*time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { return len(read(t, fake.Addr, there)) == n }, 3*time.Minute, 20*time.Millisecond)
}

// unavailable is a mark of the kind that an error has.
func unavailable(err error) error {
	if fmt.Sprintf("%T", err) == fmt.Sprintf("%T", handlers.Unavailable(nil)) {
		return handlers.Unavailable(errors.New(""))
	}
	return err
}

// A leader says a few times that it is none, then for good.
func TestNothingIsSentBehindWhatFailedAndWhatPassesIsWaitedFor(t *testing.T) {
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	topic := consumertest.Name(t)
	consumertest.CreateTopic(t, fake.Addr, topic, 2)
	s := newSender(t, fake.Addr)
	var refuse, weak atomic.Int32
	fake.Cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		r := request.(*kmsg.ProduceRequest)
		if r.Acks != -1 {
			weak.Add(1)
		}
		part := r.Topics[0].Partitions[0].Partition
		if part != 0 || refuse.Add(-1) < 0 {
			return nil, nil, false
		}
		answer := r.ResponseKind().(*kmsg.ProduceResponse)
		answer.Topics = []kmsg.ProduceResponseTopic{{Topic: r.Topics[0].Topic, TopicID: r.Topics[0].TopicID,
			Partitions: []kmsg.ProduceResponseTopicPartition{{Partition: part, ErrorCode: kerr.NotLeaderForPartition.Code}}}}
		return answer, nil, true
	})
	var ms []dedup.Message
	for i := range 40 {
		ms = append(ms, message(topic, fmt.Sprint("k", i%10), fmt.Sprint(i)))
	}
	refuse.Store(2)
	for _, err := range s.Send(t.Context(), ms) {
		require.NoError(t, err)
	}
	require.Len(t, read(t, fake.Addr, topic), len(ms))
	refuse.Store(1000)
	failed := 0
	for _, err := range s.Send(t.Context(), ms) {
		if err != nil {
			failed++
			require.Equal(t, handlers.Unavailable(errors.New("")), unavailable(err))
		}
	}
	require.Greater(t, failed, 0)
	require.Len(t, read(t, fake.Addr, topic), 2*len(ms)-failed)
	require.Zero(t, weak.Load())
}

// From one transaction's outbox through Kafka to another inbox's table.
func TestWholeWayFromOutboxToASecondInboxTakesEffectOnceAndInOrder(t *testing.T) {
	addr := consumertest.Kafka(t)
	db := deduptest.New(t)
	topic := consumertest.Name(t)
	consumertest.CreateTopic(t, addr, topic, 4)
	_, err := db.Pool.Exec(t.Context(),
		`create table effects (n bigint generated always as identity, key text, value int)`)
	require.NoError(t, err)
	pool := func() *pgxpool.Pool {
		return deduptest.OpenPool(t, db.DSN, func(c *pgxpool.Config) { c.MaxConns = 12 })
	}
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	store, err := dedup.Open(ctx, pool(), dedup.Config{Inbox: "receiver"})
	require.NoError(t, err)
	var registry handlers.Registry
	require.NoError(t, registry.Register("effect", handlers.Each(handlers.HandlerFunc(
		func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			_, err := tx.Exec(ctx, `insert into effects (key, value) values ($1, $2::text::int)`, string(m.Key), string(m.Value))
			return err
		})), topic))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry, Logger: log})
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Connection: consumer.Connection{Brokers: []string{addr}},
		Group: consumertest.Name(t), Topics: []consumer.Topic{{Name: topic}}, Logger: log}, processor)
	require.NoError(t, err)
	running.Go(func() { _ = c.Run(ctx) })

	for range 2 {
		relay, err := outbox.New(ctx, outbox.Config{Pool: pool(), Logger: log, Batch: 100, IdlePoll: 50 * time.Millisecond,
			Destinations: []outbox.Destination{{Name: "kafka", Topics: []string{topic}, Sender: newSender(t, addr)}}})
		require.NoError(t, err)
		running.Go(func() { relay.Run(ctx) })
	}
	const n, keys = 3000, 30
	var writer outbox.Writer
	for from := 0; from < n; from += 100 {
		var ms []outbox.Message
		for i := from; i < from+100; i++ {
			ms = append(ms, outbox.Message{Topic: topic, Key: fmt.Append(nil, "k", i%keys), Value: fmt.Append(nil, i),
				IdempotencyKey: fmt.Sprint("message ", i)})
		}
		for range 2 { // the second time each is a twin
			_, err := writer.AddAll(ctx, db.Pool, ms)
			require.NoError(t, err)
		}
	}
	// count is called from more than one goroutine
	count := func(sql string) (n int) {
		_ = db.Pool.QueryRow(ctx, sql).Scan(&n)
		return n
	}
	require.Eventually(t, func() bool { return count(`select count(*) from effects`) >= n }, 3*time.Minute,
		20*time.Millisecond)
	require.Equal(t, n, count(`select count(distinct value) from effects`))
	require.Equal(t, n, count(`select count(*) from effects`))
	require.Zero(t, count(`select count(*)
		from (select value < lag(value) over (partition by key order by n) as late from effects) e
		where late`))
	require.Len(t, read(t, addr, topic), n, "nothing failed, so nothing was sent twice")
}
