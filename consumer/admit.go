package consumer

import (
	"fmt"
	"time"

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
	case w.isFull():
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

// parkedCheck is the time between two counts of a partition's parked messages.
const parkedCheck = 2 * time.Second

// isFull says that too many of the partition's messages are parked: a handler that fails on everything is an outage,
// not a reason for an endless table. They are counted now and then while there are any.
func (w *worker) isFull() bool {
	s, most := w.session, w.session.c.cfg.MaxParked
	if w.parkedSince.IsZero() || w.parked <= most && time.Since(w.parkedSince) < parkedCheck {
		return false
	}
	n, err := s.c.processor.Store().Unfinished(s.ctx, w.partition.Topic, w.partition.Partition, most+1)
	if err != nil {
		w.parkedSince, w.parked = time.Now(), 0 // the next batch will meet the same trouble, and say so
		return false
	}
	w.parked = n
	switch {
	case n > most:
		return true
	case n == 0:
		w.parkedSince = time.Time{}
	default:
		w.parkedSince = time.Now()
	}
	return false
}

// waitForRoom waits until fewer messages are parked.
func (w *worker) waitForRoom() {
	for full := true; full; full = w.isFull() {
		w.partition.WaitFor(holding.As(HeldMaxParked, fmt.Errorf("%d messages are parked or more, at most %d may be",
			w.parked, w.session.c.cfg.MaxParked)))
		w.yield()
		if !wait.Sleep(w.session.ctx, parkedCheck) {
			return
		}
	}
	w.tellProgress()
	w.resume()
}
