package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	payloadBytes = 300
	partitions   = 4
	keys         = 1000
)

// topicSpec says what a topic is filled with. The zero value of each field but messages means the usual.
type topicSpec struct {
	messages   int
	partitions int                       // default 4
	newID      func() uuid.UUID          // default UUIDv4
	codec      *kgo.CompressionCodec     // default none
	size       int                       // of a value; default 300, else it is zeros
	headers    int                       // empty ones, beside the ID
	first      int                       // the partition of the first message, behind others
	configs    map[string]*string        // of the topic
	value      func(i int, value []byte) // changes the i-th value, which is random
}

// topic makes a topic and fills it, message i to partition i modulo the partitions.
func (l *lab) topic(ctx context.Context, spec topicSpec) (string, error) {
	spec = spec.prepared()
	addrs, err := l.brokers(ctx)
	if err != nil {
		return "", err
	}
	name := l.name()
	client, err := spec.client(addrs)
	if err != nil {
		return "", err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, int32(spec.first+spec.partitions), 1, spec.configs,
		name); err != nil {
		return "", fmt.Errorf("create topic %s: %w", name, err)
	}
	return name, spec.fill(ctx, client, name)
}

// dropTopic makes room on the broker's disk.
func (l *lab) dropTopic(topic string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(l.kafka.Addrs()...))
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = kadm.NewClient(client).DeleteTopic(context.Background(), topic)
}

func (s topicSpec) prepared() topicSpec {
	if s.partitions == 0 {
		s.partitions = partitions
	}
	if s.newID == nil {
		s.newID = uuid.New
	}
	return s
}

// client lingers longer for more partitions, so that batches of records are alike.
func (s topicSpec) client(addrs []string, more ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// the topic is there, if not everywhere yet
		kgo.MetadataMinAge(20 * time.Millisecond), kgo.UnknownTopicRetries(-1),
		kgo.ProducerLinger(time.Duration(1+s.partitions) * time.Millisecond), kgo.MaxBufferedRecords(50_000),
		kgo.ProducerBatchCompression(kgo.NoCompression())}
	if s.codec != nil {
		opts = append(opts, kgo.ProducerBatchCompression(*s.codec))
	}
	if s.size > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(maxMessageBytes), kgo.MaxBufferedBytes(4*maxMessageBytes),
			kgo.MaxBufferedRecords(1_000_000))
	}
	return kgo.NewClient(append(opts, more...)...)
}

func (s topicSpec) fill(ctx context.Context, client *kgo.Client, topic string) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for i := range s.messages {
		client.Produce(ctx, s.record(topic, i), func(_ *kgo.Record, err error) {
			if err != nil {
				cancel(err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("fill topic %s: %w", topic, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

func (s topicSpec) record(topic string, i int) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: int32(s.first + i%s.partitions), Key: fmt.Appendf(nil, "key-%d", i%keys),
		Value:   s.payload(),
		Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(s.newID().String())}}}
	if s.value != nil {
		s.value(i, r.Value)
	}
	r.Headers = append(r.Headers, make([]kgo.RecordHeader, s.headers)...)
	return r
}

func (s topicSpec) payload() []byte {
	if s.size > 0 {
		return make([]byte, s.size)
	}
	return payload()
}

// payload is 300 bytes of which a third can't be compressed, as in most JSON.
func payload() []byte {
	b := make([]byte, payloadBytes)
	for i := range b {
		b[i] = 'a' + byte(i%16)
	}
	for i := 0; i < payloadBytes/3; i += 4 {
		r := rand.Uint32()
		b[3*i], b[3*i+1], b[3*i+2], b[3*i+3] = byte(r), byte(r>>8), byte(r>>16), byte(r>>24)
	}
	return b
}
