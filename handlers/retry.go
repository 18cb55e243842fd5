package handlers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

// Retry says how often, and how soon, a message is tried again that a handler failed on. The pauses grow
// exponentially with full jitter: each is random between nothing and its ceiling, which keeps messages that failed
// together from coming back together.
type Retry struct {
	// Base is the first pause's ceiling; it doubles with each attempt. Default 1 s.
	Base time.Duration
	// Cap is the highest ceiling. Default 5 minutes.
	Cap time.Duration
	// MaxAttempts caps a message's attempts: after so many it goes to the dead letters. Default 10.
	MaxAttempts int
	// MaxAge sends a message to the dead letters that still fails so long after its first failure. Default no limit.
	MaxAge time.Duration
}

func (r *Retry) setDefaults() {
	if r.Base <= 0 {
		r.Base = time.Second
	}
	if r.Cap <= 0 {
		r.Cap = 5 * time.Minute
	}
	if r.MaxAttempts <= 0 {
		r.MaxAttempts = 10
	}
}

// validate reports what contradicts itself.
func (r *Retry) validate() error {
	if r.Cap > 0 && r.Base > r.Cap {
		return fmt.Errorf("retry: base %s is more than cap %s", r.Base, r.Cap)
	}
	return nil
}

// pause draws the time until the next attempt, after so many.
func (r *Retry) pause(attempts int) time.Duration { return draw(r.ceiling(attempts)) }

// hold draws the time until the next attempt where none is counted: it grows with the time that the message has
// waited.
func (r *Retry) hold(e *dedup.Entry) time.Duration {
	ceiling := r.ceiling(e.Attempts)
	if !e.ParkedAt.IsZero() {
		ceiling = max(ceiling, min(time.Since(e.ParkedAt), r.Cap))
	}
	return draw(ceiling)
}

func (r *Retry) ceiling(attempts int) time.Duration {
	ceiling := r.Base
	for i := 1; i < attempts; i++ {
		if ceiling > r.Cap/2 {
			return r.Cap
		}
		ceiling *= 2
	}
	return min(ceiling, r.Cap)
}

func draw(ceiling time.Duration) time.Duration { return 1 + rand.N(ceiling) }

// maxAfter caps what a handler can ask for by After.
const maxAfter = time.Hour

// atLeast is a pause, or what the handler asked for where that is longer.
func atLeast(pause time.Duration, err error) time.Duration {
	var after *afterError
	if errors.As(err, &after) {
		return max(pause, min(after.wait, maxAfter))
	}
	return pause
}

// The reasons that a message is parked or dead for, beside dedup's for messages without an ID.
const (
	reasonFailed      = "failed"             // parked: the handler returned an error
	reasonUnavailable = "unavailable"        // parked: the handler said that something it needs is away
	reasonPermanent   = "permanent"          // dead: the handler said so
	reasonUndecodable = "undecodable"        // dead: its value is not what the handler takes
	reasonExhausted   = "attempts_exhausted" // dead: after Retry.MaxAttempts
	reasonTooOld      = "too_old"            // dead: after Retry.MaxAge
	// dead: it ended its Postgres session in each of its attempts by itself, or took the server down
	reasonEndedSession = "ended_session"
	// ReasonKilled is the reason of a message whose handler took the process down again and again.
	ReasonKilled identity.Reason = "killed"
)

// fail decides what becomes of a message that its handler failed on.
func (r *Retry) fail(e *dedup.Entry, err error) {
	e.Error = clip(err)
	if errors.As(err, new(*unavailableError)) {
		e.Reason = reasonUnavailable
		e.Park(atLeast(r.hold(e), err))
		return
	}
	e.Attempts++
	var permanent *permanentError
	switch {
	case errors.As(err, &permanent):
		e.State, e.Reason = dedup.Dead, permanent.reason
	case e.Attempts >= r.MaxAttempts && endedSession(err):
		e.State, e.Reason = dedup.Dead, reasonEndedSession
	case e.Attempts >= r.MaxAttempts:
		e.State, e.Reason = dedup.Dead, reasonExhausted
	case r.MaxAge > 0 && e.Attempts > 1 && !e.ParkedAt.IsZero() && time.Since(e.ParkedAt) > r.MaxAge:
		e.State, e.Reason = dedup.Dead, reasonTooOld
	default:
		e.Reason = reasonFailed
		e.Park(atLeast(r.pause(e.Attempts), err))
	}
}
