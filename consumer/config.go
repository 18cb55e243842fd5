// Package consumer is Kafka's side of firstseen: it joins a consumer group, reads the partitions it is given, and
// hands each one's messages in batches to a [handlers.Processor], whose transaction moves the partition's
// position in Postgres. Offsets are committed to Kafka after that, and never ahead of it.
//
// Records enter from the brokers, one long-poll request at a time for each leader; decoded messages leave to the
// Processor, one batch at a time for each partition. In between lies a buffer with a bound in bytes.
//
// In reading order:
//
//	config.go, connection.go   what is read and how, and how to reach the cluster
//	consumer.go                one member of a group, over the topics that are there
//	session.go                 one assignment of partitions, its offsets, its end
//	worker.go                  one partition's batches, where nothing fails
//	start.go                   where it begins
//	admit.go, recover.go       what a worker waits for before a batch, and what it does when one has failed
//	refused.go                 a partition that can't be read on
//	stale.go                   a membership that kafka-go has forgotten
//	hold.go, status.go         what waits, and where each partition stands
//	telemetry.go, gauges.go    what is measured
//
// Packages below it: internal/wire is the protocol, internal/fetch the buffers. Above it lie replay, which reads
// ranges beside the group, and cluster, which asks what operators ask.
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
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
)

// Config says what a Consumer reads and how. Only Brokers and Group are required.
type Config struct {
	Connection
	// Group is the consumer group, and the name of the consumer's positions in Postgres. Required.
	Group string

	// Topics are the topics to read, each of which has a handler. Default: all topics that have one.
	Topics []Topic

	// DeadTopic is a topic that dead letters are published to as well, at least once each. It must exist, and must not
	// be one that is read. Default none: they are in Postgres only.
	DeadTopic string

	// StartAt is where a partition is begun that has neither a committed offset nor a position: Earliest (default)
	// or Latest. A partition added to a topic that is being read is begun at its first message all the same.
	StartAt StartAt
	// OnLoss is what happens where messages were deleted before they were read: Continue with what is left
	// (default), or Hold the partition. Either is reported with the range of offsets.
	OnLoss Policy
	// OnReset is what happens where a topic was deleted and created again, or its log is not the one that was read
	// any more, as after an unclean leader election: Hold the partition (default), or Restart it from where the logs
	// part, which is the first message of a new topic, and where it is not known exactly. What was seen is a
	// duplicate. A log that was cut off is held all the same where messages are known by their positions, which
	// others have now.
	OnReset Policy
	// OnPostgresBehind is what happens where the position in Postgres is lower than the committed offset, as after
	// a failover or a restore that lost transactions: start from the Position (default), or trust the Committed
	// offset and skip what lies between.
	OnPostgresBehind Policy

	// MaxBatch caps a batch's messages. Default 5000.
	MaxBatch int
	// MaxBatchBytes caps a batch's keys, values and headers; a single larger message is a batch of its own.
	// Default 4 MiB.
	MaxBatchBytes int
	// MaxParked is how many of a partition's messages may be parked for later before the partition is held. Default
	// 100,000.
	MaxParked int
	// Transactions is how many batches are in a transaction at once, in this process. Default 4, or as many as the
	// pool has connections for: see [handlers.Processor.Connections].
	Transactions int
	// BufferBytes bounds what the process holds of messages: answers of brokers, what is decompressed and fetched
	// ahead, what is being processed, and what is loaded of parked messages. One message that is larger than half of
	// it may exceed it, and one batch of a producer as brokers store it. To bound the process limit Go's heap too,
	// which else grows to twice what it holds: with debug.SetMemoryLimit(BufferBytes + HeapBeside) it takes no more
	// than BufferBytes, one largest message and 64 MiB, whatever topics hold. `firstseen run` does so by itself.
	// Default DefaultBufferBytes, and at least 4 MiB.
	BufferBytes int
	// FetchWait is how long a broker waits for new records before it answers. Default 500 ms.
	FetchWait time.Duration
	// FetchBytes caps a fetch's answer, compressed. Default 8 MiB.
	FetchBytes int

	// SessionTimeout is how long the group waits for a sign of life. Default 45 s.
	SessionTimeout time.Duration
	// RebalanceTimeout is how long the group waits for members to come back in a rebalance. Default 60 s.
	RebalanceTimeout time.Duration
	// HeartbeatInterval is the time between two signs of life. Default 2 s.
	HeartbeatInterval time.Duration
	// JoinBackoff is the pause before joining again after a failure. Default 1 s.
	JoinBackoff time.Duration
	// DrainTimeout is how long open batches may go on when the partitions are given up. Default 15 s.
	DrainTimeout time.Duration
	// CommitInterval is the time between two commits of offsets to Kafka. Default 1 s.
	CommitInterval time.Duration
	// MetadataInterval is the time between two looks at the cluster: new partitions, topics that come and go,
	// moved leaders. Default 5 s.
	MetadataInterval time.Duration

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

// leastBufferBytes is below what batches are taken in so small parts that they are fetched again and again.
const leastBufferBytes = 4 << 20

// HeapBeside is how much more than Config.BufferBytes Go's heap needs to work well: 40 MiB.
const HeapBeside = 40 << 20

// The consumer's own stages, for Config.Observe.
const (
	StageAcquiring handlers.Stage = "acquiring" // a partition is about to be acquired in Postgres
	StageDraining  handlers.Stage = "draining"  // partitions are being given up, batches may be open
)

// Topic is one topic to read.
type Topic struct {
	Name string
	// Identity says where message IDs come from. Default: the header message-id, then the header id.
	Identity *identity.Rule
	// TenantHeader names the header that holds a message's tenant. Default none: all messages have the same.
	TenantHeader string
	// Fingerprint compares a copy's content with the first message's of its ID. Default none: copies are duplicates.
	Fingerprint identity.FingerprintMode
}

// Checked is the topic with a default wherever it says nothing, or what is wrong with it.
func (t Topic) Checked() (Topic, error) {
	err := t.prepare()
	if t.Name == "" {
		err = errors.Join(errors.New("topic: a name is required"), err)
	}
	return t, err
}

func (t *Topic) prepare() error {
	if t.Identity == nil {
		t.Identity, _ = identity.NewRule() // the default can't be wrong
	}
	if err := t.Fingerprint.Validate(); err != nil {
		return fmt.Errorf("topic %s: %w", t.Name, err)
	}
	return nil
}

// message says how a record becomes a message.
func (t *Topic) message() fetch.Settings {
	return fetch.Settings{Rule: t.Identity, TenantHeader: t.TenantHeader, Fingerprint: t.Fingerprint}
}

// StartAt is where reading begins.
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

// prepared fills in the defaults and reports every fault of the config at once.
func (c Config) prepared(registered []string) (Config, error) {
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
	if err := c.prepareTopics(registered); err != nil {
		faults = append(faults, err)
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

// cutOff is what a drain may take beyond DrainTimeout: a handler that ignores its context, and its rollback.
const cutOff = 7 * time.Second

// drainLimit is how long a drain may take at most: heartbeats stop when a generation ends, and another member may
// own the partitions when the shorter of the two timeouts has passed.
func (c *Config) drainLimit() time.Duration {
	return min(c.SessionTimeout, c.RebalanceTimeout) - c.HeartbeatInterval - c.RequestTimeout - cutOff
}

func (c *Config) prepareTopics(registered []string) error {
	c.Topics = slices.Clone(c.Topics)
	if len(c.Topics) == 0 {
		for _, name := range registered {
			c.Topics = append(c.Topics, Topic{Name: name})
		}
	}
	var faults []error
	seen := map[string]bool{}
	for i := range c.Topics {
		t := &c.Topics[i]
		switch {
		case t.Name == "":
			faults = append(faults, fmt.Errorf("topics[%d]: a name is required", i))
		case seen[t.Name]:
			faults = append(faults, fmt.Errorf("topic %s: named twice", t.Name))
		case !slices.Contains(registered, t.Name):
			faults = append(faults, fmt.Errorf("topic %s: no handler is registered for it", t.Name))
		}
		seen[t.Name] = true
		if err := t.prepare(); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
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

// fetching is how the config has partitions fetched.
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
