package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// largestMessage is as large as a message can be that is taken, with its batch.
const largestMessage = 60_000_000

// hostileTopic is one whose messages would take far more memory than there is.
type hostileTopic struct {
	name string
	topicSpec
	bombs int // MiB in each of four batches, one for each codec, in partitions of their own
}

// hostile takes topics that would take far more memory than there is, and looks at what the process took.
func (l *lab) hostile(ctx context.Context, d *database) error {
	gzip, most := kgo.GzipCompression(), fmt.Sprint(maxMessageBytes)
	configs := map[string]*string{"max.message.bytes": &most}
	parts, many := l.pick(40, 6), l.pick(500, 60)
	var results []Result
	for _, h := range []hostileTopic{
		{name: "a record of 60 MB in each partition, gzip", topicSpec: topicSpec{messages: parts, partitions: parts,
			size: largestMessage, codec: &gzip}},
		{name: "many partitions, messages of 900 kB", topicSpec: topicSpec{messages: 2 * many, partitions: many,
			size: 900_000}},
		{name: "bombs of gzip, snappy, lz4 and zstd", topicSpec: topicSpec{messages: l.pick(100_000, 20_000),
			first: len(bombCodecs)}, bombs: l.pick(900, 100)},
	} {
		h.configs = configs
		peak, err := l.takeHostile(ctx, d, h)
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		results = append(results, series{peak}.most("peak, "+h.name,
			"MiB").atMost(float64(bufferBytes+h.size)/mebibyte+baseMiB))
	}
	return l.report(results...)
}

// maxMessageBytes is what the topics take.
const maxMessageBytes = 64 << 20

func (l *lab) takeHostile(ctx context.Context, d *database, h hostileTopic) (peak float64, err error) {
	if err := d.empty(ctx); err != nil {
		return 0, err
	}
	topic, err := l.topic(ctx, h.topicSpec)
	if err != nil {
		return 0, err
	}
	if h.bombs > 0 {
		if err := l.dropBombs(ctx, topic, h.bombs); err != nil {
			return 0, err
		}
	}
	j := job{Topic: topic, Group: topic, Handler: "nothing", Messages: h.messages, Partitions: h.partitions,
		BufferBytes: bufferBytes}
	o, err := l.firstseen(ctx, d, j)
	return float64(o.PeakBytes) / mebibyte, err
}

var bombCodecs = []kgo.CompressionCodec{kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(),
	kgo.ZstdCompression()}

// dropBombs sends one batch with so many MiB of zeros inside to each of the first partitions.
func (l *lab) dropBombs(ctx context.Context, topic string, mebibytes int) error {
	addrs, err := l.brokers(ctx)
	if err != nil {
		return err
	}
	zeros := make([]byte, mebibyte)
	for partition, codec := range bombCodecs {
		client, err := topicSpec{codec: &codec}.prepared().client(addrs, kgo.ProducerLinger(time.Minute),
			kgo.MaxBufferedBytes(2<<30),
			kgo.BrokerMaxWriteBytes(1<<30), kgo.ProducerBatchMaxBytes(1<<30-1<<20))
		if err != nil {
			return err
		}
		for range mebibytes {
			client.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(partition), Value: zeros}, nil)
		}
		err = client.Flush(ctx)
		client.Close()
		if err != nil {
			return fmt.Errorf("send a bomb: %w", err)
		}
	}
	return nil
}
