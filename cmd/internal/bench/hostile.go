package bench

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// largestMessage is as large as a message can be that is taken, with its batch.
	largestMessage = 60_000_000
	// usualMessage is as large as a message can be where no topic says otherwise.
	usualMessage = 900_000
	// manyHeaders are two bytes each on their way, and headerBytes in memory.
	manyHeaders = 400_000
	headerBytes = 40
	// smallBuffer is less than the largest message.
	smallBuffer = 16 << 20
	// maxMessageBytes is max.message.bytes of the topics.
	maxMessageBytes = 64 << 20
)

// hostileTopic is one whose messages would take far more memory than there is, and who handles them.
type hostileTopic struct {
	name string
	topicSpec
	bombs   int    // MiB in each of four batches, one for each codec, in partitions of their own
	handler string // default nothing
	buffer  int    // default bufferBytes
	largest int    // of a message in memory; default its size
}

// hostileTopics are one for each way in which a message takes memory.
func (l *lab) hostileTopics() []hostileTopic {
	gzip, zstd := kgo.GzipCompression(), kgo.ZstdCompression()
	parts, some, many := l.pick(40, 6), l.pick(8, 3), l.pick(500, 60)
	huge := topicSpec{messages: some, partitions: some, size: largestMessage, value: random}
	large := topicSpec{messages: 2 * many, partitions: many, size: usualMessage, value: random}
	return []hostileTopic{
		{name: "60 MB in each partition, gzip", topicSpec: topicSpec{messages: parts, partitions: parts,
			size: largestMessage, codec: &gzip}},
		{name: "60 MB in each partition", topicSpec: huge},
		{name: "60 MB, a smaller buffer", topicSpec: huge, buffer: smallBuffer},
		{name: "60 MB, parked", topicSpec: huge, handler: failingOnce},
		{name: "60 MB, parked, a smaller buffer", topicSpec: huge, handler: failingOnce, buffer: smallBuffer},
		{name: "60 MB for a SQL function", topicSpec: huge, handler: bySQL},
		{name: "60 MB for a webhook", topicSpec: huge, handler: byWebhook},
		{name: "900 kB, many partitions", topicSpec: large},
		{name: "900 kB, parked", topicSpec: large, handler: failingOnce},
		{name: "900 kB for a SQL function", topicSpec: large, handler: bySQL},
		{name: "900 kB for a webhook", topicSpec: large, handler: byWebhook},
		{name: "bombs of gzip, snappy, lz4 and zstd", topicSpec: topicSpec{messages: l.pick(100_000, 20_000),
			first: len(bombCodecs)}, bombs: l.pick(900, 100)},
		{name: "batches of small records, zstd", topicSpec: topicSpec{messages: l.pick(2_000_000, 200_000),
			codec: &zstd, size: 1}},
		{name: "records of 400,000 headers, zstd", topicSpec: topicSpec{messages: l.pick(100, 20), codec: &zstd,
			size: 1, headers: manyHeaders}, largest: manyHeaders * (headerBytes + 2)},
		{name: "records of 400,000 headers, parked", topicSpec: topicSpec{messages: l.pick(100, 20), codec: &zstd,
			size: 1, headers: manyHeaders}, largest: manyHeaders * (headerBytes + 2), handler: failingOnce},
	}
}

// random makes a value one that can't be compressed.
func random(_ int, value []byte) { _, _ = crand.Read(value) }

// hostile takes topics that would take far more memory than there is, and looks at what the process took.
func (l *lab) hostile(ctx context.Context, d *database) error {
	if _, err := d.pool.Exec(ctx, takeSQL); err != nil {
		return err
	}
	taker := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer taker.Close()
	for _, h := range l.hostileTopics() {
		r, err := l.takeHostile(ctx, d, h, taker.URL)
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		if err := l.report(r); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) takeHostile(ctx context.Context, d *database, h hostileTopic, url string) (r Result, err error) {
	if err := d.empty(ctx); err != nil {
		return r, err
	}
	most := fmt.Sprint(maxMessageBytes)
	h.configs = map[string]*string{"max.message.bytes": &most}
	topic, err := l.topic(ctx, h.topicSpec)
	if err != nil {
		return r, err
	}
	defer l.dropTopic(topic)
	if h.bombs > 0 {
		if err := l.dropBombs(ctx, topic, h.bombs); err != nil {
			return r, err
		}
	}
	j := job{Topic: topic, Group: topic, Handler: cmp.Or(h.handler, "nothing"), Messages: h.messages,
		Partitions: h.partitions, BufferBytes: cmp.Or(h.buffer, bufferBytes), URL: url}
	o, err := l.firstseen(ctx, d, j)
	if err != nil {
		return r, err
	}
	largest := cmp.Or(h.largest, h.size)
	r = series{float64(o.PeakBytes) / mebibyte}.most("peak, "+h.name,
		"MiB").atMost(float64(j.BufferBytes+largest)/mebibyte + baseMiB)
	r.Note = fmt.Sprintf("buffer %s MiB, largest message %s MiB, %d messages in %.0f s",
		figure(float64(j.BufferBytes)/mebibyte), figure(float64(largest)/mebibyte), o.Messages, o.Seconds)
	return r, o.blamed(j)
}

// blamed is an error where a message was held to be at fault that was not: each failed once where its handler fails,
// and else never.
func (o outcome) blamed(j job) error {
	failures := 0
	if j.Handler == failingOnce {
		failures = j.Messages
	}
	if o.Failed != failures || o.Dead > 0 {
		return fmt.Errorf("%d failures and not %d, %d dead letters", o.Failed, failures, o.Dead)
	}
	return nil
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
