package handlers

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

const (
	// Of a detached handler's last calls circuitCalls are looked at, where there are circuitLeast.
	circuitCalls, circuitLeast = 20, 10
	// circuitWindow bounds how far back these lie.
	circuitWindow = 10 * time.Minute
	// outageAfter failures in a row are an outage.
	outageAfter = 3
	// The first pause's ceiling, and the highest. It doubles with each call that fails after a pause.
	circuitPause, circuitMaxPause   = time.Second, 30 * time.Second
	detachedPause, detachedMaxPause = 30 * time.Second, 10 * time.Minute
	// failingMost caps the failing messages that are remembered, and failingFor the time after their last try.
	failingMost, failingFor = 4096, 2 * maxAfter
)

// circuit tells, in this process, an outage of what a handler needs from a message that it can't handle. It is safe
// for concurrent use.
//
// Many failures may be either's: a reset connection, a table that is missing. Such a one is counted as the message's
// once more other messages have passed, since it was last counted, than are failing. So while nothing passes nothing
// is counted, and one bad message runs out of attempts while its siblings pass.
//
// It opens when several different messages fail so in a row, and for a detached handler also when most of the last
// calls have failed in whatever way. While it is open no message is handed over, but one after each pause.
type circuit struct {
	hold        *holds.Place // while there is an outage
	log         *slog.Logger
	pause, most time.Duration // the first one's ceiling, and the highest

	mu     sync.Mutex
	state  circuitState
	until  time.Time // while it is open
	pauses int       // in a row
	recent []outcome // of a detached handler's calls, oldest first

	passed  int                         // messages, since the start
	failing map[isolate.Message]failing // messages that failed when they were last tried
	row     []isolate.Message           // of them, the different ones since a message passed; outageAfter at most
	inRow   int                         // failures since then
}

type circuitState int

const (
	closed   circuitState = iota
	open                  // nothing is handed over before until
	halfOpen              // one message is
)

type outcome struct {
	message isolate.Message
	at      time.Time
	failed  bool
}

type failing struct {
	passed int // messages when a failure was last counted
	at     time.Time
}

func newCircuit(target *registered, log *slog.Logger, shown *holds.Registry) *circuit {
	c := &circuit{hold: shown.Place(holds.HandlerKind, target.name), log: log.With("handler", target.name),
		pause: circuitPause, most: circuitMaxPause}
	if target.detached != nil {
		c.pause, c.most = detachedPause, detachedMaxPause
	}
	return c
}

// allows caps n messages at those that can be handed over now.
func (c *circuit) allows(now time.Time, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == closed:
		return n
	case c.state == open && !now.Before(c.until):
		return min(n, 1)
	}
	return 0
}

// stops says whether messages that come are to wait, and why.
func (c *circuit) stops() (why string, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hold.Hold(); h != nil {
		why = h.Reason
	}
	return why, c.state != closed
}

// starts is called before messages are handed over. It says whether this is the probe after a pause.
func (c *circuit) starts() (probe bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != open {
		return false
	}
	c.state = halfOpen
	c.log.Debug("calling again, once, to see whether it goes on")
	return true
}

// probes says whether one message at a time is tried, to see whether the outage is over.
func (c *circuit) probes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == halfOpen
}

// untold is called at the end of a probe, in case it found nothing out.
func (c *circuit) untold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == halfOpen {
		c.state = open
	}
}

// counts says whether a failure that may be an outage's is an attempt of the message.
func (c *circuit) counts(m isolate.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempt(m)
}

func (c *circuit) attempt(m isolate.Message) bool {
	f, ok := c.failing[m]
	return ok && c.passed-f.passed >= len(c.failing)
}

// opensWith says whether the circuit opens when the other messages have failed too, each counted once.
func (c *circuit) opensWith(others []isolate.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(others)
	for _, m := range c.row {
		if !slices.Contains(others, m) {
			n++
		}
	}
	return n >= outageAfter
}

// committed notes the outcomes of a transaction's entries, in their order. away has the entries that failed as in an
// outage, with their errors.
func (c *circuit) committed(now time.Time, entries []dedup.Entry, handled int, away map[isolate.Message]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(away)+len(c.failing)+c.inRow == 0 && c.state == closed {
		c.passed += handled
		return
	}
	var last error
	for i := range entries {
		e := &entries[i]
		err := away[isolate.Of(e)]
		switch {
		case e.Outcome != dedup.New:
		case err != nil:
			c.fail(now, isolate.Of(e), err)
			last = err
		case e.State == dedup.Processed:
			c.pass(isolate.Of(e))
		}
	}
	switch {
	case c.state == halfOpen && handled > 0:
		c.close()
	case last != nil && (c.state == halfOpen || c.state == closed && len(c.row) >= outageAfter):
		c.open(now, last)
	}
}

