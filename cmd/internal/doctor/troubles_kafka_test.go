package doctor

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

// theGroup has another group, with positions and committed offsets of its own, on the lab's broker.
func (l *lab) theGroup(name string, committed, position int64) {
	commit(l.t, l.fake.Addr, name, topic, committed)
	if position >= 0 {
		l.positions(name, topic, position)
	}
	l.also(func(c *config.Config) { c.Group = name })
}

// meanwhile has something happen while the check waits.
func (l *lab) meanwhile(do func()) {
	l.target = func(p *target) { p.wait = func(context.Context, time.Duration) bool { do(); return true } }
}

// topicAs is a trouble of a topic's settings.
func topicAs(level Level, seen string, replicas int16, configs ...string) trouble {
	return trouble{level, seen, func(l *lab) { l.own(replicas, configs...) }}
}

// byPatterns has the topics be those that patterns match, with the handlers that the first one has.
func byPatterns(patterns ...string) func(*config.Config) {
	return func(c *config.Config) {
		of := c.Topics[0].Handlers
		c.Topics = nil
		for _, pattern := range patterns {
			c.Topics = append(c.Topics, config.Topic{Pattern: pattern, Handlers: of})
		}
	}
}

func keepIDs(d time.Duration) func(*config.Config) {
	return func(c *config.Config) { c.Retention.IDs = d }
}

// cutOffAt has a fake cluster say that a leader epoch ends at an offset in all logs.
func cutOffAt(fake *kfake.Cluster, end int64) {
	consumertest.AnswerEpochs(fake, func(asked int32) (int32, int64) { return asked, end })
}

var kafkaTroubles = map[string][]trouble{
	"kafka.reachable": {configured(Fault, `connection refused`,
		func(c *config.Config) { c.Kafka.Brokers = config.List{"127.0.0.1:1"} }).within(time.Second)},
	"registry.reachable": {configured(Fault, `connection refused`,
		func(c *config.Config) { c.Registry.URL = "http://127.0.0.1:1" }).within(10 * time.Second)},
	"kafka.version": {
		{Fault, `seem to be v2.0; firstseen needs 2.1`, func(l *lab) {
			speaks(l.ownWith(3, nil, kfake.MaxVersions(kversion.V2_0_0())).Cluster, kversion.V2_0_0())
		}},
		{Info, `no topic IDs; they seem to be v2.7`, func(l *lab) {
			speaks(l.ownWith(3, nil, kfake.MaxVersions(kversion.V2_7_0())).Cluster, kversion.V2_7_0())
		}},
	},
	"kafka.auto_create": {{Warning, `is true`, func(l *lab) { tellAutoCreate(l.own(3).Cluster, "true") }}},
	"kafka.topics": {
		configured(Fault, `topic nowhere does not exist`, func(c *config.Config) { c.Topics[0].Name = "nowhere" }),
		{Fault, `brokers deny the topic orders to this client`, func(l *lab) { l.deny() }},
		configured(Warning, `no topic is read by the pattern none`, byPatterns("none")),
		configured(Info, `topic orders matches or.* and .*: the first has it`, byPatterns("or.*", ".*")),
	},
	"kafka.recreated": {table(Fault,
		`topic orders was deleted and created again: it was 00000000-0000-0000-0000-000000000001`,
		`update firstseen.positions set topic_id = '00000000-0000-0000-0000-000000000001'`,
		`update firstseen.positions set topic_id = null`)},
	"kafka.cut_off": {
		topicAs(Fault, `orders/0 ends at 0, below its position 10`, 3),
		{Fault, `orders/0 was read up to 10, under the leader epoch 0, and its log is another one from 5 on`,
			func(l *lab) {
				other := l.own(3)
				produce(l.t, other.Addr, topic, 10)
				cutOffAt(other.Cluster, 5)
				l.sql(`update firstseen.positions set leader_epoch = 0, leader_epoch_at = next_offset`)
				l.heal(func() { l.sql(`update firstseen.positions set leader_epoch = null, leader_epoch_at = null`) })
			}},
	},
	"kafka.replication": {
		topicAs(Warning, `is on one of the 3 brokers only`, 1),
		{Info, `is on one broker, the only one`, func(l *lab) { l.ownWith(1, nil, kfake.NumBrokers(1)) }},
	},
	"kafka.min_insync": {topicAs(Warning, `has 3 replicas and min.insync.replicas 1`, 3, "min.insync.replicas=1")},
	"kafka.cleanup":    {topicAs(Warning, `cleanup.policy compact`, 3, "cleanup.policy=compact")},
	"kafka.id_retention": {
		configured(Fault,
			`IDs of the handler book are kept for 24h0m0s, and the topic orders may bring a message again for \d+h`,
			keepIDs(24*time.Hour)),
		topicAs(Fault, `again for ever`, 3, "retention.ms=-1").with(keepIDs(10000 * time.Hour)),
		configured(Fault, `kept for 1h0m0s`,
			func(c *config.Config) { c.Retention.Handlers = map[string]time.Duration{handler: time.Hour} }),
		configured(Warning, `kept for 1h0m0s`,
			func(c *config.Config) { c.Retention.IDs, c.Retention.Force = time.Hour, true }),
	},
	"kafka.dead_letter_topic": {
		configured(Fault, `topic dead does not exist`, toDeadTopic),
		{Warning, `dead takes messages up to 1000 bytes and orders up to`, func(l *lab) {
			createTopic(l.t, l.own(3).Addr, "dead", 1, 3, "max.message.bytes=1000")
			l.also(toDeadTopic)
		}},
	},

	"kafka.group": {
		configured(Warning, `group nobody has no members`, func(c *config.Config) { c.Group = "nobody" }),
		{Info, `has \d members and is \w+Rebalance`, func(l *lab) { l.rebalance() }},
	},
	"kafka.owners": {configured(Fault, `nobody of the 1 members reads other/0`,
		func(c *config.Config) { c.Topics[0].Name = "other" }).topic("other")},
	"kafka.positions": {table(Warning, `orders/1 has no position`,
		`delete from firstseen.positions where "partition" = 1`,
		`insert into firstseen.positions (consumer, topic, "partition", next_offset) values ('shop', 'orders', 1, 10)`)},
	"kafka.lag": {{Warning, `group is 20 messages behind, 10 of them in orders/0`, func(l *lab) {
		l.theGroup("behind", 0, -1)
		l.also(func(c *config.Config) { c.Health.Degraded.Backlog = 19 })
	}}},
	"kafka.loss": {
		{Fault, `orders/0: messages 3 to 4 were deleted before they were read`, func(l *lab) {
			commit(l.t, l.deleted(5), group, topic, 3)
		}},
		{Info, `orders/0: offset 4 was deleted before it was read`, func(l *lab) {
			commit(l.t, l.deleted(5), group, topic, 4)
		}},
		{Warning,
			`orders/1: the next of 10 unread messages is about 9\d?h?.* old, and retention.ms is 10h`, func(l *lab) {
				addr := l.own(3, "retention.ms=36000000").Addr
				produce(l.t, addr, topic, 10, func(r *kgo.Record) { r.Timestamp = time.Now().Add(-9 * time.Hour) })
			}},
	},
	"kafka.transactions": {{Warning,
		`orders/0: an open transaction at offset 0 holds [12] messages back`, func(l *lab) {
			l.openTransaction(l.own(3).Addr)
		}}},
	"kafka.two_databases": {
		{Fault, `orders/0: the committed offset moved from \d+ to \d+ while the position in this database stands at 5`,
			func(l *lab) {
				l.theGroup("two", 7, 5)
				next := int64(7)
				l.meanwhile(func() { next++; commit(l.t, l.fake.Addr, "two", topic, next) })
			}},
		{Fault, `moved from \d+ to \d+ while the position in this database stands at -1`, func(l *lab) {
			l.theGroup("three", 7, -1)
			next := int64(7)
			l.meanwhile(func() { next++; commit(l.t, l.fake.Addr, "three", topic, next) })
		}},
		{Warning, `orders/1: the committed offset 7 is ahead of the position in Postgres, 5`,
			func(l *lab) { l.theGroup("four", 7, 5) }},
		{Info, `orders/1: the position \d+ is catching up with the committed offset 1000`, func(l *lab) {
			l.theGroup("five", 1000, 5)
			l.meanwhile(func() {
				l.sql(`delete from firstseen.positions where consumer = 'five'`)
				l.sql(`insert into firstseen.positions (consumer, topic, "partition", next_offset) values ('five', 'orders', 0, 6), ('five', 'orders', 1, 6)`)
			})
		}},
	},
}

