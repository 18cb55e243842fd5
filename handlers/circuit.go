package handlers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/holds"
)

const (
	// circuitCalls is how many of a detached handler's last calls are looked at, and circuitLeast how many there must be.
	circuitCalls, circuitLeast = 20, 10
	// circuitWindow is how far back these may lie.
	circuitWindow = 10 * time.Minute
	// circuitPause is the first pause's ceiling. It doubles with each call that fails after a pause.
	circuitPause, circuitMaxPause = 30 * time.Second, 10 * time.Minute
)

// circuit stops calling a dependency that is away. It opens when at least half of the messages in the last calls, and
// more than one, met an outage. After a pause one call tells whether the dependency is back; meanwhile no attempt is
// spent. Messages are counted and not calls, so that one bad message, tried again and again, opens nothing. It is a
// dispatcher's own: not safe for concurrent use, and other processes have theirs.
type circuit struct {
	log   *slog.Logger
	pause time.Duration // the first one's ceiling
	hold  *holds.Place

	state  circuitState
	until  time.Time // while it is open
	pauses int       // in a row
	recent []outcome // oldest first
}

type circuitState int

const (
	closed   circuitState = iota
	open                  // no call is made before until
	halfOpen              // one call is being made
)

type outcome struct {
	message uuid.UUID
	at      time.Time
	failed  bool
}

// allows is how many of n calls can be made now.
func (c *circuit) allows(now time.Time, n int) int {
	switch {
	case c.state == closed:
		return n
	case c.state == open && !now.Before(c.until):
		return min(n, 1)
	}
	return 0
}

// starts is called with each call. It says whether the call is the one that tells.
func (c *circuit) starts() (probe bool) {
	if c.state != open {
		return false
	}
	c.state = halfOpen
	c.log.Debug("calling again, once, to see whether the receiver is back")
	return true
}

// ended is called when a call has. It gives the call's error, marked so that no attempt is counted while the
// dependency is away.
func (c *circuit) ended(now time.Time, call *delivery) error {
	failed := isAway(call.err)
	switch {
	case !call.tried && call.probe:
		c.state = open // it told nothing
	case !call.tried:
	case call.probe && failed:
		c.open(now, call.err)
		return Unavailable(After(call.err, c.until.Sub(now)+time.Second)) // another message has the next turn
	case call.probe:
		c.close()
	case c.state == closed && c.trips(outcome{call.message.ID, now, failed}):
		c.open(now, call.err)
	}
	if call.tried && failed && c.state != closed {
		return Unavailable(call.err)
	}
	return call.err
}

// trips adds an outcome, and says whether that is one too many.
func (c *circuit) trips(o outcome) bool {
	c.recent = append(c.recent, o)
	c.recent = slices.DeleteFunc(c.recent, func(r outcome) bool { return o.at.Sub(r.at) > circuitWindow })
	c.recent = c.recent[max(0, len(c.recent)-circuitCalls):]
	if !o.failed || len(c.recent) < circuitLeast {
		return false
	}
	last := make(map[uuid.UUID]bool, circuitCalls)
	failed := 0
	for _, r := range c.recent {
		last[r.message] = r.failed
	}
	for _, f := range last {
		if f {
			failed++
		}
	}
	return failed > 1 && 2*failed >= len(last)
}

func (c *circuit) open(now time.Time, err error) {
	ceiling := min(c.pause<<min(c.pauses, 10), circuitMaxPause)
	pause := ceiling/2 + rand.N(ceiling/2+1) //nolint:gosec // jitter
	c.state, c.until, c.recent = open, now.Add(pause), nil
	c.pauses++
	c.hold.Wait(holds.Away, errors.New(clip(err)), "next_call_in", pause.Round(time.Millisecond))
}

func (c *circuit) close() {
	c.state, c.pauses = closed, 0
	c.hold.End()
}

// isAway says of a detached handler's error that it may not be the message's fault: no answer, one of 5xx, or what
// the handler calls Unavailable.
func isAway(err error) bool {
	var network net.Error
	var status *StatusError
	return err != nil && (errors.As(err, new(*unavailableError)) || errors.As(err, &status) && status.Code/100 == 5 ||
		errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrAbandoned) || errors.Is(err, ErrHandlerTimeout))
}
