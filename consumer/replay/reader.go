// Package replay reads a topic beside the groups that consume it. A [Reader] hands over ranges of its partitions; its
// Replay takes them through the transaction that their group would have used, once more or for a new handler.
//
// Records enter from the brokers as they do for package consumer; messages leave to a function, page by page, or to a
// [handlers.Processor], batch by batch. No group is joined and no offset is committed: how far a replay is is kept in
// Postgres, under its own name.
//
// In reading order:
//
//	reader.go              a Reader, and one Read
//	offsets.go, place.go   where partitions begin and end, and what lies between by number or time
//	pass.go, pager.go      one Read: its ranges, and one partition's pages
//	replay.go, plan.go     one Replay, and what it is to read
//	part.go, rate.go       one partition's batches, and how fast they may come
//	preview.go             what a replay would read, and come to
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"go.opentelemetry.io/otel"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/wait"
)

// ReaderConfig says how a Reader reads. Only Brokers is required.
type ReaderConfig struct {
	consumer.Connection

	// OnLoss applies where messages of a range were deleted before they were read: Fail (default), or Continue with
	// what is left, which is logged with the range of offsets.
	OnLoss consumer.Policy

	// MaxBatch caps a page's messages. Default that of consumer.Config.
	MaxBatch int
	// MaxBatchBytes caps a page's keys, values and headers; a single larger message is a page of its own. Default 4
	// MiB.
	MaxBatchBytes int
	// Concurrency caps the pages that are decoded and handed over at once. Default 4.
	Concurrency int
	// BufferBytes bounds what is in memory, as in consumer.Config. Default 64 MiB.
	BufferBytes int
	// FetchWait bounds a broker's wait for records before it answers. Default 500 ms.
	FetchWait time.Duration
	// FetchBytes caps a fetch's answer, compressed. Default 8 MiB.
	FetchBytes int
	// MetadataInterval is the time between two looks at the cluster, for leaders that moved. Default 5 s.
	MetadataInterval time.Duration

	// Logger gets what an operator should know; never a payload or a key. Default slog.Default().
	Logger *slog.Logger
}

// Range is a part of a partition: the offsets from From up to, but not including, To.
type Range struct {
	Partition int32
	From, To  int64
}

// Page is the next part of a range.
type Page struct {
	Topic     string
	TopicID   uuid.UUID // zero where the brokers are older than 2.8
	Partition int32
	// Messages are in the order of their offsets, and as a handler would get them. There may be none: compaction,
	// aborted transactions and their markers leave gaps.
	Messages []dedup.Message
	// Next is the offset after the page, past such gaps, and at most the range's To. The last page's is the range's
	// end.
	Next int64
}

// Reader reads ranges of topics' partitions, by the way that a [consumer.Consumer]'s messages take up to their
// handlers. It joins no group and commits no offsets, so that consumers go on beside it. Make it with NewReader. It
// is safe for concurrent use; all that it reads at once shares Concurrency and BufferBytes.
type Reader struct {
	cfg       consumer.Config
	transport *kafka.Transport
	wire      *wire.Client

	holds     *holds.Registry
	memory    *memory.Account
	slots     wait.Slots // one for each page that may be out
	telemetry *fetch.Telemetry
}

// NewReader checks the config, every fault at once, and makes a Reader. It talks to no broker yet.
func NewReader(cfg ReaderConfig) (*Reader, error) {
	c, err := cfg.prepared()
	if err != nil {
		return nil, fmt.Errorf("reader config: %w", err)
	}
	transport := c.Transport()
	return &Reader{
		cfg: c, transport: transport,
		wire:   wire.New(transport, c.Brokers, c.ClientID, c.RequestTimeout),
		holds:  holds.New(c.Logger),
		memory: memory.New(c.BufferBytes),
		slots:  make(wait.Slots, c.Transactions),
		telemetry: fetch.NewTelemetry(otel.GetMeterProvider().Meter(fetch.Scope),
			otel.GetTracerProvider().Tracer(fetch.Scope), nil),
	}, nil
}

// prepared is the config of a consumer that would read in this way.
func (c *ReaderConfig) prepared() (consumer.Config, error) {
	p := consumer.Config{
		Connection: c.Connection, OnLoss: cmp.Or(c.OnLoss, consumer.Fail),
		MaxBatch: c.MaxBatch, MaxBatchBytes: c.MaxBatchBytes, Transactions: c.Concurrency, BufferBytes: c.BufferBytes,
		FetchWait: c.FetchWait, FetchBytes: c.FetchBytes,
		MetadataInterval: c.MetadataInterval, Logger: c.Logger,
	}
	p = p.WithDefaults()
	faults := []error{c.Check()}
	if p.OnLoss != consumer.Fail && p.OnLoss != consumer.Continue {
		faults = append(faults, fmt.Errorf("on loss: %q is none of %v", p.OnLoss,
			[]consumer.Policy{consumer.Fail, consumer.Continue}))
	}
	return p, errors.Join(faults...)
}

// Close closes the Reader's connections. Nothing may be reading any more.
func (r *Reader) Close() { r.transport.CloseIdleConnections() }

// Read hands the messages of the ranges, one range for a partition at most, to f page by page. A partition's pages
// come in their order, one at a time; those of several partitions come at once, from several goroutines. Once f has
// returned, a page counts no longer for BufferBytes. Only committed messages are read, and their IDs are found as
// topic says.
//
// A range ends at its To, or where its partition ended when Read was called, at its last stable offset: what is
// produced later, or lies behind a transaction that was open then, is not read. A range that begins there or beyond
// has no page.
//
// Read returns nil when all ranges are read. It returns an error when f does, when ctx ends, when messages were
// deleted (see ReaderConfig.OnLoss) or can't be decoded, and when the topic or a partition does not exist, is deleted
// or made anew meanwhile; f's ctx ends then too. Brokers that are away or refuse to answer are asked again, which is
// logged, until ctx ends. f never runs when Read has returned.
func (r *Reader) Read(ctx context.Context, topic consumer.Topic, ranges []Range,
	f func(context.Context, Page) error) error {
	topic, err := readable(topic, ranges)
	if err == nil {
		err = newPass(ctx, r, topic, f).run(ranges)
	}
	if err != nil {
		return fmt.Errorf("read topic %s: %w", topic.Name, err)
	}
	return nil
}

// readable fills in a topic's defaults and reports every fault of what is to be read.
func readable(topic consumer.Topic, ranges []Range) (consumer.Topic, error) {
	topic, err := topic.Checked()
	faults := []error{err}
	seen := map[int32]bool{}
	for _, r := range ranges {
		if r.From < 0 || r.To < r.From {
			faults = append(faults, fmt.Errorf("partition %d: from %d to %d is no range", r.Partition, r.From, r.To))
		}
		if seen[r.Partition] {
			faults = append(faults, fmt.Errorf("partition %d: named twice", r.Partition))
		}
		seen[r.Partition] = true
	}
	return topic, errors.Join(faults...)
}
