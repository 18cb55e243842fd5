package view

import (
	"time"

	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Replay answers a replay.
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

// ReplayOffsets count a replay's offsets.
type ReplayOffsets struct {
	Total  int64 `json:"total"`
	Before int64 `json:"before" doc:"Done before this run."`
	Left   int64 `json:"left"`
}

// ReplayPartition is a replay's progress in one partition.
type ReplayPartition struct {
	Partition int32 `json:"partition"`
	From      int64 `json:"from"`
	To        int64 `json:"to"`
	Next      int64 `json:"next"`
}

func ReplayOf(r *replay.Result, dryRun, finished bool) Replay {
	return Replay{Topic: r.Topic, Name: r.Name, DryRun: dryRun, Finished: finished, Resumed: r.Resumed,
		BegunAt: Moment(r.BegunAt), Offsets: ReplayOffsets{r.Total(), r.Before, r.Left()}, Read: r.Read, New: r.New,
		Duplicates: r.Duplicates, Conflicts: r.Conflicts, Parked: r.Parked, Dead: r.Dead, Buried: r.Buried,
		Guessed: r.Guessed, Seconds: r.Elapsed.Seconds(),
		Partitions: List(r.Ranges, func(p *operate.ReplayRange) ReplayPartition {
			return ReplayPartition{p.Partition, p.From, p.To, p.Next}
		})}
}

// ReplayAsk is what a replay by a job is to read.
type ReplayAsk struct {
	From       string  `json:"from" doc:"Where it begins: earliest, latest, an offset in each partition, or a time."`
	To         string  `json:"to" doc:"Where it ends, resolved when it begins."`
	Partitions []int32 `json:"partitions" doc:"None: all."`
	Rate       *int    `json:"rate" doc:"Most messages a second; null: no limit."`
	SkipLost   bool    `json:"skip_lost" doc:"It goes on where messages are not in Kafka any more."`
}

func ReplayAskOf(ask *operate.ReplayAsk) ReplayAsk {
	return ReplayAsk{ask.From, ask.To, append([]int32{}, ask.Partitions...), OrNull(ask.Rate), ask.SkipLost}
}

// ReplayPlan tells what a replay by a job would come to.
type ReplayPlan struct {
	Replay
	Handler *string    `json:"handler" doc:"The only one to be given messages; null: all of the topic."`
	Ask     ReplayAsk  `json:"ask" doc:"As it was planned: durations are times here."`
	Forgets bool       `json:"forgets" doc:"IDs are not kept for ever: what is new may have been handled before."`
	At      *time.Time `json:"at" doc:"When it was counted."`
}

// ReplayJob is what a job has besides that is a replay. What became of messages is counted once for every handler.
type ReplayJob struct {
	ReplayAsk
	Consumer   string `json:"consumer" doc:"The name of its positions."`
	New        int64  `json:"new"`
	Duplicates int64  `json:"duplicates"`
	Conflicts  int64  `json:"conflicts"`
	Parked     int64  `json:"parked"`
	Dead       int64  `json:"dead"`
	Buried     int64  `json:"buried" doc:"Copies of dead letters."`
}

func replayJobOf(r *operate.ReplayJob) *ReplayJob {
	if r == nil {
		return nil
	}
	c := &r.Counts
	return &ReplayJob{ReplayAskOf(&r.ReplayAsk), r.Consumer, c.New, c.Duplicates, c.Conflicts, c.Parked, c.Dead, c.Buried}
}
