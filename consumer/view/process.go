package view

import (
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/handlers"
)

// Status is this process's.
type Status struct {
	Version    string     `json:"version"`
	Group      string     `json:"group"`
	Inbox      string     `json:"inbox"`
	Shard      *string    `json:"shard" doc:"The one that this process works on; null: there is one Postgres server."`
	StartedAt  time.Time  `json:"started_at"`
	Uptime     float64    `json:"uptime_seconds"`
	State      string     `json:"state" enum:"starting,joining,consuming,draining,ended,sending,watching" doc:"sending: the program has no topics, and only sends out of the outbox. watching: it reads the inbox only, and nothing is known here of what consumes."`
	StateSince *time.Time `json:"state_since"`
	Generation int32      `json:"generation" doc:"The group's, of the partitions; 0 while there are none."`
	Rebalances int64      `json:"rebalances" doc:"Assignments since the start."`
	Partitions int        `json:"partitions" doc:"How many are assigned to this process."`
	Lag        int64      `json:"lag" doc:"Messages that wait in these, as far as that is known."`
	Kafka      *time.Time `json:"kafka_silent_since" doc:"Since when no broker has answered; null: they answer."`
	Topics     []Topic    `json:"topics"`
	Holds      []Hold     `json:"holds" doc:"What waits in this process, the oldest first."`
	Totals     Totals     `json:"totals"`
	Window     Window     `json:"window"`
	Outbox     *Outbox    `json:"outbox" doc:"What this process sends; null: nothing."`
}

// Topic is one of the config's, whoever has its partitions.
type Topic struct {
	Name      string     `json:"topic"`
	Held      *string    `json:"held" doc:"Why it can't be read: topic_missing, topic_denied, topic_unreadable. Null: it can, as far as is known."`
	HeldSince *time.Time `json:"held_since"`
}

func topicOf(t *consumer.TopicStatus) Topic {
	return Topic{t.Name, OrNull(t.Held), Moment(t.HeldSince)}
}

// Totals count what this process has done since its start, each message once for every handler.
type Totals struct {
	Batches    int64 `json:"batches"`
	Handled    int64 `json:"handled"`
	Failed     int64 `json:"failed" doc:"Attempts."`
	Duplicates int64 `json:"duplicates"`
	Parked     int64 `json:"parked"`
	Dead       int64 `json:"dead"`
	Conflicts  int64 `json:"conflicts"`
	Buried     int64 `json:"buried" doc:"Copies of dead letters."`
}

// Window counts the last minutes, as health.window of the config says.
type Window struct {
	Seconds      float64 `json:"seconds" doc:"How long it is; shorter at first."`
	Handled      int64   `json:"handled"`
	Failed       int64   `json:"failed" doc:"Attempts."`
	PerSecond    float64 `json:"handled_per_second"`
	FailureRatio float64 `json:"failure_ratio" doc:"Failed attempts among all."`
}

// StatusOf leaves who it is, Totals and Window empty.
func StatusOf(started, now time.Time, s *consumer.Status) Status {
	waiting, _ := Lag(s.Partitions)
	return Status{StartedAt: started.UTC(),
		Uptime: now.Sub(started).Seconds(), State: string(s.State), StateSince: Moment(s.Since),
		Generation: s.Generation, Rebalances: s.Rebalances, Partitions: len(s.Partitions), Lag: waiting,
		Kafka: Moment(s.KafkaSince), Topics: List(s.Topics, topicOf), Holds: List(s.Holds, HoldOf)}
}

func TotalsOf(t handlers.Totals) Totals {
	return Totals{t.Batches, t.Handled, t.Failed, t.Duplicates, t.Parked, t.Dead, t.Conflicts, t.Buried}
}

func WindowOf(r handlers.Rates) Window {
	return Window{r.Over.Seconds(), r.Handled, r.Failed, r.Throughput, r.FailureRatio}
}

// Partitions are those assigned to this process.
type Partitions struct {
	State      string      `json:"state" enum:"starting,joining,consuming,draining,ended,sending,watching"`
	Partitions []Partition `json:"partitions"`
}

// Partition is the state of one partition.
type Partition struct {
	Topic           string     `json:"topic"`
	Partition       int32      `json:"partition"`
	Next            *int64     `json:"next_offset" doc:"To be processed next; null: not acquired yet."`
	Committed       *int64     `json:"committed_offset" doc:"To Kafka; null: none."`
	End             *int64     `json:"end_offset" doc:"The last stable offset; null: not known yet."`
	HighWatermark   *int64     `json:"high_watermark"`
	Lag             *int64     `json:"lag" doc:"Offsets between next and end; null: not known."`
	LagSeconds      float64    `json:"lag_seconds" doc:"How old the message at next is; 0: none waits, or it is not fetched yet."`
	CaughtUp        bool       `json:"caught_up"`
	Held            *string    `json:"held" doc:"Why it waits: a code, as in the page OPERATIONS. Null: it does not."`
	HeldSince       *time.Time `json:"held_since"`
	Paused          bool       `json:"paused"`
	OpenTransaction *time.Time `json:"open_transaction_since" doc:"Since when a producer's open transaction has held the end back."`
}

func PartitionsOf(s *consumer.Status) Partitions {
	return Partitions{string(s.State), List(s.Partitions, partitionOf)}
}

func partitionOf(p *consumer.PartitionStatus) Partition {
	return Partition{Topic: p.Topic, Partition: p.Partition, Next: offset(p.Next), Committed: offset(p.Committed),
		End: offset(p.End), HighWatermark: offset(p.HighWatermark), Lag: offset(p.Lag),
		LagSeconds: p.LagTime.Seconds(), CaughtUp: p.CaughtUp, Held: OrNull(p.Held), HeldSince: Moment(p.HeldSince),
		Paused: p.Paused, OpenTransaction: Moment(p.OpenTransaction)}
}

// Lag sums up what waits in the partitions, and says how long the oldest of it has waited.
func Lag(partitions []consumer.PartitionStatus) (messages int64, oldest time.Duration) {
	for _, p := range partitions {
		messages += max(0, p.Lag)
		oldest = max(oldest, p.LagTime)
	}
	return messages, oldest
}
