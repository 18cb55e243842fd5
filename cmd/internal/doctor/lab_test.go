package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/migrations"
)

const (
	inbox   = "shop"
	group   = "shop"
	topic   = "orders"
	handler = "book"
	taken   = 300 // messages of the healthy inbox
)

const createBook = `create function book(m firstseen.message) returns void language sql as ''`

// lab is a healthy Postgres, a healthy Kafka and a config for both, in which troubles are made and mended again.
type lab struct {
	t     *testing.T
	db    *deduptest.DB
	fake  *consumertest.Fake
	cfg   config.Config
	scope int32

	// What the trouble at hand changes.
	heals    []func()
	limits   func(*limits)
	config   func(*config.Config)
	target   func(*target)
	noConfig bool
}

func newLab(t *testing.T) *lab {
	t.Helper()
	server := deduptest.StartServer(t, pgserver.Config{Settings: map[string]string{
		"fsync": "on", "full_page_writes": "on", "max_prepared_transactions": "5"}})
	l := &lab{t: t, db: deduptest.Migrated(t, server.DSN("postgres"))}
	roles, err := migrations.Roles(migrations.Config{})
	require.NoError(t, err)
	l.sql(roles)
	l.sql(createBook)
	l.startKafka()
	l.cfg = config.Config{Group: group, Inbox: inbox,
		Topics: []config.Topic{{Name: topic, Handlers: []config.Handler{{Name: handler, Function: "book"}}}}}
	l.cfg.Kafka.Brokers = config.List{l.fake.Addr}
	l.cfg.Postgres.DSN, l.cfg.Postgres.PreparedStatements = config.Secret(l.db.DSN), true
	l.cfg.Postgres.MaxConnections = 8
	l.fill()
	return l
}

// startKafka has a topic with messages, and a member of the group that is assigned it.
func (l *lab) startKafka() {
	l.fake = consumertest.NewFake(l.t, kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	tellAutoCreate(l.fake.Cluster, "false")
	createTopic(l.t, l.fake.Addr, topic, 2, 3, "min.insync.replicas=2")
	produce(l.t, l.fake.Addr, topic, 10)
	commit(l.t, l.fake.Addr, group, topic, 10)
	member, err := kgo.NewClient(kgo.SeedBrokers(l.fake.Addr), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	require.NoError(l.t, err)
	l.t.Cleanup(member.Close)
	awaitStable(l.t, l.fake.Addr)
}

func awaitStable(t *testing.T, addr string) {
	withAdmin(t, addr, func(ctx context.Context, a *kadm.Client) {
		require.Eventually(t, func() bool {
			groups, err := a.DescribeGroups(ctx, group)
			return err == nil && groups[group].State == "Stable"
		}, 3*time.Minute, 20*time.Millisecond)
	})
}

// fill has the inbox hold messages, and the positions stand where the group does.
func (l *lab) fill() {
	l.t.Helper()
	store, err := dedup.Open(l.t.Context(), l.db.Pool, dedup.Config{Inbox: inbox})
	require.NoError(l.t, err)
	scopes, err := store.Scopes(l.t.Context(), []dedup.ScopeKey{{Handler: handler}})
	require.NoError(l.t, err)
	l.scope = scopes.IDs[0]
	l.sql(`insert into firstseen.message_dedup (scope_id, message_id) select $1, md5(n::text)::uuid from generate_series(1, $2) n`, l.scope, taken)
	l.sql(`insert into firstseen.inbox (scope_id, message_id, topic, "partition", "offset", produced_at, payload)
		select $1, md5(n::text)::uuid, $3, 0, n, now(), sha256(n::text::bytea) from generate_series(1, $2) n`,
		l.scope, taken, topic)
	l.positions(group, topic, 10)
	l.answer()
	l.heals = nil // it stays
	l.sql(`analyze`)
}

// positions sets those of a consumer in both partitions of a topic.
func (l *lab) positions(consumer, topic string, next int64) {
	l.t.Helper()
	l.sql(`insert into firstseen.positions (consumer, topic, "partition", next_offset) select $1, $2, n, $3 from generate_series(0, 1) n`, consumer, topic, next)
	l.heal(func() { l.sql(`delete from firstseen.positions where consumer = $1 and topic = $2`, consumer, topic) })
}

// sql runs statements; {scope} stands for the inbox's scope.
func (l *lab) sql(sql string, args ...any) {
	l.t.Helper()
	_, err := l.db.Pool.Exec(context.Background(), strings.ReplaceAll(sql, "{scope}", fmt.Sprint(l.scope)), args...)
	require.NoError(l.t, err, sql)
}

// alone runs statements in a session of their own: when it ends Postgres counts what they did.
func (l *lab) alone(sql string) {
	l.t.Helper()
	conn, err := pgx.Connect(l.t.Context(), l.db.DSN)
	require.NoError(l.t, err)
	_, err = conn.Exec(l.t.Context(), sql)
	require.NoError(l.t, err)
	require.NoError(l.t, conn.Close(l.t.Context()))
}

// heal has something done when the trouble is to end, last first.
func (l *lab) heal(f func()) { l.heals = append(l.heals, f) }

// healthy ends the trouble.
func (l *lab) healthy() {
	for i := len(l.heals) - 1; i >= 0; i-- {
		l.heals[i]()
	}
	*l = lab{t: l.t, db: l.db, fake: l.fake, cfg: l.cfg, scope: l.scope}
}

func (l *lab) check(c *Check) []Finding {
	cfg := l.cfg
	cfg.Topics = append([]config.Topic(nil), l.cfg.Topics...)
	if l.config != nil {
		l.config(&cfg)
	}
	p := newTarget(Case{Config: &cfg, DSN: cfg.Postgres.DSN.Reveal(), Inbox: inbox, Timeout: 20 * time.Second})
	defer p.close()
	p.wait = func(context.Context, time.Duration) bool { return true }
	if l.noConfig {
		p.Config = nil
	}
	if l.limits != nil {
		l.limits(&p.limits)
	}
	if l.target != nil {
		l.target(p)
	}
	return p.check(l.t.Context(), c)
}

// requireSilent wants one finding, at level ok.
func (l *lab) requireSilent(c *Check) {
	l.t.Helper()
	var last []Finding
	require.Eventually(l.t, func() bool {
		last = l.check(c)
		return len(last) == 1 && last[0].Level == OK && last[0].Checked
	}, 3*time.Minute, 20*time.Millisecond, "%+v", &last)
	require.Empty(l.t, last[0].Do)
	require.NotEmpty(l.t, last[0].Seen)
}

// own gives the lab a broker of the trouble's own, with the topic in it as the trouble wants it.
func (l *lab) own(replicas int16, configs ...string) *consumertest.Fake {
	l.t.Helper()
	return l.ownWith(replicas, configs)
}

func (l *lab) ownWith(replicas int16, configs []string, opts ...kfake.Opt) *consumertest.Fake {
	l.t.Helper()
	cluster, err := kfake.NewCluster(opts...)
	require.NoError(l.t, err)
	l.heal(cluster.Close)
	f := &consumertest.Fake{Addr: cluster.ListenAddrs()[0], Cluster: cluster}
	createTopic(l.t, f.Addr, topic, 2, replicas, configs...)
	l.also(func(c *config.Config) { c.Kafka.Brokers = config.List{f.Addr} })
	return f
}

// also adds a change of the config.
func (l *lab) also(change func(*config.Config)) {
	before := l.config
	l.config = func(c *config.Config) {
		if before != nil {
			before(c)
		}
		change(c)
	}
}

// tellAutoCreate has brokers answer what kfake does not tell.
func tellAutoCreate(c *kfake.Cluster, value string) {
	c.ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := r.(*kmsg.DescribeConfigsRequest)
		if asked.Resources[0].ResourceType != kmsg.ConfigResourceTypeBroker {
			return nil, nil, false
		}
		answer := asked.ResponseKind().(*kmsg.DescribeConfigsResponse)
		resource := kmsg.NewDescribeConfigsResponseResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeBroker, asked.Resources[0].ResourceName
		setting := kmsg.NewDescribeConfigsResponseResourceConfig()
		setting.Name, setting.Value = "auto.create.topics.enable", &value
		resource.Configs = append(resource.Configs, setting)
		answer.Resources = append(answer.Resources, resource)
		return answer, nil, true
	})
}

