package wire

import (
	"context"
	"errors"
	"sync"
	"time"
)

// reachability remembers when a broker, whichever, last answered.
type reachability struct {
	mu     sync.Mutex
	last   time.Time
	silent bool // the requests since then have failed
}

// note takes in how a request ended. One that was called off says nothing.
func (r *reachability) note(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.last, r.silent = time.Now(), false
	case !errors.Is(ctx.Err(), context.Canceled):
		r.silent = true
	}
}

// SilentSince is when a broker last answered, where the requests since have failed; zero: they have not.
func (w *Client) SilentSince() time.Time {
	w.reached.mu.Lock()
	defer w.reached.mu.Unlock()
	if !w.reached.silent {
		return time.Time{}
	}
	return w.reached.last
}
