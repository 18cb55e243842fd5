package httpjson

import (
	"sync"
	"time"
)

// Bucket lets through a number of requests a second, and as many at once after a pause. The zero Bucket is full.
type Bucket struct {
	mu    sync.Mutex
	spent float64 // requests that were let through and are not made up for by time
	at    time.Time
}

// Take lets one request through, or says how long to wait.
func (b *Bucket) Take(rate int, now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	perSecond := float64(max(rate, 1))
	if passed := now.Sub(b.at); b.at.IsZero() ||
		passed > 0 { // two requests may come here in another order than they looked at the clock
		b.spent, b.at = max(0, b.spent-perSecond*passed.Seconds()), now
	}
	if b.spent+1 > perSecond {
		return time.Duration((b.spent + 1 - perSecond) / perSecond * float64(time.Second)), false
	}
	b.spent++
	return 0, true
}
