package consumer

import (
	"fmt"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
)

// obstacle returns a function that waits until the worker may begin its next batch, or the session is over; nil: it
// may begin now.
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
		if !wait.Sleep(w.session.ctx, dedup.ParkedCheck) {
			return
		}
	}
	w.tellProgress()
	w.resume()
}

// waitForFormat waits until the first record that is left can be decoded. It is tried without a slot: who waits for a
// registry must not keep the others from Postgres. What was fetched is given up where others need the room.
func (w *worker) waitForFormat() {
	s := w.session
	for retry := wait.NewBackoff(); w.unready != nil && s.ctx.Err() == nil; {
		first := w.unread.Records[0]
		w.partition.WaitFor(w.unready, "offset", first.Offset)
		w.yield()
		if wait.Sleep(s.ctx, retry.Next()) && !w.yielded {
			_, w.unready = w.partition.Message(s.ctx, first)
		}
	}
	w.resume()
}
