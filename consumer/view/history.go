package view

import "time"

// Access says what a client of the API may do.
type Access struct {
	Client    string `json:"client" doc:"What its credential proves, as the audit has it: local, read token, write token, certificate NAME."`
	MayChange bool   `json:"may_change"`
}

// History is how one process has been lately.
type History struct {
	StartedAt time.Time `json:"started_at" doc:"The totals are since then."`
	Every     float64   `json:"every_seconds" doc:"The time between two samples. Where more lies between two, the process stood still."`
	Samples   []Sample  `json:"samples" doc:"The oldest first; of an hour at most."`
}

// Sample is how a process was at one time.
type Sample struct {
	At     time.Time     `json:"at"`
	State  string        `json:"state" doc:"As in Status."`
	Lag    int64         `json:"lag" doc:"Messages that wait in its partitions, as far as that is known."`
	Oldest float64       `json:"oldest_seconds" doc:"How long the oldest of these has waited."`
	Totals Totals        `json:"totals"`
	Topics []TopicSample `json:"topics" doc:"Those with partitions of the process, the first twenty by name."`
}

// TopicSample is one topic's part of a Sample.
type TopicSample struct {
	Topic  string  `json:"topic"`
	Lag    int64   `json:"lag"`
	Oldest float64 `json:"oldest_seconds"`
}