// speaks has brokers claim the requests of a release of Kafka.
func speaks(c *kfake.Cluster, release *kversion.Versions) {
	c.ControlKey(int16(kmsg.ApiVersions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		answer := r.ResponseKind().(*kmsg.ApiVersionsResponse)
		release.EachMaxKeyVersion(func(key, version int16) {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, version
			answer.ApiKeys = append(answer.ApiKeys, k)
		})
		return answer, nil, true
	})
}

func withAdmin(t *testing.T, addr string, do func(context.Context, *kadm.Client)) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	do(ctx, kadm.NewClient(client))
}

func createTopic(t *testing.T, addr, topic string, partitions int32, replicas int16, configs ...string) {
	t.Helper()
	values := map[string]*string{}
	for _, c := range configs {
		name, value, _ := strings.Cut(c, "=")
		values[name] = &value
	}
	withAdmin(t, addr, func(ctx context.Context, a *kadm.Client) {
		_, err := a.CreateTopic(ctx, partitions, replicas, values, topic)
		require.NoError(t, err)
	})
}

// produce writes n messages to each of two partitions.
func produce(t *testing.T, addr, topic string, n int, opts ...func(*kgo.Record)) {
	t.Helper()
	var records []*kgo.Record
	for i := range 2 * n {
		r := &kgo.Record{Topic: topic, Partition: int32(i % 2), Value: []byte("x")}
		for _, change := range opts {
			change(r)
		}
		records = append(records, r)
	}
	consumertest.ProduceTo(t, addr, records...)
}

// commit sets a group's offset in both partitions.
func commit(t *testing.T, addr, group, topic string, next int64) {
	t.Helper()
	withAdmin(t, addr, func(ctx context.Context, a *kadm.Client) {
		offsets := kadm.Offsets{}
		for p := range int32(2) {
			offsets.AddOffset(topic, p, next, -1)
		}
		_, err := a.CommitOffsets(ctx, group, offsets)
		require.NoError(t, err)
	})
}
