package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers/crashguard"
)

// recover decides what a failed attempt means, and says whether the partition goes on. Whatever it is, nothing of
// the batch has taken effect, but where the position says otherwise.
func (w *worker) recover(err error, n int, retry wait.Backoff) bool {
	s := w.session
	var moved *dedup.MovedError
	switch {
	case errors.As(err, &moved) && moved.Next > w.position.Next && moved.Next <= w.next:
		w.log.Warn("the answer to a commit was lost; it had taken effect", "offset", moved.Next)
		w.telemetry.failed(failedCommitLost)
		done, _ := slices.BinarySearchFunc(w.messages, moved.Next, func(m dedup.Message, next int64) int {
			return cmp.Compare(m.Offset, next)
		})
		w.position.Next, w.position.LeaderEpoch = moved.Next, w.partition.EpochAt(moved.Next)
		w.drop(done, moved.Next)
		return true
	case errors.Is(err, dedup.ErrFenced), moved != nil:
		w.telemetry.ousted(moved)
		s.fault(fmt.Errorf("partition %s: %w", w.partition, err))
		return false
	case s.ctx.Err() != nil:
		w.telemetry.failed(failedAbandoned)
		w.log.Warn("open batch abandoned; its messages come again", "error", err)
		return false
	}
	w.telemetry.failed(holding.CodeOf(err))
	if w.guard == nil {
		w.guard = crashguard.AfterFailure(s.c.processor, w.position, w.log)
	}
	w.limit = w.guard.Failed(s.ctx, err, n, w.limit)
	pause := retry.Next()
	w.partition.WaitFor(err, "offset", w.position.Next, "messages", n)
	w.yield()
	defer w.resume()
	return wait.Sleep(s.ctx, pause)
}

// yield gives up all that the worker has where others lack memory: a partition that is held must not keep them from
// going on. It is read again after resume.
func (w *worker) yield() {
	if !w.yielded && w.session.c.memory.Short() {
		w.rest()
		w.yielded = true
	}
}

func (w *worker) resume() {
	if w.yielded {
		w.partition.Resume(w.next)
		w.yielded = false
	}
}

// rest gives up all that is fetched and not processed.
func (w *worker) rest() {
	w.session.c.memory.Give(w.partition.Rest())
	w.counts(-w.decoded)
	w.messages, w.size, w.next, w.unread, w.unready = nil, 0, w.position.Next, fetch.Taken{}, nil
}

// excuse takes the acquiring back of a position that has not moved: the process lives, and nobody died over it.
func (w *worker) excuse() {
	if w.position != nil {
		crashguard.Excuse(w.session.work, w.session.c.processor.Store(), w.position, w.log)
	}
}
