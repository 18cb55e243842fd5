// Package consumer is Kafka's side of firstseen: it joins a consumer group, reads the partitions it is given, and
// hands each one's messages in batches to a [handlers.Processor], whose transaction moves the partition's
// position in Postgres. Offsets are committed to Kafka after that, and never ahead of it.
//
// Records enter from the brokers, one long-poll request at a time for each leader; decoded messages leave to the
// Processor, one batch at a time for each partition. In between lies a buffer with a bound in bytes.
//
// In reading order:
//
//	config.go, topic.go        what is read and how
//	connection.go              how to reach the cluster
//	consumer.go, topics.go     one member of a group, over the topics that are there
//	balance.go                 who is given which partitions
//	session.go                 one assignment of partitions, its offsets, its end
//	worker.go                  one partition's batches, where nothing fails
//	start.go                   where it begins
//	admit.go, recover.go       what a worker waits for before a batch, and what it does when one has failed
//	refused.go                 a partition that can't be read on
//	stale.go                   a membership that kafka-go has forgotten
//	unreached.go               what keeps this client from the cluster
//	hold.go, status.go         what waits, and where each partition stands
//	telemetry.go, gauges.go    what is measured
//
// Packages below it: internal/wire is the protocol, internal/fetch the buffers. Above it lie replay, which reads
// ranges beside the group, cluster, which asks what operators ask, and service, which is what a program has around a
// Consumer so that people can run it.
package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/shards"
	"github.com/firstseen/firstseen/handlers"
)

// Config says what a Consumer reads and how. Only Brokers and Group are required.
type Config struct {
	Connection
	// Group is the consumer group, and the name of the consumer's positions in Postgres. Required.
	Group string

	// Topics are the topics to read, by names and by patterns, each of which has a handler. A topic is read as the entry
	// of its name says or, where there is none, as the first one whose pattern matches it. Default: all topics and
	// patterns that have a handler.
	Topics []Topic

	// Home is the shard that this process works on, where the group's partitions are spread over several Postgres
	// servers: the one that the processor's store is in. It is given its partitions only; each shard needs a process of
	// its own, and all have the same map. Each of the databases has to know which one it is, by dedup.DeclareHomes.
	// Default: the store has all partitions.
	Home shards.Home

	// DeadTopic is a topic that dead letters are published to as well, at least once each. It must exist, and must not
	// be one that is read. Default none: they are in Postgres only.
	DeadTopic string

	// StartAt decides where a partition begins that has neither a committed offset nor a position: Earliest (default)
	// or Latest. A partition added to a topic that is being read is begun at its first message all the same. Latest can't
	// be where a topic has a pattern: it would skip what was written before the topic was found.
	StartAt StartAt
	// OnLoss applies where messages were deleted before they were read: Continue with what is left (default), or Hold
	// the partition. Either is reported with the range of offsets.
	OnLoss Policy
	// OnReset applies where a topic was deleted and created again, or its log is not the one that was read any more,
	// as after an unclean leader election: Hold the partition (default), or Restart it from where the logs part, which
	// is the first message of a new topic, and where it is not known exactly. What was seen is a duplicate. A log that
	// was cut off is held all the same where messages are known by their positions, which others have now.
	OnReset Policy
	// OnPostgresBehind applies where the position in Postgres is lower than the committed offset, as after a failover
	// or a restore that lost transactions: start from the Position (default), or trust the Committed offset and skip
	// what lies between.
	OnPostgresBehind Policy

	// MaxBatch caps a batch's messages. The first batches of a partition are smaller: see crashguard.FirstBatch. Default
	// 5000.
	MaxBatch int
	// MaxBatchBytes caps a batch's keys, values and headers; a single larger message is a batch of its own.
	// Default 4 MiB.
	MaxBatchBytes int
	// MaxParked caps a partition's messages that are parked for later: beyond it the partition is held. Default
	// 100,000.
	MaxParked int
	// Transactions caps the batches that are in a transaction at once, in this process. Default 4, or as many as the
	// pool has connections for: see [handlers.Processor.Connections].
	Transactions int
	// BufferBytes bounds what the process holds of messages: answers of brokers, what is decompressed and fetched
	// ahead, what is being processed, and what is loaded of parked messages. One message that is larger than half of
	// it may exceed it, and one batch of a producer as brokers store it. To bound the process limit Go's heap too,
	// which else grows to twice what it holds: with debug.SetMemoryLimit(BufferBytes + HeapBeside) it takes no more
	// than BufferBytes, one largest message and 64 MiB, whatever topics hold. `firstseen run` does so by itself.
	// Default DefaultBufferBytes, and at least 4 MiB.
	BufferBytes int
	// FetchWait bounds a broker's wait for new records before it answers. Default 500 ms.
	FetchWait time.Duration
	// FetchBytes caps a fetch's answer, compressed. Default 8 MiB.
	FetchBytes int

	// SessionTimeout bounds the group's wait for a heartbeat: a member that is silent for longer is out. Default 45 s.
	SessionTimeout time.Duration
	// RebalanceTimeout bounds the group's wait for members to come back in a rebalance. Default 60 s.
	RebalanceTimeout time.Duration
	// HeartbeatInterval is the time between two signs of life. Default 2 s.
	HeartbeatInterval time.Duration
	// JoinBackoff is the pause before joining again after a failure. Default 1 s.
	JoinBackoff time.Duration
	// DrainTimeout bounds the time of open batches when the partitions are given up. Default 15 s.
	DrainTimeout time.Duration
	// CommitInterval is the time between two commits of offsets to Kafka. Default 1 s.
	CommitInterval time.Duration
	// MetadataInterval is the time between two looks at the cluster: new partitions, topics that come and go,
	// moved leaders. Default 5 s.
	MetadataInterval time.Duration
	// PatternInterval is the time between two looks at all topics of the cluster, for those that a pattern matches; there
	// is one more at most with each rebalance. A new topic is read within PatternInterval and MetadataInterval together,
	// and a rebalance. Without patterns there are no such looks. Default 30 s.
	PatternInterval time.Duration

	// Logger gets what an operator should know; never a payload or a key. Default slog.Default().
	Logger *slog.Logger
	// MeterProvider measures what is fetched and processed; package dedup/instruments says how. Default
	// OpenTelemetry's global one, as it is when the Consumer is made.
	MeterProvider metric.MeterProvider
	// TracerProvider traces each batch in a span that is linked to those that sent its messages, by their headers
	// traceparent. The span is the Processor's too. Default the global one.
	TracerProvider trace.TracerProvider
	// Observe, if set, is called when a partition is about to be acquired and when a drain begins, beside the
	// stages of each batch that handlers.Config.Observe is called for. For tests.
	Observe func(handlers.Stage)
}

