package consumer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/shards"
)

func twoShards(t *testing.T) shards.Map {
	first, err := shards.ParsePartitions("0-3")
	require.NoError(t, err)
	rest, err := shards.ParsePartitions("4-")
	require.NoError(t, err)
	return shards.Map{{Name: "a", Partitions: first}, {Name: "b", Partitions: rest}}
}

// memberOf is what the group's leader is told of a process that works on a shard of a map.
func memberOf(t *testing.T, id, shard string, m shards.Map, topics ...string) kafka.GroupMember {
	cfg := Config{Home: shards.Home{Shard: shard, Map: m}}
	data, err := cfg.balancers()[0].UserData()
	require.NoError(t, err)
	return kafka.GroupMember{ID: id, Topics: topics, UserData: data}
}

func partitionsOf(topic string, n int) (all []kafka.Partition) {
	for i := range n {
		all = append(all, kafka.Partition{Topic: topic, ID: i})
	}
	return all
}

func TestLeaderGivesEachPartitionToAMemberOfItsShard(t *testing.T) {
	m, log := twoShards(t), &consumertest.Log{}
	cfg := Config{Home: shards.Home{Shard: "a", Map: m}, Logger: log.Logger()}
	leader := cfg.balancers()[0]
	partitions := append(partitionsOf("orders", 8), partitionsOf("refunds", 2)...)
	members := []kafka.GroupMember{memberOf(t, "a1", "a", m, "orders", "refunds"), memberOf(t, "a2", "a", m, "orders"),
		memberOf(t, "b1", "b", m, "orders", "refunds")}
	given := leader.AssignGroups(members, partitions)
	require.Equal(t, []string{"a1", "a2", "b1"}, slices.Sorted(maps.Keys(given)))
	require.ElementsMatch(t, []int{4, 5, 6, 7}, given["b1"]["orders"])
	require.Empty(t, given["b1"]["refunds"])
	require.Len(t, given["a1"]["orders"], 2)
	require.ElementsMatch(t, []int{0, 1, 2, 3}, slices.Concat(given["a1"]["orders"], given["a2"]["orders"]))
	require.ElementsMatch(t, []int{0, 1}, given["a1"]["refunds"])
	require.False(t, log.Has(slog.LevelWarn, "no process of the group works on a shard: its partitions wait"))

	given = leader.AssignGroups(members[:2], partitions)
	require.ElementsMatch(t, []int{0, 1, 2, 3}, slices.Concat(given["a1"]["orders"], given["a2"]["orders"]))
	require.True(t, log.Has(slog.LevelWarn, "no process of the group works on a shard: its partitions wait", "shard", "b",
		"partitions", "4"), fmt.Sprint(given))
}

func TestLeaderGivesNothingToAMemberOfAnotherMap(t *testing.T) {
	m, other := twoShards(t), twoShards(t)
	other[0].Partitions, other[1].Partitions = other[1].Partitions, other[0].Partitions
	log := &consumertest.Log{}
	cfg := Config{Home: shards.Home{Shard: "a", Map: m}, Logger: log.Logger()}
	given := cfg.balancers()[0].AssignGroups([]kafka.GroupMember{memberOf(t, "a1", "a", m, "orders"),
		memberOf(t, "b1", "b", other, "orders"), {ID: "none", Topics: []string{"orders"}}}, partitionsOf("orders", 8))
	require.Equal(t, []string{"a1"}, slices.Sorted(maps.Keys(given)))
	require.ElementsMatch(t, []int{0, 1, 2, 3}, given["a1"]["orders"])
	require.True(t, log.Has(slog.LevelWarn, "a member of the group goes by another map of shards, and is given no "+
		"partitions until it is restarted with this one, or this process with that", "member", "b1"))
}

func TestAGroupThatIsSpreadSpeaksOneProtocolThatNobodyElseDoes(t *testing.T) {
	alone := Config{}
	spread := Config{Home: shards.Home{Shard: "a", Map: twoShards(t)}}
	require.Len(t, spread.balancers(), 1)
	for _, b := range alone.balancers() {
		require.NotEqual(t, spread.balancers()[0].ProtocolName(), b.ProtocolName())
	}
}

func TestConfigOfAShardHasItInItsMapAndBeginsAtTheFirstMessage(t *testing.T) {
	cfg := Config{Connection: Connection{Brokers: []string{"k:9092"}}, Group: "g",
		Home: shards.Home{Shard: "c", Map: twoShards(t)}, StartAt: Latest}
	_, err := cfg.prepared([]string{"orders"}, nil)
	require.ErrorContains(t, err, `home: shard "c" is none of a, b`)
	require.ErrorContains(t, err, "start at: latest can't be where partitions have several homes")
	cfg.Home.Shard, cfg.StartAt = "b", ""
	_, err = cfg.prepared([]string{"orders"}, nil)
	require.NoError(t, err)
}
