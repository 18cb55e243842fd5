package handlers

import (
	"context"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup/wait"
)

// samples is the number of looks while a window passes.
const samples = 60

// Window tells what a Processor did lately: in the last so and so long, or since the start where that is shorter. It
// is safe for concurrent use.
type Window struct {
	length func() time.Duration
	totals func() Totals

	mu     sync.Mutex
	before []sample // oldest first; one at most is older than the window
}

type sample struct {
	at     time.Time
	totals Totals
}

// NewWindow makes a Window over totals, a Processor's. It begins now, and moves while Run runs. Its
// length may change meanwhile; a longer one is there once so much time has passed.
func NewWindow(length func() time.Duration, totals func() Totals) *Window {
	w := &Window{length: length, totals: totals}
	w.look()
	return w
}

// Run moves the window until ctx ends.
func (w *Window) Run(ctx context.Context) {
	for wait.Sleep(ctx, max(w.length()/samples, time.Millisecond)) {
		w.look()
	}
}

func (w *Window) look() {
	now := sample{time.Now(), w.totals()}
	w.mu.Lock()
	defer w.mu.Unlock()
	begin := now.at.Add(-w.length())
	for len(w.before) > 1 && !w.before[1].at.After(begin) {
		w.before = w.before[1:]
	}
	w.before = append(w.before, now)
}

// Rates count what happened within a Window.
type Rates struct {
	// Over is the Window's length.
	Over time.Duration
	// Handled messages took effect; Failed are tries that a handler failed on.
	Handled, Failed int64
	// Throughput is handled messages a second.
	Throughput float64
	// FailureRatio is the share of failed tries among all, 0 to 1; 0 where there were none.
	FailureRatio float64
}

// Rates counts in the window that ends now.
func (w *Window) Rates() Rates {
	now := w.totals()
	w.mu.Lock()
	first := w.before[0]
	w.mu.Unlock()
	r := Rates{Over: time.Since(first.at), Handled: now.Handled - first.totals.Handled,
		Failed: now.Failed - first.totals.Failed}
	if r.Over > 0 {
		r.Throughput = float64(r.Handled) / r.Over.Seconds()
	}
	if tries := r.Handled + r.Failed; tries > 0 {
		r.FailureRatio = float64(r.Failed) / float64(tries)
	}
	return r
}