// DefaultBufferBytes is Config.BufferBytes where nothing is said: 64 MiB.
const DefaultBufferBytes = 64 << 20

// leastBufferBytes is the least buffer: below it batches are taken in so small parts that they are fetched again and
// again.
const leastBufferBytes = 4 << 20

// HeapBeside is the heap that Go needs beyond Config.BufferBytes to work well: 40 MiB.
const HeapBeside = 40 << 20

// The consumer's own stages, for Config.Observe.
const (
	StageAcquiring handlers.Stage = "acquiring" // a partition is about to be acquired in Postgres
	StageDraining  handlers.Stage = "draining"  // partitions are being given up, batches may be open
)

// StartAt is Earliest or Latest.
type StartAt string

// Where reading begins.
const (
	Earliest StartAt = "earliest"
	Latest   StartAt = "latest"
)

// Policy is a choice for what can't be repaired without a decision.
type Policy string

// The policies; each setting's comment says which ones it takes.
const (
	Continue  Policy = "continue"
	Hold      Policy = "hold"
	Restart   Policy = "restart"
	Position  Policy = "position"
	Committed Policy = "committed"
	Fail      Policy = "fail"
)

// prepared fills in the defaults and reports every fault of the config at once. named and patterns are the topics that
// have a handler.
func (c Config) prepared(named, patterns []string) (Config, error) {
	c.setDefaults()
	c.BufferBytes = max(c.BufferBytes, leastBufferBytes)
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	faults = append(faults, c.Check())
	if err := dedup.CheckName(c.Group); err != nil {
		fault("group: %w", err)
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"session timeout", c.SessionTimeout}, {"rebalance timeout", c.RebalanceTimeout}, {"fetch wait", c.FetchWait}} {
		if t.d > MaxTimeout {
			fault("%s: %s is too long: Kafka's protocol has milliseconds in 32 bits, %s at most",
				t.name, t.d, MaxTimeout)
		}
	}
	if err := oneOf("start at", c.StartAt, Earliest, Latest); err != nil {
		faults = append(faults, err)
	}
	faults = append(faults, oneOf("on loss", c.OnLoss, Continue, Hold), oneOf("on reset", c.OnReset, Hold, Restart),
		oneOf("on postgres behind", c.OnPostgresBehind, Position, Committed))
	if err := c.prepareTopics(named, patterns); err != nil {
		faults = append(faults, err)
	}
	if err := c.Home.Check(); err != nil {
		fault("home: %w", err)
	}
	if !c.Home.Alone() && c.StartAt == Latest {
		fault("start at: latest can't be where partitions have several homes: a shard that is reached later than the " +
			"others would skip what came meanwhile")
	}
	if i := slices.IndexFunc(c.Topics, Topic.byPattern); i >= 0 && c.StartAt == Latest {
		fault("start at: latest can't be where a topic has a pattern, %s: messages that are written before such a topic is "+
			"found would be skipped", c.Topics[i].Pattern)
	}
	if slices.ContainsFunc(c.Topics, func(t Topic) bool { return t.Name != "" && t.Name == c.DeadTopic }) {
		fault("dead topic: %s is a topic that is read: what died would come again", c.DeadTopic)
	}
	if limit := c.drainLimit(); c.DrainTimeout > limit {
		fault("drain timeout: %s is too long: with these session, rebalance, heartbeat and request timeouts at most "+
			"%s passes before the group gives the partitions away", c.DrainTimeout, limit)
	}
	return c, errors.Join(faults...)
}

