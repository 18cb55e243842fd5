package consumer

import (
	"context"
	"errors"
	"sync"
	"time"
)

// answers remembers when a broker, whichever, last answered.
type answers struct {
	mu     sync.Mutex
	last   time.Time
	silent bool // the requests since then have failed
}

// note takes in how a request ended. One that was called off says nothing.
func (a *answers) note(ctx context.Context, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.last, a.silent = time.Now(), false
	case !errors.Is(ctx.Err(), context.Canceled):
		a.silent = true
	}
}

// silentSince is when a broker last answered, where the requests since have failed; zero: they have not.
func (w *wire) silentSince() time.Time {
	w.answers.mu.Lock()
	defer w.answers.mu.Unlock()
	if !w.answers.silent {
		return time.Time{}
	}
	return w.answers.last
}
