package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/replay"
)

func printReplay(out io.Writer, r *replay.Result, dry bool) error {
	_, _ = fmt.Fprintln(out, headline(r, dry))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	seconds := r.Elapsed.Seconds()
	_, _ = fmt.Fprintf(table, "read\t%s\tmessages, in %.1f s, %s/s\n", terminal.Grouped(r.Read), seconds,
		terminal.Grouped(terminal.PerSecond(r.Read, r.Elapsed)))
	for _, line := range []struct {
		name string
		n    int
		what string
	}{
		{"new", r.New, "handled"},
		{"duplicates", r.Duplicates, "seen before: no effect"},
		{"conflicts", r.Conflicts, "seen before with another content: see firstseen conflicts"},
		{"parked", r.Parked, "for firstseen run to handle: a handler failed, an earlier one of the key waits, or a webhook's"},
		{"dead", r.Dead, "in the dead letters now: see firstseen dead"},
		{"buried", r.Buried, "copies of dead letters: no effect"},
	} {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", line.name, terminal.Grouped(int64(line.n)), describe(line.name, line.what, dry))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(table, "\nPARTITION\tFROM\tTO\tNEXT")
	for _, p := range r.Ranges {
		_, _ = fmt.Fprintf(table, "%s/%d\t%d\t%d\t%d\n", r.Topic, p.Partition, p.From, p.To, p.Next)
	}
	return table.Flush()
}

// headline says how the replay went as a whole.
func headline(r *replay.Result, dry bool) string {
	text := "replay " + terminal.OneLine(r.Name)
	began := ", begun " + r.BegunAt.UTC().Format(time.DateTime) + " UTC"
	switch {
	case dry && r.Guessed:
		return text + ": dry run, nothing was written; more IDs are new than can be remembered, so that new may be too high"
	case dry:
		return text + ": dry run, nothing was written"
	case r.Resumed && r.Left() == 0 && r.Before == r.Total():
		return text + began + ": was finished before; --fresh begins it anew"
	case r.Resumed:
		text += began + ": resumed with " + terminal.Grouped(r.Before) + " of " + terminal.Grouped(r.Total()) + " offsets done"
	}
	if r.Left() > 0 {
		return text + ": not finished"
	}
	return text + ": finished"
}

// describe words a count for a dry run.
func describe(name, what string, dry bool) string {
	switch {
	case !dry:
		return what
	case name == "new":
		return "would be handled"
	case name == "parked":
		return "is not foreseen"
	case name == "dead":
		return "have no usable ID, and would go to the dead letters"
	}
	return what
}
