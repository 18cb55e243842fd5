package consumer

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
)

func TestConfigReportsEveryFaultAtOnce(t *testing.T) {
	_, err := Config{
		StartAt: "newest", OnLoss: Restart, OnReset: Continue, OnPostgresBehind: Hold,
		Topics:       []Topic{{Name: "orders"}, {Name: "orders"}, {}, {Name: "nobody's"}},
		DrainTimeout: time.Minute,
	}.prepared([]string{"orders"}, nil)
	for _, fault := range []string{
		"brokers: at least one address is required",
		"group: a name is required",
		`start at: "newest" is none of [earliest latest]`,
		`on loss: "restart" is none of [continue hold]`,
		`on reset: "continue" is none of [hold restart]`,
		`on postgres behind: "hold" is none of [position committed]`,
		"topic orders: named twice",
		"topics[2]: a name is required",
		"topic nobody's: no handler is registered for it",
		"drain timeout: 1m0s is too long",
	} {
		require.ErrorContains(t, err, fault)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 10)
}

func TestPatternsAreCheckedAndTopicsWithoutEntriesAreAllThatHaveAHandler(t *testing.T) {
	to := Connection{Brokers: []string{"localhost:9092"}}
	_, err := Config{Connection: to, Group: "g", StartAt: Latest, Topics: []Topic{{Pattern: "orders("}, {Pattern: "a.*"},
		{Name: "a", Pattern: "b"}, {Pattern: "a.*"}, {Pattern: "other"}, {Name: "not by a"}, {Name: "abc"}}}.
		prepared(nil, []string{"orders(", "a.*"})
	for _, fault := range []string{
		"topic: pattern orders( is no regular expression: missing closing ): `orders(`",
		"topic a: it has the pattern b too, and an entry has one of the two",
		"topic a.*: named twice",
		"topic other: no handler is registered for it",
		"topic not by a: no handler is registered for it",
		"start at: latest can't be where a topic has a pattern, orders(",
	} {
		require.ErrorContains(t, err, fault)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 6)

	c, err := Config{Connection: to, Group: "g", DeadTopic: "all.dead"}.prepared([]string{"b"}, []string{"a.*", "all.*"})
	require.NoError(t, err)
	require.Len(t, c.Topics, 3)
	for name, entry := range map[string]*Topic{"b": &c.Topics[0], "all.x": &c.Topics[1], "all.dead": nil, "__a": nil,
		"ba": nil, "": nil} {
		require.Equal(t, entry, c.entry(name), name)
	}
	topic, is := c.Topic("all.x")
	require.True(t, is)
	require.Equal(t, []string{"all.x", ""}, []string{topic.Name, topic.Pattern})
}

func TestConfigNeedsOnlyBrokersAndGroup(t *testing.T) {
	c, err := Config{Connection: Connection{Brokers: []string{"localhost:9092"}},
		Group: "billing"}.prepared([]string{"orders", "refunds"}, nil)
	require.NoError(t, err)

	byDefault, err := identity.NewRule()
	require.NoError(t, err)
	require.Equal(t, []Topic{{Name: "orders", Identity: byDefault}, {Name: "refunds", Identity: byDefault}}, c.Topics)
	require.NotNil(t, c.Logger)
	require.NotNil(t, c.Observe)
	c.Topics, c.Logger, c.Observe = nil, nil, nil
	require.Equal(t, Config{
		Connection: Connection{Brokers: []string{"localhost:9092"}, ClientID: "firstseen",
			RequestTimeout: 10 * time.Second}, Group: "billing",
		StartAt: Earliest, OnLoss: Continue, OnReset: Hold, OnPostgresBehind: Position,
		MaxBatch: 5000, MaxBatchBytes: 4 << 20, MaxParked: 100_000, Transactions: 4, BufferBytes: 64 << 20,
		FetchWait: 500 * time.Millisecond, FetchBytes: 8 << 20,
		SessionTimeout: 45 * time.Second, RebalanceTimeout: time.Minute, HeartbeatInterval: 2 * time.Second,
		JoinBackoff: time.Second, DrainTimeout: 15 * time.Second,
		CommitInterval: time.Second, MetadataInterval: 5 * time.Second, PatternInterval: 30 * time.Second,
	}, c)
}

