package consumer

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// sleep waits, and says whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// retries are the growing pauses between attempts at the same thing.
type retries struct{ policy *backoff.ExponentialBackOff }

// newBackoff starts at a tenth of a second and grows to 5 seconds: short enough to be back soon after an outage,
// long enough not to prolong it.
func newBackoff() retries {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 100*time.Millisecond, 5*time.Second
	return retries{b}
}

func (r retries) next() time.Duration { return r.policy.NextBackOff() }

// wait pauses; the end of ctx ends it.
func (r retries) wait(ctx context.Context) { sleep(ctx, r.next()) }

// slots bounds how much is done at once, by its capacity.
type slots chan struct{}

// take waits for a slot, and says whether it got one before ctx ended.
func (s slots) take(ctx context.Context) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s slots) give() { <-s }

// wake is a bell for one goroutine; ringing it twice before it is heard is ringing it once.
type wake struct{ c chan struct{} }

func newWake() *wake { return &wake{make(chan struct{}, 1)} }

func (w *wake) up() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}
