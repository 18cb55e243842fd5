package replay

import (
	"context"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup/wait"
)

// rate spreads messages over time: so many a second, 0 for no limit. It is safe for concurrent use.
type rate struct {
	perSecond int

	mu   sync.Mutex
	next time.Time // when the next message may come
}

// chunk caps a batch at a second's messages.
func (r *rate) chunk(n int) int {
	if r.perSecond <= 0 {
		return n
	}
	return min(n, r.perSecond)
}

// take waits until n messages may come, and says whether ctx is still alive.
func (r *rate) take(ctx context.Context, n int) bool {
	if r.perSecond <= 0 || n == 0 {
		return ctx.Err() == nil
	}
	return wait.Sleep(ctx, r.wait(n, time.Now()))
}

func (r *rate) wait(n int, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next.Before(now) {
		r.next = now
	}
	at := r.next
	r.next = at.Add(time.Duration(float64(n) / float64(r.perSecond) * float64(time.Second)))
	return at.Sub(now)
}
