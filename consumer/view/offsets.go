package view

import (
	"github.com/firstseen/firstseen/consumer/cluster"
)

// Standing is a group's progress in its topics.
type Standing struct {
	Group      string              `json:"group"`
	State      string              `json:"state" doc:"Kafka's word: Empty, Stable and the like; Dead: there is no such group."`
	Members    []Member            `json:"members"`
	Partitions []PartitionStanding `json:"partitions"`
}

// Member is one member of a group.
type Member struct {
	ID       string `json:"id"`
	ClientID string `json:"client_id"`
	Host     string `json:"host"`
}

// PartitionStanding is a group's progress in one partition. What a Partition has too has its name.
type PartitionStanding struct {
	Topic         string  `json:"topic"`
	Partition     int32   `json:"partition"`
	Next          *int64  `json:"next_offset" doc:"To be processed next, in Postgres."`
	LeaderEpoch   *int32  `json:"leader_epoch" doc:"That of the last message before next."`
	Committed     *int64  `json:"committed_offset" doc:"To Kafka."`
	Start         *int64  `json:"start_offset" doc:"The first that Kafka has left."`
	End           *int64  `json:"end_offset" doc:"The last stable offset."`
	HighWatermark *int64  `json:"high_watermark"`
	Lag           *int64  `json:"lag" doc:"Offsets between next and end."`
	Member        *string `json:"member" doc:"The ID of the member that reads it."`
	Owner         *string `json:"owner" doc:"The process that acquired the position last."`
}

func StandingOf(group string, s *cluster.Standing) Standing {
	return Standing{group, s.Group.State, List(s.Group.Members, func(m *cluster.Member) Member {
		return Member{m.ID, m.ClientID, m.Host}
	}), List(s.Partitions, partitionStandingOf)}
}

func partitionStandingOf(p *cluster.PartitionStanding) PartitionStanding {
	return PartitionStanding{Topic: p.Topic, Partition: p.Partition, Next: offset(p.Position),
		LeaderEpoch: p.LeaderEpoch, Committed: offset(p.Committed), Start: offset(p.Earliest), End: offset(p.Stable),
		HighWatermark: offset(p.End), Lag: offset(p.Lag), Member: OrNull(p.Member.ID), Owner: OrNull(p.Owner)}
}

// Reset answers the move of a group, or its dry run.
type Reset struct {
	Group      string           `json:"group"`
	Topic      string           `json:"topic"`
	DryRun     bool             `json:"dry_run"`
	Partitions []ResetPartition `json:"partitions"`
}

// ResetPartition is one partition's part of a Reset.
type ResetPartition struct {
	Partition int32  `json:"partition"`
	Next      *int64 `json:"next_offset"`
	Committed *int64 `json:"committed_offset"`
	From      *int64 `json:"from" doc:"Where the group would go on without it."`
	To        int64  `json:"to"`
	Skipped   int64  `json:"skipped" doc:"Offsets that no handler would ever see."`
	Again     int64  `json:"again" doc:"Offsets that would be read again."`
}

func ResetOf(r *cluster.Reset, dryRun bool) Reset {
	return Reset{r.Group, r.Topic, dryRun, List(r.Partitions, func(p *cluster.ResetPartition) ResetPartition {
		return ResetPartition{p.Partition, offset(p.Position), offset(p.Committed),
			offset(p.From), p.To, p.Skipped, p.Again}
	})}
}
