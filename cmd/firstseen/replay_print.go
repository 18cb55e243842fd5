package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/firstseen/firstseen/consumer/replay"
)

func printReplay(out io.Writer, r *replay.Result, dry bool) error {
	_, _ = fmt.Fprintln(out, headline(r, dry))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	seconds := r.Elapsed.Seconds()
	_, _ = fmt.Fprintf(table, "read\t%s\tmessages, in %.1f s, %s/s\n", grouped(r.Read), seconds,
		grouped(perSecond(r.Read, r.Elapsed)))
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
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", line.name, grouped(int64(line.n)), describe(line.name, line.what, dry))
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
	text := "replay " + oneLine(r.Name)
	began := ", begun " + r.BegunAt.UTC().Format(time.DateTime) + " UTC"
	switch {
	case dry && r.Guessed:
		return text + ": dry run, nothing was written; more IDs are new than can be remembered, so that new may be too high"
	case dry:
		return text + ": dry run, nothing was written"
	case r.Resumed && r.Left() == 0 && r.Before == r.Total():
		return text + began + ": was finished before; --fresh begins it anew"
	case r.Resumed:
		text += began + ": resumed with " + grouped(r.Before) + " of " + grouped(r.Total()) + " offsets done"
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

func perSecond(n int64, d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(float64(n) / d.Seconds())
}

// progress shows how far a replay is: as a bar on a terminal, else as a line now and then.
type progress struct {
	mu    sync.Mutex // the log comes from many goroutines
	out   io.Writer
	topic string
	bar   *progressbar.ProgressBar // nil: lines
	width bool                     // the bar knows its maximum
	told  time.Time                // the last line
}

// progressEvery is the time between two lines.
const progressEvery = 5 * time.Second

func newProgress(out io.Writer, topic string) *progress {
	p := &progress{out: out, topic: topic, told: time.Now()}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(topic),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("offsets"),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionFullWidth(),
			progressbar.OptionClearOnFinish())
	}
	return p
}

// show takes in how far it is. What earlier runs have done counts for no rate.
func (p *progress) show(r replay.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := r.Total() - r.Before
	done := total - r.Left()
	if p.bar != nil {
		if !p.width {
			p.width = true
			p.bar.ChangeMax64(max(1, total))
		}
		_ = p.bar.Set64(done)
		return
	}
	if time.Since(p.told) < progressEvery {
		return
	}
	p.told = time.Now()
	_, _ = fmt.Fprintln(p.out, progressLine(p.topic, done, total, r.Elapsed))
}

func progressLine(topic string, done, total int64, elapsed time.Duration) string {
	line := fmt.Sprintf("%s: %s of %s offsets (%d%%), %s/s", topic, grouped(done), grouped(total), 100*done/max(1, total),
		grouped(perSecond(done, elapsed)))
	if done > 0 {
		left := time.Duration(float64(elapsed) / float64(done) * float64(total-done))
		line += ", " + left.Round(time.Second).String() + " left"
	}
	return line
}

// Write is for the log's lines: they come in the bar's place, which is drawn again with the next batch.
func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil && p.width {
		_ = p.bar.Clear()
	}
	return p.out.Write(line)
}

// end leaves the terminal as it was.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
