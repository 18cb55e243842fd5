package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/firstseen/firstseen/consumer/internal/deadtopic"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// Consumer is one member of a consumer group. Make it with New and run it once.
type Consumer struct {
	cfg       Config
	processor *handlers.Processor
	log       *slog.Logger
	wire      *wire.Client
	transport *kafka.Transport
	owner     string

	holds     *holds.Registry
	cluster   *holds.Place // of looks at the cluster
	joins     *holds.Place // of joining the group
	commits   *holds.Place // of offsets
	listing   *holds.Place // of looks for topics that a pattern matches
	topics    topics
	memory    *memory.Account
	slots     wait.Slots // one for each transaction that may be open
	life      *life
	telemetry *telemetry

	partitionsEvery time.Duration // how often partitions of the inbox are made ahead
}

// New checks the config, every fault at once, and makes a Consumer that gives its messages to processor. It talks
// to no broker yet.
func New(cfg Config, processor *handlers.Processor) (*Consumer, error) {
	asked := cfg.Transactions
	cfg, err := cfg.prepared(processor.Topics(), processor.Patterns())
	if err != nil {
		return nil, fmt.Errorf("consumer config: %w", err)
	}
	if err := cfg.fitPool(asked, processor); err != nil {
		return nil, err
	}
	transport, registry := cfg.Transport(), processor.Holds()
	c := &Consumer{
		cfg: cfg, processor: processor, owner: dedup.ThisProcess(),
		log:       cfg.Logger.With("group", cfg.Group),
		transport: transport,
		wire:      wire.New(transport, cfg.Brokers, cfg.ClientID, cfg.RequestTimeout),
		memory:    memory.New(cfg.BufferBytes),
		slots:     make(wait.Slots, cfg.Transactions),
		life:      &life{state: Starting, since: time.Now()},
		telemetry: newTelemetry(&cfg),

		partitionsEvery: time.Hour,

		holds:   registry,
		cluster: registry.Place(holds.GroupKind, cfg.Group),
		joins:   registry.Place(holds.GroupKind, cfg.Group),
		commits: registry.Place(holds.GroupKind, cfg.Group),
		listing: registry.Place(holds.GroupKind, cfg.Group),
	}
	registry.LogTo(cfg.Logger, string(holds.GroupKind), cfg.Group)
	c.prepareTopics()
	return c, nil
}

// Config is the consumer's, defaults filled in.
func (c *Consumer) Config() Config { return c.cfg }

// TransactionSlots are those of Config.Transactions: who has one for a while runs a transaction in the consumer's place.
func (c *Consumer) TransactionSlots() wait.Slots { return c.slots }

// Memory is the account that all counts on which the process holds of messages. Its limit is Config.BufferBytes.
func (c *Consumer) Memory() *memory.Account { return c.memory }

// Run is New and the consumer's Run, for a program that needs the consumer for nothing else.
func Run(ctx context.Context, cfg Config, processor *handlers.Processor) error {
	c, err := New(cfg, processor)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// Run consumes until ctx ends, and then drains: open batches are finished or, after Config.DrainTimeout, abandoned,
// offsets are committed, and the group is left. What goes wrong meanwhile is logged and tried again with
// backoff; nothing is skipped. It returns nil after a clean end.
func (c *Consumer) Run(ctx context.Context) error {
	defer c.transport.CloseIdleConnections()
	defer c.life.enter(Ended)
	defer c.telemetry.observe(c.Status, c.memory)()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { c.holds.Run(ctx) })
	wg.Go(func() { c.processor.Store().KeepHoldsTold(ctx, c.cfg.Group, c.holds, c.log) })
	wg.Go(func() { c.makePartitions(ctx) })
	c.processor.Draw(c.memory)
	c.processor.DecodeBy(c.cfg.Formats())
	wg.Go(func() { c.processor.RunLanes(ctx) })
	if c.cfg.DeadTopic != "" {
		wg.Go(func() { c.deadLetters().Run(ctx) })
	}

	var last ending
	retry := wait.NewBackoff()
	for ctx.Err() == nil {
		topics := c.existingTopics(ctx)
		if len(topics) == 0 {
			retry.Wait(ctx)
			continue
		}
		retry = wait.NewBackoff()
		if err := c.member(ctx, topics, &last); err != nil && ctx.Err() == nil {
			c.log.Error("consumer group failed; joining it again", "error", err)
			wait.Sleep(ctx, c.cfg.JoinBackoff)
		}
	}
	last.tell(c)
	return nil
}

// deadLetters publishes to Config.DeadTopic.
func (c *Consumer) deadLetters() *deadtopic.Publisher {
	topic := c.cfg.DeadTopic
	return &deadtopic.Publisher{
		Topic: topic, Store: c.processor.Store(), Wire: c.wire, Transport: c.transport, Brokers: c.cfg.Brokers,
		Log: c.log.With("dead_topic", topic), Hold: c.holds.Place(holds.DeadTopicKind, topic),
		Timeout: c.cfg.RequestTimeout, Fresh: c.cfg.MetadataInterval,
	}
}

