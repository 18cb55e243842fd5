package bench

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/replay"
)

// fetchOnly is the name, among the workloads, of the job that reads and decodes and does no more.
const fetchOnly = "fetch"

// readers are other clients that do no more than read, each with the least ratio to it.
var readers = []struct {
	name, says string
	goal       float64
}{
	{"fetch-kafkago", "kafka-go's Reader", 1.5},
	{"fetch-franz", "franz-go's client", 1},
}

// fetch reads and decodes a topic, each message with its ID, without a group and without Postgres.
func fetch(ctx context.Context, l *lab) error {
	withPeers := l.hasPeers()
	codecs := []struct {
		name  string
		codec kgo.CompressionCodec
	}{{"uncompressed", kgo.NoCompression()}, {"zstd", kgo.ZstdCompression()}, {"lz4", kgo.Lz4Compression()}}
	for _, c := range codecs {
		all, err := l.fetchRounds(ctx, &c.codec, withPeers)
		if err == nil {
			err = l.reportFetch(all, c.name, withPeers)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// fetchRounds has all readers read the same topic: reading takes nothing from it.
func (l *lab) fetchRounds(ctx context.Context, codec *kgo.CompressionCodec, withPeers bool) (
	map[string]series, error) {
	messages := l.pick(400_000, 60_000)
	topic, err := l.topic(ctx, topicSpec{messages: messages, codec: codec})
	if err != nil {
		return nil, err
	}
	addrs, err := l.brokers(ctx)
	if err != nil {
		return nil, err
	}
	j := job{Brokers: addrs, Topic: topic, Messages: messages, Partitions: partitions, Handler: fetchOnly}
	contenders := []contender{l.reader(ctx, "", j)}
	if withPeers {
		for _, r := range readers {
			contenders = append(contenders, l.reader(ctx, r.name, j))
		}
	}
	return interleave(l.pick(5, 3), contenders...)
}

func (l *lab) reader(ctx context.Context, name string, j job) contender {
	return contender{name, func() (float64, error) {
		o, err := l.contend(ctx, name, j)
		if err == nil && o.Messages != j.Messages {
			err = fmt.Errorf("it read %d messages of %d", o.Messages, j.Messages)
		}
		return o.rate(), err
	}}
}

func (l *lab) reportFetch(all map[string]series, codec string, withPeers bool) error {
	ours, name, unit := all[""], "firstseen, "+codec, "msg/s"
	if !withPeers {
		return l.report(ours.result(name, unit))
	}
	for _, r := range readers {
		if err := l.report(ours.against(all[r.name], name, unit, r.says).atLeast(r.goal)); err != nil {
			return err
		}
	}
	return nil
}

// read takes all messages of the job's topic out of a Reader.
func (j job) read(ctx context.Context) (o outcome, err error) {
	start := time.Now()
	r, err := replay.NewReader(replay.ReaderConfig{Connection: consumer.Connection{Brokers: j.Brokers},
		BufferBytes: j.BufferBytes})
	if err != nil {
		return o, err
	}
	defer r.Close()
	ranges := make([]replay.Range, j.Partitions)
	for p := range ranges {
		ranges[p] = replay.Range{Partition: int32(p), To: math.MaxInt64}
	}
	var seen atomic.Int64
	err = r.Read(ctx, consumer.Topic{Name: j.Topic}, ranges, func(_ context.Context, page replay.Page) error {
		seen.Add(int64(len(page.Messages)))
		return readable(page)
	})
	return outcome{Seconds: time.Since(start).Seconds(), Messages: int(seen.Load()), PeakBytes: peakMemory()}, err
}

// readable looks at each message as the peers do: it has an ID and a value.
func readable(page replay.Page) error {
	for i := range page.Messages {
		if m := &page.Messages[i]; m.Reason != "" || len(m.Value) == 0 {
			return fmt.Errorf("the message at %s/%d@%d has no ID or no value", m.Topic, m.Partition, m.Offset)
		}
	}
	return nil
}
