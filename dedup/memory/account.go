// Package memory keeps one account of what a process holds of messages: what is fetched ahead and decompressed, what
// is being processed, and what is loaded of parked messages. Whoever wants memory takes it here before allocating, and
// gives it back when it lets go of it. The account counts; [Bytes] allocates.
package memory

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Account is a limit in bytes, and what is taken of it. It is safe for concurrent use.
//
// What is taken never exceeds the limit by more than one large item, of more than half of the limit: a message, or a
// batch of messages as brokers send it, can't be divided and has to get through.
type Account struct {
	limit int

	mu     sync.Mutex
	used   int
	over   int // what the one large item may exceed the limit by; 0 again once all is within it
	queue  []*waiter
	waited time.Duration // by those that have left the queue

	watches map[*func()]bool
}

type waiter struct {
	n, item int
	since   time.Time
	granted chan struct{}
}

// New makes an account with a limit in bytes.
func New(limit int) *Account { return &Account{limit: limit} }

// Limit is the limit in bytes.
func (a *Account) Limit() int { return a.limit }

// Used counts the bytes that are taken.
func (a *Account) Used() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// Waited adds up the time that all calls of Take have waited.
func (a *Account) Waited() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	total := a.waited
	for _, w := range a.queue {
		total += time.Since(w.since)
	}
	return total
}

// Watch has f called whenever memory is given back, until stop is called. f must not wait, nor call the account.
func (a *Account) Watch(f func()) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watches == nil {
		a.watches = map[*func()]bool{}
	}
	a.watches[&f] = true
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watches, &f)
	}
}

// Short says that somebody waits: who could do without what it has should give it back.
func (a *Account) Short() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue) > 0
}

// Try takes n bytes where they are free and nobody waits, and says whether it has.
func (a *Account) Try(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) > 0 || a.used+n > a.limit+a.over {
		return false
	}
	a.used += n
	return true
}

// Take takes n bytes, and waits for them where they are not free: whoever came first gets them first, but nobody waits
// behind a large item that waits for another large one. Item is the part of n that can't be divided; where that is
// more than half of the limit it may exceed the limit. The error is ctx's, and then nothing is taken.
func (a *Account) Take(ctx context.Context, n, item int) error {
	a.mu.Lock()
	if n > a.limit {
		item = max(item, n-a.limit/2)
	}
	w := &waiter{n: n, item: item, since: time.Now(), granted: make(chan struct{})}
	a.queue = append(a.queue, w)
	a.grant()
	a.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-w.granted: // in the same moment
		a.used -= n
	default:
		a.queue = slices.DeleteFunc(a.queue, func(other *waiter) bool { return other == w })
		a.waited += time.Since(w.since)
	}
	a.grant()
	return context.Cause(ctx)
}

// Add counts n bytes that are in memory already, whatever the limit; fewer where n is negative.
func (a *Account) Add(n int) { a.Give(-n) }

// Give gives n bytes back.
func (a *Account) Give(n int) {
	if n == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
	a.grant()
	for f := range a.watches {
		(*f)()
	}
}

// grant gives those that wait what they want, as far as it goes.
func (a *Account) grant() {
	if a.used <= a.limit {
		a.over = 0
	}
	blocked := false // who comes later waits too
	a.queue = slices.DeleteFunc(a.queue, func(w *waiter) bool {
		if blocked || !a.take(w.n, w.item) {
			blocked = blocked || a.over == 0 || w.item <= a.limit/2
			return false
		}
		a.waited += time.Since(w.since)
		close(w.granted)
		return true
	})
}

// take takes n bytes where they are free, or where it is the one large item's turn.
func (a *Account) take(n, item int) bool {
	beside := min(n-item, a.limit/2)
	switch {
	case a.used+n <= a.limit+a.over:
	case a.over == 0 && item > a.limit/2 && a.used+beside <= a.limit:
		a.over = n - beside
	default:
		return false
	}
	a.used += n
	return true
}
