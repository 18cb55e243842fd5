package terminal

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress shows how far a replay is: as a bar on a terminal, else as a line now and then. It is a writer too, for the
// log. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex // the log comes from many goroutines
	out   io.Writer
	topic string
	bar   *progressbar.ProgressBar // nil: lines
	width bool                     // the bar knows its maximum
	told  time.Time                // the last line
}

const progressEvery = 5 * time.Second

// NewProgress shows how far a topic's offsets are done: as a bar where out is a terminal, else in lines.
func NewProgress(out io.Writer, topic string) *Progress {
	p := &Progress{out: out, topic: topic, told: time.Now()}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(topic),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("offsets"),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionFullWidth(),
			progressbar.OptionClearOnFinish())
	}
	return p
}

// Show takes in how many offsets are done, and in what time.
func (p *Progress) Show(done, total int64, elapsed time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
	_, _ = fmt.Fprintln(p.out, progressLine(p.topic, done, total, elapsed))
}

func progressLine(topic string, done, total int64, elapsed time.Duration) string {
	line := fmt.Sprintf("%s: %s of %s offsets (%d%%), %s/s", topic, Grouped(done), Grouped(total),
		100*done/max(1, total), Grouped(PerSecond(done, elapsed)))
	if done > 0 {
		left := time.Duration(float64(elapsed) / float64(done) * float64(total-done))
		line += ", " + left.Round(time.Second).String() + " left"
	}
	return line
}

// Write writes lines of the log: they come in the bar's place, which is drawn again with the next batch.
func (p *Progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil && p.width {
		_ = p.bar.Clear()
	}
	return p.out.Write(line)
}

// End leaves the terminal as it was.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
