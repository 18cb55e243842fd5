package dedup

import (
	"context"
	"time"
)

// ParkedCheck is the time between two counts of a partition's parked messages.
const ParkedCheck = 2 * time.Second

// ParkedCount counts a partition's parked messages, now and then while there are any. That there are too many of them
// holds it: a handler that fails on everything is an outage, not a reason for an endless table.
type ParkedCount struct {
	Store     *Store
	Topic     string
	Partition int32
	Most      int // that may be
	// N counts them, as of the last count, and what was added since. Where it is not known begin with 1: they are
	// counted first.
	N int

	counted time.Time
}

// Add takes in that more were parked.
func (p *ParkedCount) Add(n int) {
	if p.N == 0 {
		p.counted = time.Now()
	}
	p.N += n
}

// Full says that there are more than may be.
func (p *ParkedCount) Full(ctx context.Context) bool {
	if p.N == 0 || p.N <= p.Most && time.Since(p.counted) < ParkedCheck {
		return false
	}
	n, err := p.Store.Unfinished(ctx, p.Topic, p.Partition, p.Most+1)
	p.N, p.counted = n, time.Now()
	if err != nil {
		p.N = 1 // or not: the next batch will meet the same trouble, and say so
	}
	return err == nil && n > p.Most
}