// MaxTimeout is the longest that a request can ask a broker to wait, which is 24 days.
const MaxTimeout = math.MaxInt32 * time.Millisecond

// cutOff is the time that a drain may take beyond DrainTimeout: a handler that ignores its context, and its rollback.
const cutOff = 7 * time.Second

// drainLimit bounds a drain: heartbeats stop when a generation ends, and another member may own the partitions when
// the shorter of the two timeouts has passed.
func (c *Config) drainLimit() time.Duration {
	return min(c.SessionTimeout, c.RebalanceTimeout) - c.HeartbeatInterval - c.RequestTimeout - cutOff
}

func oneOf[T ~string](setting string, got T, allowed ...T) error {
	if slices.Contains(allowed, got) {
		return nil
	}
	return fmt.Errorf("%s: %q is none of %v", setting, got, allowed)
}

// WithDefaults is the config with a default wherever it says nothing.
func (c Config) WithDefaults() Config {
	c.setDefaults()
	return c
}

func (c *Config) fetching() fetch.Config {
	return fetch.Config{Wait: c.FetchWait, Bytes: c.FetchBytes, BufferBytes: c.BufferBytes,
		Interval: c.MetadataInterval}
}

func (c *Config) setDefaults() {
	c.Connection.setDefaults()
	setDefault(&c.StartAt, Earliest)
	setDefault(&c.OnLoss, Continue)
	setDefault(&c.OnReset, Hold)
	setDefault(&c.OnPostgresBehind, Position)
	setDefault(&c.MaxBatch, 5000)
	setDefault(&c.MaxBatchBytes, 4<<20)
	setDefault(&c.MaxParked, 100_000)
	setDefault(&c.Transactions, 4)
	setDefault(&c.BufferBytes, DefaultBufferBytes)
	setDefault(&c.FetchWait, 500*time.Millisecond)
	setDefault(&c.FetchBytes, 8<<20)
	setDefault(&c.SessionTimeout, 45*time.Second)
	setDefault(&c.RebalanceTimeout, 60*time.Second)
	setDefault(&c.HeartbeatInterval, 2*time.Second)
	setDefault(&c.JoinBackoff, time.Second)
	setDefault(&c.DrainTimeout, min(15*time.Second, max(time.Second, c.drainLimit())))
	setDefault(&c.CommitInterval, time.Second)
	setDefault(&c.MetadataInterval, 5*time.Second)
	setDefault(&c.PatternInterval, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observe == nil {
		c.Observe = func(handlers.Stage) {}
	}
}

// setDefault replaces a zero or negative value.
func setDefault[T ~string | ~int | ~int64](v *T, def T) {
	var zero T
	if *v <= zero {
		*v = def
	}
}

// fitPool sees that the store's pool has the connections that are needed. Where nobody has asked for a number of
// transactions it makes do with fewer.
func (c *Config) fitPool(asked int, p *handlers.Processor) error {
	have, wanted := int(p.Store().Pool().Stat().MaxConns()), p.Connections(c.Transactions)
	for asked <= 0 && c.Transactions > 1 && p.Connections(c.Transactions) > have {
		c.Transactions--
	}
	switch need := p.Connections(c.Transactions); {
	case need > have:
		return fmt.Errorf("consumer config: the pool has %d connections and %d are needed, "+
			"for %d transactions at once, the lane workers, and what the handlers take; set pool_max_conns=%d in "+
			"the connection string, or MaxConns", have, need, c.Transactions, need)
	case have < wanted:
		c.Logger.Warn("the pool has room for few transactions at once; set pool_max_conns in the "+
			"connection string, or MaxConns", "transactions", c.Transactions, "connections", have, "wanted", wanted)
	}
	return nil
}
