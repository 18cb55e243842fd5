package consumer

import (
	"fmt"
	"time"
)

// A message can take the whole process down: by running it out of memory, by os.Exit, by a panic in a goroutine of
// the handler's own. Then the same partition is acquired again at the same position. From the second time on
// its messages are handled one at a time, each announced in Postgres beforehand: where the process dies over the same
// message as often as the handler has attempts, the message goes to the dead letters.

// fruitless is how often a position is acquired without moving before its messages are suspected. An owner that lived
// takes its own time back.
const fruitless = 2

// retractTimeout bounds the wait for taking an announcement back.
const retractTimeout = 2 * time.Second

// leave says that the worker has come to its end without a death, where nothing that it did says so.
func (w *worker) leave() {
	if w.caution != nil {
		w.caution.leave(w.session.work)
	}
}

// grow lets batches become larger again after a success.
func (w *worker) grow() {
	if w.caution.left == 0 {
		w.limit = min(w.limit+max(1, w.limit/8), w.session.c.cfg.MaxBatch) // slowly: too much costs a timeout each time
	}
}

// parkedCheck is the time between two counts of a partition's parked messages.
const parkedCheck = 2 * time.Second

// hasRoom waits while too many of the partition's messages are parked: a handler that fails on everything is an
// outage, not a reason for an endless table. It says whether the session is still alive.
func (w *worker) hasRoom() bool {
	s := w.session
	held, most := false, s.c.cfg.MaxParked
	for !w.parkedSince.IsZero() && (w.parked > most || time.Since(w.parkedSince) >= parkedCheck) {
		n, err := s.c.processor.Store().Unfinished(s.ctx, w.partition.topic, w.partition.partition, most+1)
		switch {
		case err != nil:
			w.parkedSince, w.parked = time.Now(), 0 // the next batch will meet the same trouble, and say so
		case n <= most:
			if w.parkedSince, w.parked = time.Now(), n; n == 0 {
				w.parkedSince = time.Time{}
			}
		default:
			held = true
			w.partition.waitFor(&holdError{HeldMaxParked, fmt.Errorf("%d messages are parked or more, at most %d may be", n, most)})
			if !sleep(s.ctx, parkedCheck) {
				return false
			}
		}
	}
	if held {
		w.tellProgress()
	}
	return s.ctx.Err() == nil
}
