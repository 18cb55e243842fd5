package consumer

import (
	"fmt"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wait"
)

// obstacle is what keeps the worker from its next batch, as a function that waits until it is gone, or the session
// over; nil: nothing does.
func (w *worker) obstacle() (wait func()) {
	paused, _ := w.session.c.processor.Paused(w.partition.Topic, w.partition.Partition)
	switch {
	case paused:
		return w.waitWhilePaused
	case w.parked.Full(w.session.ctx):
		return w.waitForRoom
	}
	return nil
}

// waitWhilePaused waits while the partition, or its topic, is paused. What it has fetched is given up meanwhile: the
// others need the room. A process that ends meanwhile must make no message suspicious that is not suspected already.
func (w *worker) waitWhilePaused() {
	s, p := w.session, w.partition
	w.rest()
	if !w.guard.Suspects() {
		w.excuse()
	}
	for s.ctx.Err() == nil {
		paused, changed := s.c.processor.Paused(p.Topic, p.Partition)
		if !paused {
			p.Resume(w.next)
			return
		}
		select {
		case <-s.ctx.Done():
		case <-changed:
		}
	}
}

// waitForRoom waits until fewer messages are parked.
func (w *worker) waitForRoom() {
	for full := true; full; full = w.parked.Full(w.session.ctx) {
		w.partition.WaitFor(holding.As(HeldMaxParked, fmt.Errorf("%d messages are parked or more, at most %d may be",
			w.parked.N, w.parked.Most)))
		w.yield()
		if !wait.Sleep(w.session.ctx, holding.ParkedCheck) {
			return
		}
	}
	w.tellProgress()
	w.resume()
}
