package consumer_test

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

const (
	boundedBuffer = 32 << 20
	mebibyte      = 1 << 20
)

// hostile is a topic that takes far more memory than a consumer may take.
type hostile struct {
	partitions int
	largest    int // bytes of a message that has to get through
	send       func(s *stage, client *kgo.Client) (messages int)
	held       int // partitions that are held
}

// spread sends messages of one size to each partition.
func spread(each, size int, random bool) func(*stage, *kgo.Client) int {
	return func(s *stage, client *kgo.Client) (messages int) {
		value := make([]byte, size)
		for i := range each * s.partitions {
			if random {
				_, _ = crand.Read(value)
			}
			r := s.record(fmt.Sprint("key", i), "", uuid.NewString())
			r.Value, r.Partition = bytes.Clone(value), int32(i%s.partitions)
			require.NoError(s.t, client.ProduceSync(s.t.Context(), r).FirstErr())
		}
		return each * s.partitions
	}
}

// bombs sends a batch with a hundred times as much inside to the first partitions, one for each codec, and messages
// to the others.
func bombs(s *stage, client *kgo.Client) (messages int) {
	for i, codec := range []string{"gzip", "snappy", "lz4", "zstd"} {
		request := kmsg.NewPtrProduceRequest()
		request.Acks, request.TimeoutMillis = -1, 10_000
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = s.topic
		partition := kmsg.NewProduceRequestTopicPartition()
		partition.Partition, partition.Records = int32(i), wiretest.Bomb(s.t, codec, 200)
		topic.Partitions = append(topic.Partitions, partition)
		request.Topics = append(request.Topics, topic)
		require.NoError(s.t, s.send(client, request))
	}
	for i := range 4000 {
		r := s.record(fmt.Sprint("key", i), "", uuid.NewString())
		r.Partition = int32(4 + i%4)
		client.Produce(s.t.Context(), r, nil)
	}
	require.NoError(s.t, client.Flush(s.t.Context()))
	return 4000
}

func (s *stage) send(client *kgo.Client, request *kmsg.ProduceRequest) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 60*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	err := errors.New("no broker")
	for _, broker := range client.DiscoveredBrokers() { // one of which leads the partition
		var answer kmsg.Response
		if answer, err = broker.RetriableRequest(ctx, request); err != nil {
			return err
		}
		err = kerr.ErrorForCode(answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
		if err == nil {
			return nil
		}
	}
	return err
}

func TestHostileTopicsStayWithinTheMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]hostile{
		"bombs of each codec":        {partitions: 8, send: bombs, held: 4},
		"large records, compressed":  {partitions: 8, largest: 24 << 20, send: spread(1, 24<<20, false)},
		"large records, random":      {partitions: 8, largest: 24 << 20, send: spread(1, 24<<20, true)},
		"larger than the buffer":     {partitions: 3, largest: 48 << 20, send: spread(1, 48<<20, false)},
		"many partitions of 900 KB":  {partitions: 120, largest: 900_000, send: spread(3, 900_000, false)},
		"many partitions, in random": {partitions: 60, largest: 900_000, send: spread(3, 900_000, true)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, consumertest.NewFake(t).Addr, 1)
			s.topic, s.partitions = consumertest.Name(t), c.partitions
			consumertest.CreateTopic(t, s.addr, s.topic, s.partitions, "max.message.bytes=67108864")
			codec := kgo.NoCompression()
			if strings.Contains(name, "compressed") || c.largest > boundedBuffer {
				codec = kgo.GzipCompression()
			}
			client, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.ProducerBatchMaxBytes(64<<20),
				kgo.MaxBufferedBytes(256<<20),
				kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec),
				kgo.MaxVersions(kversion.V3_0_0())) // which name topics
			require.NoError(t, err)
			messages := c.send(s, client)
			client.Close()

			m := s.child("bounded")
			m.BufferBytes, m.Bounded = boundedBuffer, true
			p := s.startChild(m)
			s.awaitEffects(messages, 2*time.Minute)
			require.Eventually(t,
				func() bool { return strings.Count(p.logs(), "MESSAGE_TOO_LARGE") >= min(c.held, 1) },
				3*time.Minute, 100*time.Millisecond)
			peak := p.peakMemory()
			require.False(t, p.Stop(syscall.SIGTERM, 30*time.Second), "it did not end by itself")
			s.requireOnce(messages)
			require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
			most := (boundedBuffer+c.largest)/mebibyte + 64
			t.Logf("the consumer took %d MiB at most, of %d that it may", peak, most)
			if !raceDetector() {
				require.LessOrEqual(t, peak, most, "MiB at most")
			}
		})
	}
}

// What partitions have that are held would be all of the memory.
func TestHeldPartitionsKeepNoOtherFromMemory(t *testing.T) {
	t.Parallel()
	const partitions, each, goes = 30, 200, 29
	s := newStage(t, consumertest.NewFake(t, kfake.NumBrokers(1)).Addr, partitions)
	var rs []*kgo.Record
	for i := range partitions * each {
		r := s.record(fmt.Sprint("key", i), "", uuid.NewString())
		r.Value, r.Partition = make([]byte, 20_000), int32(i%partitions)
		rs = append(rs, r)
	}
	consumertest.ProduceTo(t, s.addr, rs...)
	only := handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if m.Partition != goes {
			return errors.New("it is parked")
		}
		return obey(ctx, tx, m)
	}))
	s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.BufferBytes, cc.MaxParked = 4<<20, 1
		require.NoError(t, hc.Handlers.Add(handlers.Registration{Name: "effect", Topics: []string{s.topic},
			Handler: only, Retry: handlers.Retry{Base: time.Hour, Cap: time.Hour}}))
	}))
	s.awaitEffects(each, 2*time.Minute)
	require.Equal(t, each, s.count(`select count(*) from effects where "partition" = $1`, goes))
}
