package consumer

import (
	"fmt"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wait"
)

// leave says that the worker has come to its end without a death, where nothing that it did says so.
func (w *worker) leave() {
	if w.guard != nil {
		w.guard.Leave(w.session.work)
	}
}

// grow lets batches become larger again after a success.
func (w *worker) grow() {
	w.limit = min(w.limit+max(1, w.limit/8), w.session.c.cfg.MaxBatch) // slowly: too much costs a timeout each time
}

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