// ended notes the end of a detached handler's call. It returns the call's error, marked so that no attempt is counted
// where it is an outage's.
func (c *circuit) ended(now time.Time, call *delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !call.tried {
		if call.probe {
			c.state = open // it told nothing
		}
		return call.err
	}
	m, err := isolate.Message{Scope: call.claim.Scope, ID: call.message.ID}, call.err
	if err == nil {
		c.pass(m)
	} else if isAway(err) {
		if !c.attempt(m) {
			err = Unavailable(err)
		}
		c.fail(now, m, err)
	}
	failed := isFault(call.err)
	switch {
	case call.probe && failed:
		c.open(now, call.err)
		return Unavailable(After(call.err, c.until.Sub(now)+time.Second)) // another message has the next turn
	case call.probe:
		c.close()
	case c.state == closed && (c.trips(outcome{m, now, failed}) || len(c.row) >= outageAfter):
		c.open(now, call.err)
	}
	if failed && c.state != closed {
		return Unavailable(call.err)
	}
	return err
}

// pass notes a message that was handled.
func (c *circuit) pass(m isolate.Message) {
	c.passed++
	delete(c.failing, m)
	c.row, c.inRow = nil, 0
	if c.state == closed {
		c.hold.End()
	}
}

// fail notes a message that failed as in an outage. Where that is no attempt, err is marked as Unavailable.
func (c *circuit) fail(now time.Time, m isolate.Message, err error) {
	for other, f := range c.failing {
		if now.Sub(f.at) > failingFor {
			delete(c.failing, other)
		}
	}
	f, known := c.failing[m]
	if f.at = now; !known || !errors.As(err, new(*unavailableError)) {
		f.passed = c.passed
	}
	if c.failing == nil {
		c.failing = map[isolate.Message]failing{}
	}
	if known || len(c.failing) < failingMost {
		c.failing[m] = f
	}
	if len(c.row) < outageAfter && !slices.Contains(c.row, m) {
		c.row = append(c.row, m)
	}
	if c.inRow++; c.inRow >= outageAfter {
		c.wait(err)
	}
}

// trips adds an outcome of a detached handler's call, and says whether that is one too many. Messages are counted and
// not calls, so that one bad message, tried again and again, opens nothing.
func (c *circuit) trips(o outcome) bool {
	c.recent = append(c.recent, o)
	c.recent = slices.DeleteFunc(c.recent, func(r outcome) bool { return o.at.Sub(r.at) > circuitWindow })
	c.recent = c.recent[max(0, len(c.recent)-circuitCalls):]
	if !o.failed || len(c.recent) < circuitLeast {
		return false
	}
	last := make(map[isolate.Message]bool, circuitCalls)
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
	ceiling := min(c.pause<<min(c.pauses, 10), c.most)
	pause := ceiling/2 + rand.N(ceiling/2+1) //nolint:gosec // jitter
	c.state, c.until, c.recent = open, now.Add(pause), nil
	c.pauses++
	c.wait(err, "next_call_in", pause.Round(time.Millisecond))
}

func (c *circuit) close() {
	c.state, c.pauses = closed, 0
	c.hold.End()
}

func (c *circuit) wait(err error, attrs ...any) {
	code := holds.Away
	if failure.Of(err) == failure.Missing {
		code = holds.Deployment
	}
	c.hold.Wait(code, errors.New(clip(err)), attrs...)
}

// isAway says whether a detached handler's error may be an outage's and not the message's: no answer, a gateway that
// got none, or an error that Webhook has marked so.
func isAway(err error) bool {
	switch failure.Of(err) {
	case failure.Missing, failure.ReadOnly, failure.Short, failure.Ended, failure.Silent, failure.Away:
		return true
	}
	return errors.As(err, new(*isolate.AwayError)) || errors.Is(err, ErrAbandoned) || errors.Is(err, ErrHandlerTimeout)
}

// isFault says whether a detached handler's error counts towards an outage: too many of them are one, though a single
// one may be the message's.
func isFault(err error) bool {
	var status *StatusError
	return isAway(err) || errors.As(err, new(*unavailableError)) || errors.As(err, &status) && status.Code/100 == 5
}
