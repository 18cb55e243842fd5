package handlers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// work knows who is at work in a process, and how that went.
type work struct {
	atWork  sync.RWMutex // held, to read, by whoever handles messages
	suspect turn         // had by a suspect, so that others wait for it, but for one that hangs
	ended   atomic.Int64 // transactions that were ended by others than us

	mu      sync.Mutex
	now     int // counts what is noted
	of      map[string]*record
	exclude map[isolate.Lane]bool
	apart   map[isolate.Lane]int // so many of a lane's first messages are handled by themselves
}

// mostLanes caps the lanes that are remembered. One that another process has finished stays; where there are too many,
// all are forgotten: what is known of them is found out again.
const mostLanes = 4096

// remember notes what is known of a lane; the zero value: nothing any more.
func remember[V comparable](of map[isolate.Lane]V, lane isolate.Lane, known V) {
	var nothing V
	if delete(of, lane); known == nothing {
		return
	}
	if len(of) >= mostLanes {
		clear(of)
	}
	of[lane] = known
}

// turn is had by one at a time.
type turn chan struct{}

// take waits for the turn, though not for long. The caller calls end, whether it has got it or not.
func (t turn) take(ctx context.Context, most time.Duration) (end func()) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case t <- struct{}{}:
		return sync.OnceFunc(func() { <-t })
	case <-timer.C:
	case <-ctx.Done():
	}
	return func() {}
}

// record has a handler's last successes and failures. Short stands for its failures for want of something, because it
// is read-only, or by the end of its session.
type record struct {
	passed int       // when its work was last committed, as work.now counts
	at     time.Time // then
	short  [2]note   // the last that were short; of different messages
	began  []note    // those that were short first, each of the messages that it was of; the oldest first

	hold     *holds.Place               // while one of the suspects is tried in vain
	unproven map[isolate.Lane]time.Time // when such a one was tried last
}

// note is a failure.
type note struct {
	of    span
	count int
	at    time.Time
	last  time.Time // when one of its messages failed so again
}

// mostBegan caps the first failures that are remembered of a handler. Where one is forgotten, a later one stands for
// it.
const mostBegan = 64

// shortFor is the time that a message that nobody else of its handler comes beside has to fail before it is the
// message's doing.
const shortFor = time.Hour

// passFor is the time for which the success of others says that there is no shortage.
const passFor = 5 * time.Minute

// span has the bounds of messages that were handled together, from the first to the last; zero: they came from several
// places.
type span struct {
	topic     string
	partition int32
	from, to  int64
}

func spanOf(first, last *dedup.Message) span {
	return span{first.Topic, first.Partition, first.Offset, last.Offset}
}

// first is the place of the first message, as logs have it.
func (s span) first() string { return fmt.Sprintf("%s/%d@%d", s.topic, s.partition, s.from) }

func (s span) has(other span) bool {
	return s.topic == other.topic && s.partition == other.partition && s.from <= other.from && other.to <= s.to
}

func newWork(handlers []*registered, shown *holds.Registry) *work {
	w := &work{suspect: make(turn, 1), exclude: map[isolate.Lane]bool{}, apart: map[isolate.Lane]int{}, of: map[string]*record{}}
	for _, target := range handlers {
		w.of[target.name] = &record{hold: shown.Place(holds.HandlerKind, target.name),
			unproven: map[isolate.Lane]time.Time{}}
	}
	return w
}

// begin is called by whoever handles messages, and end when that is over. While a suspect has to be alone it waits.
func (w *work) begin() (end func()) {
	w.atWork.RLock()
	return w.atWork.RUnlock
}

// beginSuspect is begin for a suspect: it waits for the one before, though not long.
func (w *work) beginSuspect(ctx context.Context) (end func()) {
	next := w.suspect.take(ctx, laneLease)
	w.atWork.RLock()
	return func() {
		w.atWork.RUnlock()
		next()
	}
}

// beginAlone is begin for a suspect that nobody else may be at work beside.
func (w *work) beginAlone() (end func()) {
	w.atWork.Lock()
	return w.atWork.Unlock
}

// handled notes that a handler's work was committed.
func (w *work) handled(target *registered) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now++
	r := w.of[target.name]
	r.passed, r.at = w.now, time.Now()
}

