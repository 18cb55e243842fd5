package isolate

import (
	"math"
	"sync"
)

// Pace remembers how far apart the messages lay that a handler failed on lately: that decides what is handed over at
// once, and how often a savepoint pays. It outlives batches, and is safe for concurrent use.
type Pace struct {
	mu    sync.Mutex
	apart int // messages from one failure to the next; 0: none has failed lately
	since int // messages handled since the last failure
}

// forgetAfter messages in a row have to be handled until failures are no longer reckoned with.
const forgetAfter = 1 << 14

// Handled notes messages that were handled.
func (p *Pace) Handled(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since += n
	switch {
	case p.apart > 0 && p.since > forgetAfter:
		p.apart = 0
	case p.apart > 0:
		p.apart = max(p.apart, p.since)
	}
}

// Failed notes a message that failed, behind so many others of its call.
func (p *Pace) Failed(behind int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	distance := min(p.since+behind+1, forgetAfter)
	if p.apart > 0 {
		distance = (p.apart + distance + 1) / 2
	}
	p.apart, p.since = distance, 0
}

// Distance counts the messages from one failure to the next; 0: none has failed lately.
func (p *Pace) Distance() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.apart
}

const (
	// Unlimited: nothing has failed lately, and nothing is paid for failures.
	Unlimited = math.MaxInt
	// leastCall keeps calls from becoming too short to be worth a round trip.
	leastCall = 16
	// MostQueued bounds what a queue sends in vain behind a failure.
	MostQueued = 512
)

// call caps the messages to hand over at once: a little more than lie between failures, as all that comes behind one
// is handed over in vain.
func (p *Pace) call() int {
	apart := p.Distance()
	if apart == 0 {
		return Unlimited
	}
	return max(apart+apart/8, leastCall)
}

// stretch counts the messages to handle between two savepoints. A failure has half of them handled again, and a
// savepoint costs about half of a message: the sum is least at this length.
func (p *Pace) stretch() int {
	apart := p.Distance()
	if apart == 0 {
		return Unlimited
	}
	return int(math.Ceil(math.Sqrt(float64(apart))))
}
