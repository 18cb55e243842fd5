package consumer

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"

	"github.com/segmentio/kafka-go"

	"github.com/firstseen/firstseen/dedup/shards"
)

// balancers say how the group's leader gives partitions to members. Where these are spread over several servers there
// is one way only, which nobody else knows: a member without the map is refused by the group itself.
func (c *Config) balancers() []kafka.GroupBalancer {
	if c.Home.Alone() {
		return []kafka.GroupBalancer{kafka.RoundRobinGroupBalancer{}, kafka.RangeGroupBalancer{}}
	}
	return []kafka.GroupBalancer{byShard{home: c.Home, log: c.Logger}}
}

// byShard gives each partition to a member that works on its shard, round robin among those of a shard. Where a shard
// has no member its partitions wait, and nobody else is given them.
type byShard struct {
	kafka.RoundRobinGroupBalancer

	home shards.Home
	log  *slog.Logger
}

func (b byShard) ProtocolName() string { return "firstseen-shards" }

// shardOf is what each member tells the leader.
type shardOf struct {
	Shard string `json:"shard"`
	Map   string `json:"map"`
}

func (b byShard) UserData() ([]byte, error) {
	return json.Marshal(shardOf{b.home.Shard, b.home.Map.String()})
}

func (b byShard) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	given := kafka.GroupMemberAssignments{}
	of := b.byName(members)
	waiting := map[string]int{}
	for shard, theirs := range b.partitionsByShard(partitions) {
		if len(of[shard]) == 0 {
			waiting[shard] = len(theirs)
			continue
		}
		maps.Copy(given, b.RoundRobinGroupBalancer.AssignGroups(of[shard], theirs))
	}
	for _, shard := range slices.Sorted(maps.Keys(waiting)) {
		b.log.Warn("no process of the group works on a shard: its partitions wait", "shard", shard,
			"partitions", waiting[shard])
	}
	return given
}

func (b byShard) partitionsByShard(partitions []kafka.Partition) map[string][]kafka.Partition {
	of := map[string][]kafka.Partition{}
	for _, p := range partitions {
		shard := b.home.Map.Of(int32(p.ID))
		of[shard] = append(of[shard], p)
	}
	return of
}

// byName has the members of each shard. Those that go by another map are given nothing: they are of before it was
// changed, or will be of after.
func (b byShard) byName(members []kafka.GroupMember) map[string][]kafka.GroupMember {
	of := map[string][]kafka.GroupMember{}
	for _, m := range members {
		var told shardOf
		if err := json.Unmarshal(m.UserData, &told); err != nil || told.Map != b.home.Map.String() {
			b.log.Warn("a member of the group goes by another map of shards, and is given no partitions until it is "+
				"restarted with this one, or this process with that", "member", m.ID, "map", told.Map,
				"here", b.home.Map.String())
			continue
		}
		of[told.Shard] = append(of[told.Shard], m)
	}
	return of
}
