package devstack

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/firstseen/firstseen/dedup/wait"
)

const (
	resendMessages = 5000
	resentFor      = 5 * time.Second // told of
	refuseFor      = 10 * time.Second
	chaosEvery     = 6 * time.Second // where the options say nothing
	patience       = 2 * time.Second // with a run that is asked for a fault
)

// faults are what may be done to a run while it goes on. None of them makes a message take effect twice, or not at all.
// It is safe for concurrent use.
type faults struct {
	stack     *stack
	consumers *consumers
	event     func(format string, args ...any)
	resend    chan resend   // to the producer
	refusals  chan struct{} // to run
	until     atomic.Int64  // when the handler's failing ends, Unix nanoseconds
	chaos     atomic.Bool
	last      atomic.Pointer[resent]
}

// resend asks the producer for its last messages, again: for so many, of which it says how many there were.
type resend struct {
	most int
	sent chan<- int // takes the answer at once
}

// resent is what came of it.
type resent struct {
	messages int
	at       time.Time
}

// newFaults has chaos from the start where the options say how often.
func newFaults(s *stack, c *consumers, event func(string, ...any)) *faults {
	f := &faults{stack: s, consumers: c, event: event, resend: make(chan resend), refusals: make(chan struct{})}
	f.chaos.Store(s.options.CrashEvery > 0)
	return f
}

// Why a fault can't be had.
var (
	errRefusesAlready = errors.New("the handler fails already")
	errNothingIsSent  = errors.New("nothing is sent any more, or the producer waits for the broker")
	errNothingWasSent = errors.New("no message has been sent yet")
)

// sendAgain has the producer send its last messages again, under new offsets.
func (f *faults) sendAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sent := make(chan int, 1)
	select {
	case f.resend <- resend{resendMessages, sent}:
	case <-ctx.Done():
		return errNothingIsSent
	}
	n := <-sent
	if n == 0 {
		return errNothingWasSent
	}
	f.last.Store(&resent{n, time.Now()})
	f.event("%s sent again, under new offsets", many(int64(n), "message is", "messages are"))
	return nil
}

// failHandler has the handler's SQL raise an error for one account, for a while.
func (f *faults) failHandler(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case f.refusals <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errRefusesAlready
	}
}

// toggleChaos starts or pauses the kills that come by themselves.
func (f *faults) toggleChaos() {
	for on := f.chaos.Load(); !f.chaos.CompareAndSwap(on, !on); on = f.chaos.Load() {
	}
}

// state tells the view for how long the handler still fails, and whether there is chaos.
func (f *faults) state() (refused time.Duration, chaos bool) {
	return max(0, time.Until(time.Unix(0, f.until.Load()))), f.chaos.Load()
}

// again is how many messages were sent again, if that was some seconds ago; else 0.
func (f *faults) again() int {
	if last := f.last.Load(); last != nil && time.Since(last.at) < resentFor {
		return last.messages
	}
	return 0
}

// run has the handler fail when that is asked for, until ctx ends.
func (f *faults) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.refusals:
			f.refuse(ctx)
		}
	}
}

func (f *faults) refuse(ctx context.Context) {
	if err := refuse(ctx, f.stack.db); err != nil {
		f.event("%v", err)
		return
	}
	f.until.Store(time.Now().Add(refuseFor).UnixNano())
	f.event("the handler fails for account %d, for %d s", refusedAccount, int(refuseFor.Seconds()))
	wait.Sleep(ctx, refuseFor)
	f.until.Store(0)
	for {
		err := allow(ctx, f.stack.db)
		if err == nil {
			f.event("the handler is well again: what waited for account %d is booked, in its order", refusedAccount)
			return
		}
		f.event("%v", err)
		if !wait.Sleep(ctx, time.Second) {
			return
		}
	}
}

// killOften kills the consumer at random moments, so that each stage of its work gets hit, until ctx ends; while chaos
// is paused it spares it.
func (f *faults) killOften(ctx context.Context) {
	for {
		jitter := 0.5 + rand.Float64() // on average 1
		if !wait.Sleep(ctx, time.Duration(float64(f.every())*jitter)) {
			return
		}
		if f.chaos.Load() {
			f.consumers.kill()
		}
	}
}

// every is the mean time between two kills of chaos.
func (f *faults) every() time.Duration {
	if f.stack.options.CrashEvery > 0 {
		return f.stack.options.CrashEvery
	}
	return chaosEvery
}
