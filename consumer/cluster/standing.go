package cluster

import (
	"context"
	"fmt"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Standing is a group's progress in some topics, by Kafka and by Postgres.
type Standing struct {
	Group      Group
	Partitions []PartitionStanding // sorted
}

// PartitionStanding is a group's progress in one partition.
type PartitionStanding struct {
	GroupOffset
	// Position is the offset to process next, in Postgres; -1 where there is none. It is what counts: the committed
	// offset follows it.
	Position int64
	// LeaderEpoch is that of the last message before the position; nil: not known.
	LeaderEpoch *int32
	// Lag counts the offsets between the position and the last stable offset; -1 where there is no position.
	Lag int64
	// Member is the group's that was given the partition; its zero value where none was.
	Member Member
	// Owner is the process that acquired the position last, empty where none did. It need not live any more.
	Owner string
}

// Standing tells where a group stands in some topics. Those that do not exist are left out. Beside an error
// everything is there that was found.
func (c *Cluster) Standing(ctx context.Context, store *dedup.Store, group string, topics []string) (Standing, error) {
	positions, err := operate.Of(store).Positions(ctx, group)
	if err != nil {
		return Standing{}, err
	}
	at := map[wire.TopicPartition]operate.Position{}
	for _, p := range positions {
		at[wire.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p
	}
	var s Standing
	if s.Group, err = c.Group(ctx, group); err != nil {
		return s, err
	}
	offsets, err := c.Offsets(ctx, group, topics)
	for _, o := range offsets {
		p := PartitionStanding{GroupOffset: o, Position: -1, Lag: -1, Member: s.Group.Owner(o.Topic, o.Partition)}
		if stated, ok := at[wire.TopicPartition{Topic: o.Topic, Partition: o.Partition}]; ok {
			p.Position, p.LeaderEpoch, p.Owner = stated.Next, stated.LeaderEpoch, stated.Owner
		}
		if p.Position >= 0 && o.Stable >= 0 {
			p.Lag = max(0, o.Stable-p.Position)
		}
		s.Partitions = append(s.Partitions, p)
	}
	if err != nil {
		return s, fmt.Errorf("offsets of group %s: %w", group, err)
	}
	return s, nil
}
