package consumer

import (
	"context"
	"time"
)

// A message can take the whole process down: by running it out of memory, by os.Exit, by a panic in a goroutine of
// the handler's own. Then the same partition is acquired again at the same position. From the second time on
// its messages are handled one at a time, each announced in Postgres beforehand: where the process dies over the same
// message as often as the handler has attempts, the message goes to the dead letters.

// fruitless is how often a position is acquired without moving before its messages are suspected. An owner that lived
// takes its own time back.
const fruitless = 2

// beCareful decides, when the position has just been acquired, whether its next messages are handled with care.
func (w *worker) beCareful(next int64) {
	p := w.position
	if p.Fruitless < fruitless && (p.Trials == 0 || p.Trial < next) {
		return
	}
	w.log.Warn("the partition was acquired again without having moved: handling its next messages one at a time",
		"offset", next, "times", p.Fruitless)
	w.careful, w.limit, w.announced = w.session.c.cfg.MaxBatch, 1, -1
	w.suspicion = p.Trials == 0
}

// announce says in Postgres which message is about to be handled, while care is needed. A message that was announced
// too often is not handled but buried.
func (w *worker) announce(n int) error {
	if n == 0 {
		return nil
	}
	offset := w.messages[0].Offset
	c := w.session.c
	counts := 1
	switch {
	case offset == w.announced:
		counts = 0
	case w.suspicion:
		counts = 2 // the death that raised it was the first message's, more likely than another's
	}
	times, err := c.processor.Store().Announce(w.session.work, w.position, offset, counts)
	if err != nil {
		return err
	}
	w.announced, w.suspicion = offset, false
	if counts == 2 {
		return nil
	}
	if most := c.processor.MaxAttempts(w.partition.topic); times > most {
		w.killed = most
		w.log.Error("the message killed the process again and again; it goes to the dead letters", "offset", offset, "times", most)
	}
	return nil
}

// retractTimeout bounds the wait for taking an announcement back.
const retractTimeout = 2 * time.Second

// survived takes an announcement back: whatever came of the message, it did not kill the process.
func (w *worker) survived(err error) {
	if w.careful == 0 || err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.session.work), retractTimeout)
	defer cancel()
	if err := w.session.c.processor.Store().Retract(ctx, w.position); err != nil {
		w.log.Debug("announcement not taken back", "error", err)
		return
	}
	w.announced = -1
}

// leave says that the worker has come to its end without a death, where nothing that it did says so.
func (w *worker) leave() {
	if w.position == nil || w.moved {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.session.work), retractTimeout)
	defer cancel()
	if err := w.session.c.processor.Store().Retract(ctx, w.position); err != nil {
		w.log.Debug("acquisition not taken back", "error", err)
	}
}

// grow lets batches become larger again after a success.
func (w *worker) grow() {
	if w.careful > 0 {
		w.careful--
	}
	if w.careful == 0 {
		w.limit = min(w.limit+max(1, w.limit/8), w.session.c.cfg.MaxBatch) // slowly: too much costs a timeout each time
	}
}

// parkedCheck is the time between two counts of a partition's parked messages.
const parkedCheck = 2 * time.Second

// hasRoom waits while too many of the partition's messages are parked: a handler that fails on everything is an
// outage, not a reason for an endless table. It says whether the session is still alive.
func (w *worker) hasRoom() bool {
	s := w.session
	for !w.parkedSince.IsZero() && time.Since(w.parkedSince) >= parkedCheck {
		most := s.c.cfg.MaxParked
		n, err := s.c.processor.Store().Unfinished(s.ctx, w.partition.topic, w.partition.partition, most+1)
		switch {
		case err != nil:
			w.parkedSince = time.Now() // the next batch will meet the same trouble, and say so
		case n <= most:
			if w.parkedSince = time.Now(); n == 0 {
				w.parkedSince = time.Time{}
			}
		default:
			w.log.Error("partition HELD: too many of its messages are parked; see why their handlers fail",
				"parked", n, "most", most)
			if !sleep(s.ctx, parkedCheck) {
				return false
			}
		}
	}
	return s.ctx.Err() == nil
}
