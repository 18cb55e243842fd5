package view

import "time"

// Findings are what `firstseen doctor` finds, in a process that runs.
type Findings struct {
	Worst        *string    `json:"worst" doc:"The worst level of all findings, ok, info, warning or fault; null where nothing was looked at yet."`
	Findings     []Finding  `json:"findings"`
	LookedAt     *time.Time `json:"looked_at" doc:"When the look began by which this was found; null where there was none yet."`
	LookingSince *time.Time `json:"looking_since" doc:"When the look began that is under way; null: none is."`
}

// Finding is one thing that a check has found.
type Finding struct {
	Check   string `json:"check" doc:"As firstseen doctor --list has it."`
	Level   string `json:"level" enum:"ok,info,warning,fault"`
	Checked bool   `json:"checked" doc:"False where the check could not be made; seen says why."`
	Seen    string `json:"seen"`
	Do      string `json:"do,omitempty" doc:"What to do; left out where nothing has to be done."`
}

// Levels are those of findings, from the best to the worst.
var Levels = []string{"ok", "info", "warning", "fault"}
