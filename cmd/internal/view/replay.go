package view

import (
	"time"

	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Replay is what a replay did.
type Replay struct {
	Topic      string            `json:"topic"`
	Name       string            `json:"name"`
	DryRun     bool              `json:"dry_run"`
	Finished   bool              `json:"finished"`
	Resumed    bool              `json:"resumed"`
	BegunAt    *time.Time        `json:"begun_at"`
	Offsets    ReplayOffsets     `json:"offsets"`
	Read       int64             `json:"read" doc:"Messages, in this run."`
	New        int               `json:"new"`
	Duplicates int               `json:"duplicates"`
	Conflicts  int               `json:"conflicts"`
	Parked     int               `json:"parked"`
	Dead       int               `json:"dead"`
	Buried     int               `json:"buried" doc:"Copies of dead letters."`
	Guessed    bool              `json:"guessed" doc:"Of a dry run: new may be too high."`
	Seconds    float64           `json:"seconds" doc:"Of this run."`
	Partitions []ReplayPartition `json:"partitions"`
}

// ReplayOffsets are how far a replay is.
type ReplayOffsets struct {
	Total  int64 `json:"total"`
	Before int64 `json:"before" doc:"Done before this run."`
	Left   int64 `json:"left"`
}

// ReplayPartition is how far a replay is in one partition.
type ReplayPartition struct {
	Partition int32 `json:"partition"`
	From      int64 `json:"from"`
	To        int64 `json:"to"`
	Next      int64 `json:"next"`
}

// ReplayOf is what a replay did.
func ReplayOf(r *replay.Result, dryRun, finished bool) Replay {
	return Replay{Topic: r.Topic, Name: r.Name, DryRun: dryRun, Finished: finished, Resumed: r.Resumed,
		BegunAt: Moment(r.BegunAt), Offsets: ReplayOffsets{r.Total(), r.Before, r.Left()}, Read: r.Read, New: r.New,
		Duplicates: r.Duplicates, Conflicts: r.Conflicts, Parked: r.Parked, Dead: r.Dead, Buried: r.Buried,
		Guessed: r.Guessed, Seconds: r.Elapsed.Seconds(),
		Partitions: List(r.Ranges, func(p *operate.ReplayRange) ReplayPartition {
			return ReplayPartition{p.Partition, p.From, p.To, p.Next}
		})}
}
