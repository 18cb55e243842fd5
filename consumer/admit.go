package consumer

import (
	"fmt"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wait"
)

// parkedCheck is the time between two counts of a partition's parked messages.
const parkedCheck = 2 * time.Second

// hasRoom waits while too many of the partition's messages are parked: a handler that fails on everything is an
// outage, not a reason for an endless table. It says whether the session is still alive.
func (w *worker) hasRoom() bool {
	s := w.session
	held, most := false, s.c.cfg.MaxParked
	for !w.parkedSince.IsZero() && (w.parked > most || time.Since(w.parkedSince) >= parkedCheck) {
		n, err := s.c.processor.Store().Unfinished(s.ctx, w.partition.Topic, w.partition.Partition, most+1)
		switch {
		case err != nil:
			w.parkedSince, w.parked = time.Now(), 0 // the next batch will meet the same trouble, and say so
		case n <= most:
			if w.parkedSince, w.parked = time.Now(), n; n == 0 {
				w.parkedSince = time.Time{}
			}
		default:
			held = true
			w.partition.WaitFor(holding.As(HeldMaxParked, fmt.Errorf("%d messages are parked or more, at most %d may be", n, most)))
			w.yield()
			if !wait.Sleep(s.ctx, parkedCheck) {
				return false
			}
		}
	}
	if held {
		w.tellProgress()
	}
	if w.yielded {
		w.resume()
		return w.await()
	}
	return s.ctx.Err() == nil
}

// admitted waits for a slot, and while what it would be used for is paused. It says whether it got one before the
// session ended.
func (w *worker) admitted() bool {
	s, p := w.session, w.partition
	for w.unpaused() && s.c.slots.Take(s.ctx) {
		if paused, _ := s.c.processor.Paused(p.Topic, p.Partition); !paused {
			return true
		}
		s.c.slots.Give() // it was paused while others had the slots
	}
	return false
}

// unpaused waits while the partition, or its topic, is paused. What it has fetched is given up meanwhile: the others
// need the room. It says whether the session is still alive.
func (w *worker) unpaused() bool {
	s, p := w.session, w.partition
	rested := false
	for s.ctx.Err() == nil {
		paused, changed := s.c.processor.Paused(p.Topic, p.Partition)
		if !paused {
			if rested {
				p.Resume(w.next)
				return w.await()
			}
			return true
		}
		if !rested {
			rested = true
			w.rest()
			w.excuse()
		}
		select {
		case <-s.ctx.Done():
		case <-changed:
		}
	}
	return false
}