// failed notes that messages failed that were handled together, by which of the handlers is not always known.
func (w *work) failed(of span, err error, targets ...*registered) {
	if failure.Unanswered(err) || errors.Is(err, dedup.ErrNoAnswer) {
		w.ended.Add(1)
	}
	var about *handlerError
	for _, target := range targets {
		if !errors.As(err, &about) || about.Handler == target.name {
			w.noteShort(target, of, err, time.Now())
		}
	}
}

func (w *work) noteShort(target *registered, of span, err error, at time.Time) {
	switch failure.Of(err) {
	case failure.Short, failure.ReadOnly, failure.Ended, failure.Silent:
	default:
		return
	}
	if of == (span{}) { // each of them is tried by itself
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now++
	r, n := w.of[target.name], note{of, w.now, at, at}
	if r.short[0].of == of {
		r.short[0] = n
	} else {
		r.short = [2]note{n, r.short[0]}
	}
	r.began = slices.DeleteFunc(r.began, func(b note) bool { return at.Sub(b.last) > failingFor })
	if i := slices.IndexFunc(r.began, func(b note) bool { return b.of.has(of) }); i >= 0 {
		r.began[i].last = at
	} else {
		r.began = append(r.began, n)
		r.began = r.began[max(0, len(r.began)-mostBegan):]
	}
}

type fate int

const (
	nothingKnown fate = iota
	othersFail        // another was short too, and none had success since
	// others had success since the message was short first, not long ago; or, for long, there were none
	othersPass
)

// others says of a message that was short what became of others of its handler.
func (w *work) others(target *registered, of span, now time.Time) fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.of[target.name]
	for _, n := range r.short {
		if !n.of.has(of) && n.count > r.passed {
			return othersFail
		}
	}
	i := slices.IndexFunc(r.began, func(b note) bool { return b.of.has(of) })
	if i >= 0 && (r.passed > r.began[i].count && now.Sub(r.at) < passFor || now.Sub(r.began[i].at) >= shortFor) {
		return othersPass
	}
	return nothingKnown
}

// overcame forgets that a message failed.
func (w *work) overcame(target *registered, of span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.of[target.name]
	r.began = slices.DeleteFunc(r.began, func(b note) bool { return b.of == of })
}

// unprovenFor is the time for which a suspect that is tried no more here, but in another process perhaps, is held to
// wait.
const unprovenFor = 12 * laneLease

// unproven has a handler's hold say that the first message of a lane was tried in vain.
func (w *work) unproven(target *registered, lane isolate.Lane, at span, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.of[target.name]
	r.unproven[lane] = time.Now()
	r.hold.Wait(holds.Suspected, fmt.Errorf("%s: %w", at.first(), err))
}

// settled ends the hold where that lane was the last one, and none is tried any more.
func (w *work) settled(target *registered, lane isolate.Lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.of[target.name]
	delete(r.unproven, lane)
	maps.DeleteFunc(r.unproven, func(_ isolate.Lane, last time.Time) bool { return time.Since(last) > unprovenFor })
	if len(r.unproven) == 0 {
		r.hold.End()
	}
}

// excludes says whether a lane's first message has to be alone in the process.
func (w *work) excludes(lane isolate.Lane) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.exclude[lane]
}

// setExcluded says so, or no more.
func (w *work) setExcluded(lane isolate.Lane, excluded bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	remember(w.exclude, lane, excluded)
}

// isApart counts the first messages of a lane that are handled by themselves; where that is not known, most.
func (w *work) isApart(lane isolate.Lane, most int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.apart[lane]; ok {
		return known
	}
	return most
}

// setApart notes it, or that none are.
func (w *work) setApart(lane isolate.Lane, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	remember(w.apart, lane, n)
}

// parkedApart notes which entries were parked to be handled by themselves: what joins their lanes later is not. Where
// others were in a lane before, as many of its last are handled with what is behind them; if one of those is looked for,
// the process dies once more.
func (w *work) parkedApart(entries []dedup.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range entries {
		if e := &entries[i]; e.Outcome == dedup.New && e.State == dedup.Parked && e.Alone {
			lane := isolate.Lane{Scope: e.Scope, Lane: e.Lane}
			remember(w.apart, lane, w.apart[lane]+1)
		}
	}
}