// makePartitions keeps the inbox's partitions made ahead.
func (c *Consumer) makePartitions(ctx context.Context) {
	for wait.Sleep(ctx, c.partitionsEvery) {
		if _, err := c.processor.Store().MakePartitions(ctx); err != nil && ctx.Err() == nil {
			c.log.Error("inbox partitions not made ahead; trying again", "in", c.partitionsEvery, "error", err)
		}
	}
}

// existingTopics looks up the topics that are to be read and gives those that are there. Joining a group with a topic that
// is not would have it rejoin without end, and no request of ours creates one.
func (c *Consumer) existingTopics(ctx context.Context) map[string]wire.Topic {
	answered := c.watch(ctx, c.cluster, false)
	found, err := c.ask(ctx, c.cfg.MetadataInterval)
	answered()
	if err != nil {
		if ctx.Err() == nil {
			c.cluster.Wait(holds.Kafka, c.explained(ctx, err), "brokers", strings.Join(c.cfg.Brokers, ","))
		}
		return nil
	}
	c.cluster.End()
	maps.DeleteFunc(found, func(_ string, t wire.Topic) bool { return !t.Readable() })
	return found
}

// errTopicsChanged ends a membership whose list of topics is no longer the right one.
var errTopicsChanged = errors.New("topics have come or gone")

// member is one membership of the group, over the topics that exist. It returns when ctx ends or the list of
// topics has to change, and says in e what it has come to.
func (c *Consumer) member(ctx context.Context, topics map[string]wire.Topic, e *ending) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: c.cfg.Group, Brokers: c.cfg.Brokers, Dialer: c.cfg.dialer(), Topics: slices.Sorted(maps.Keys(topics)),
		GroupBalancers:    c.cfg.balancers(),
		HeartbeatInterval: c.cfg.HeartbeatInterval, SessionTimeout: c.cfg.SessionTimeout,
		RebalanceTimeout: c.cfg.RebalanceTimeout, JoinGroupBackoff: c.cfg.JoinBackoff,
		Timeout: c.cfg.RequestTimeout,
	})
	if err != nil {
		return err
	}
	defer c.leave(group, e)
	var former staleMember
	defer func() { former.replace("") }()
	c.life.enter(Joining)
	for {
		joined := c.watch(ctx, c.joins, true)
		generation, err := group.Next(ctx)
		joined()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			// Calling Next again is all there is to do: the group itself joins again, after its backoff.
			c.joins.Wait(holds.Kafka, c.explained(ctx, fmt.Errorf("join the group: %w", err)))
			former.expel(ctx, c, err)
			continue
		}
		c.joins.End()
		former.replace(generation.MemberID)
		s := newSession(c, generation, topics)
		generation.Start(func(generationEnd context.Context) { s.run(ctx, generationEnd) })
		<-s.done
		*e = ending{member: generation.MemberID, uncommitted: len(s.offsets.toCommit())}
		if ctx.Err() != nil {
			return nil
		}
		c.life.enter(Joining)
		if errors.Is(s.cause(), errTopicsChanged) {
			return nil
		}
		if fresh := c.existingTopics(ctx); len(fresh) > 0 {
			if !sameTopics(fresh, topics) {
				return nil
			}
			topics = fresh
		}
	}
}

func sameTopics(a, b map[string]wire.Topic) bool {
	return slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
}

type ending struct {
	member      string // its ID; empty: the group was never joined
	uncommitted int    // partitions that are further in Postgres than in Kafka
	unleft      error  // why the group was not left; nil: it was
}

// leave closes the membership, which tells the coordinator, in bounded time: Close waits for an answer of
// brokers that may be gone, and does not say whether it came. So it is asked for once more.
func (c *Consumer) leave(group *kafka.ConsumerGroup, e *ending) {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.RequestTimeout)
	defer cancel()
	closed := make(chan struct{})
	go func() { defer close(closed); _ = group.Close() }()
	select {
	case <-closed:
	case <-ctx.Done():
	}
	if e.member != "" {
		e.unleft = c.wire.LeaveGroup(ctx, c.cfg.Group, e.member)
	}
}

// tell logs the end of the last membership.
func (e *ending) tell(c *Consumer) {
	switch {
	case e.member == "":
		c.log.Info("ended; the group was never joined")
	case e.uncommitted > 0 || e.unleft != nil:
		attrs := []any{"partitions_not_committed", e.uncommitted}
		if e.unleft != nil {
			attrs = append(attrs, "group_not_left", e.unleft, "times_out_after", c.cfg.SessionTimeout)
		}
		c.log.Warn("ended, and Kafka was not told everything: the positions are in Postgres, so that nothing takes "+
			"effect again", attrs...)
	default:
		c.log.Info("ended: offsets are committed and the group is left")
	}
}