func TestNegativeSettingsAreTheDefaults(t *testing.T) {
	c, err := Config{Connection: Connection{Brokers: []string{"b"}}, Group: "g", MaxBatch: -1, FetchWait: -time.Second,
		Transactions: -3}.prepared(nil, nil)
	require.NoError(t, err)
	require.Equal(t, 5000, c.MaxBatch)
	require.Equal(t, 500*time.Millisecond, c.FetchWait)
	require.Equal(t, 4, c.Transactions)
}

// The config that the caller holds, and its topics, are the caller's.
func TestConfigIsNotChangedInPlace(t *testing.T) {
	given := Config{Connection: Connection{Brokers: []string{"b"}}, Group: "g", Topics: []Topic{{Name: "orders"}}}
	_, err := given.prepared([]string{"orders"}, nil)
	require.NoError(t, err)
	require.Equal(t, Config{Connection: Connection{Brokers: []string{"b"}}, Group: "g",
		Topics: []Topic{{Name: "orders"}}}, given)
}

// When a generation ends no heartbeat is sent until the drain is over: it must be over, its cut-off and a last
// commit included, before the group can give the partitions to another member.
func TestDrainEndsBeforeTheGroupGivesThePartitionsAway(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		drain  time.Duration // 0: refused
	}{
		{"defaults", Config{}, 15 * time.Second},
		{"longest with the other defaults", Config{DrainTimeout: 26 * time.Second}, 26 * time.Second},
		{"one too long", Config{DrainTimeout: 26*time.Second + 1}, 0},
		{"shorter session", Config{SessionTimeout: 30 * time.Second}, 11 * time.Second},
		{"shorter rebalance", Config{RebalanceTimeout: 30 * time.Second}, 11 * time.Second},
		{"slower heartbeat",
			Config{SessionTimeout: 30 * time.Second, HeartbeatInterval: 5 * time.Second}, 8 * time.Second},
		{"session that leaves no time", Config{SessionTimeout: 19 * time.Second}, 0},
		{"longer session than the default drain needs", Config{SessionTimeout: 2 * time.Minute,
			RebalanceTimeout: 2 * time.Minute}, 15 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Brokers, c.config.Group = []string{"b"}, "g"
			got, err := c.config.prepared(nil, nil)
			if c.drain == 0 {
				require.ErrorContains(t, err, "drain timeout")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.drain, got.DrainTimeout)
			require.LessOrEqual(t, got.DrainTimeout+cutOff+got.HeartbeatInterval+got.RequestTimeout,
				min(got.SessionTimeout, got.RebalanceTimeout))
		})
	}
}

func TestConfigFaultsKeepNewFromMakingAConsumer(t *testing.T) {
	registry := &handlers.Registry{}
	require.NoError(t, registry.Register("nothing", handlers.BatchHandlerFunc(nil), "orders"))
	processor, err := handlers.NewProcessor(handlers.Config{Store: &dedup.Store{}, Handlers: registry})
	require.NoError(t, err)
	c, err := New(Config{Group: "g"}, processor)
	require.Nil(t, c)
	require.EqualError(t, err, "consumer config: brokers: at least one address is required")
}

func TestDeadTopicMustNotBeRead(t *testing.T) {
	c := Config{Connection: Connection{Brokers: []string{"b"}}, Group: "g", DeadTopic: "orders"}
	_, err := c.prepared([]string{"orders", "refunds"}, nil)
	require.ErrorContains(t, err, "dead topic: orders is a topic that is read")
	c.Topics = []Topic{{Name: "refunds"}}
	_, err = c.prepared([]string{"orders", "refunds"}, nil)
	require.NoError(t, err)
}
