package crashtest

import "fmt"

// Result is what came of all runs.
type Result struct {
	// Same is the verdict: no run left other rows than the first, and nothing undone.
	Same     bool   `json:"same"`
	Seed     uint64 `json:"seed"`
	Messages int    `json:"messages"` // of the sample
	Faults   int    `json:"faults"`   // that were done
	// Repeated counts what receivers of webhooks got though they had it already.
	Repeated int `json:"repeated,omitempty"`
	Planned  int `json:"planned"` // runs, beside the two without faults
	// Tables are what was compared.
	Tables []Table `json:"tables"`
	// Suggestions are columns that differ without any fault. While they are not excluded the verdict is not the same.
	Suggestions []Suggestion `json:"suggestions,omitempty"`
	// Warnings are what the schema shows by itself. They don't touch the verdict.
	Warnings []string `json:"warnings,omitempty"`
	// Again is the second run without faults, and Runs are the others that were done.
	Again   RunResult   `json:"again"`
	Runs    []RunResult `json:"runs"`
	Seconds float64     `json:"seconds"`
}

// Table is one that was compared, with its columns that were not.
type Table struct {
	Name     string   `json:"name"`
	Rows     int      `json:"rows"` // without faults
	Excluded []string `json:"excluded,omitempty"`
}

// Suggestion is a column to exclude or, where it is an effect, a fault of the handler's.
type Suggestion struct {
	Column string `json:"column"`
	// Fills is what Postgres fills it in from: a sequence, the time, chance. Empty: it is the handler that does.
	Fills string `json:"fills,omitempty"`
}

// RunResult is what came of one run.
type RunResult struct {
	Number int     `json:"number"`
	Name   string  `json:"name"`
	Faults []Fault `json:"faults,omitempty"`
	// Undone says what was left to do, where it stood still.
	Undone      string       `json:"undone,omitempty"`
	Differences []Difference `json:"differences,omitempty"`
	// Repeated counts what receivers of webhooks got though they had it already.
	Repeated int     `json:"repeated,omitempty"`
	Seconds  float64 `json:"seconds"`
}

// The ways in which a row can differ.
const (
	Missing = "missing"
	Extra   = "extra"
	Changed = "changed"
)

// Difference is a row that should not be so.
type Difference struct {
	Table string `json:"table"`
	Kind  string `json:"kind"`
	// Row is the row or, where it is changed, its primary key.
	Row     []Cell   `json:"row"`
	Changed []Change `json:"changed,omitempty"`
	// Cause is the message that it seems to come from; nil: that can't be told.
	Cause *Cause `json:"cause,omitempty"`
}

// Cell is a column's value.
type Cell struct {
	Column string `json:"column"`
	Value  string `json:"value"`
}

// Change is a value that is another than without faults.
type Change struct {
	Column string `json:"column"`
	Right  string `json:"right"`
	Has    string `json:"has"`
}

// Cause is a message, and what became of it.
type Cause struct {
	// Line is its place in the sample, from 1.
	Line int    `json:"line"`
	ID   string `json:"id,omitempty"`
	// Sent are where its copies are, as topic/partition@offset.
	Sent []string `json:"sent"`
	// Faults are the numbers of those that came while it was sent and not done.
	Faults []int `json:"faults,omitempty"`
}

func (r *Result) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func (r *RunResult) differs() bool { return len(r.Differences) > 0 || r.Undone != "" }

func (r *Result) judge() {
	r.Same = !r.Again.differs() && len(r.Suggestions) == 0
	for i := range r.Runs {
		r.Same = r.Same && !r.Runs[i].differs()
		r.Faults += len(r.Runs[i].Faults)
		r.Repeated += r.Runs[i].Repeated
	}
}