// deleted has a broker with messages, the first n of which are deleted in the first partition.
func (l *lab) deleted(n int64) (addr string) {
	addr = l.own(3).Addr
	produce(l.t, addr, topic, 10)
	withAdmin(l.t, addr, func(ctx context.Context, a *kadm.Client) {
		to := kadm.Offsets{}
		to.AddOffset(topic, 0, n, -1)
		_, err := a.DeleteRecords(ctx, to)
		require.NoError(l.t, err)
	})
	return addr
}

// deny has a broker that keeps the topic from the config's user.
func (l *lab) deny() {
	cluster, err := kfake.NewCluster(kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(2, topic),
		kfake.User("PLAIN", "app", "secret"))
	require.NoError(l.t, err)
	l.heal(cluster.Close)
	l.also(func(c *config.Config) {
		c.Kafka.Brokers = config.List{cluster.ListenAddrs()[0]}
		c.Kafka.SASL.Mechanism, c.Kafka.SASL.Username, c.Kafka.SASL.Password = "plain", "app", "secret"
	})
}

func (tr trouble) within(d time.Duration) trouble {
	return trouble{tr.level, tr.seen, func(l *lab) { tr.make(l); l.target = func(p *target) { p.Timeout = d } }}
}

// topic is a trouble with another topic on the lab's broker.
func (tr trouble) topic(name string) trouble {
	return trouble{tr.level, tr.seen, func(l *lab) {
		createTopic(l.t, l.fake.Addr, name, 1, 3)
		tr.make(l)
	}}
}

// rebalance has a second member join while the first does not come back.
func (l *lab) rebalance() {
	addr := l.own(3).Addr
	back := make(chan struct{})
	member := func(revoked func(context.Context, *kgo.Client, map[string][]int32)) {
		m, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()), kgo.HeartbeatInterval(50*time.Millisecond),
			kgo.OnPartitionsRevoked(revoked))
		require.NoError(l.t, err)
		l.heal(m.Close)
	}
	member(func(context.Context, *kgo.Client, map[string][]int32) { <-back })
	awaitStable(l.t, addr)
	member(func(context.Context, *kgo.Client, map[string][]int32) {})
	l.heal(func() { close(back) })
}

// openTransaction leaves a producer's transaction open.
func (l *lab) openTransaction(addr string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("hanging"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(l.t, err)
	l.heal(client.CloseAllowingRebalance)
	require.NoError(l.t, client.BeginTransaction())
	require.NoError(l.t,
		client.ProduceSync(l.t.Context(), &kgo.Record{Topic: topic, Partition: 0, Value: []byte("x")}).FirstErr())
}
