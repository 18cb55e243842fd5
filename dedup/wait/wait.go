// Package wait has the pauses of whoever asks brokers and Postgres again. The end of a context ends each of them.
package wait

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Sleep waits, and says whether ctx is still alive.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Backoff are the growing pauses between attempts at the same thing.
type Backoff struct{ policy *backoff.ExponentialBackOff }

// NewBackoff starts at a tenth of a second and grows to 5 seconds: short enough to be back soon after an outage,
// long enough not to prolong it.
func NewBackoff() Backoff {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.MaxInterval = 100*time.Millisecond, 5*time.Second
	return Backoff{policy}
}

// Next is the next pause.
func (b Backoff) Next() time.Duration { return b.policy.NextBackOff() }

// Wait pauses; the end of ctx ends it.
func (b Backoff) Wait(ctx context.Context) { Sleep(ctx, b.Next()) }

// Slots bounds how much is done at once, by its capacity.
type Slots chan struct{}

// Take waits for a slot, and says whether it got one before ctx ended.
func (s Slots) Take(ctx context.Context) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Try takes a slot where one is free, and says whether it has.
func (s Slots) Try() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// Give gives a slot back.
func (s Slots) Give() { <-s }

// Bell is a bell for one goroutine; ringing it twice before it is heard is ringing it once.
type Bell struct{ C chan struct{} }

// NewBell is a bell that was not rung.
func NewBell() *Bell { return &Bell{make(chan struct{}, 1)} }

// Ring rings it.
func (b *Bell) Ring() {
	select {
	case b.C <- struct{}{}:
	default:
	}
}
