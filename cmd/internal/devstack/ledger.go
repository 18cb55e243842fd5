package devstack

import (
	"fmt"
	"sync"
)

// ledger is the producer's knowledge: every message that the broker confirmed, its place, and so what the accounts
// must hold once the messages up to any offset have been booked once each. It is safe for concurrent use.
type ledger struct {
	mu         sync.Mutex
	total      tally
	produced   int64
	partitions map[int32]*page
	err        error // the first thing that makes the ledger worthless
}

// tally sums a stretch of messages up.
type tally struct {
	Unique  int64 // different movements
	Balance int64 // their amounts' sum
}

func (t tally) plus(o tally) tally { return tally{t.Unique + o.Unique, t.Balance + o.Balance} }

// page is one partition's part. sums[i] is the tally of all messages below offset first+i.
type page struct {
	first int64
	sums  []tally
}

func newLedger() *ledger { return &ledger{partitions: map[int32]*page{}} }

// confirm notes a message that the broker has at that place. A copy of an earlier one has a tally of nothing.
func (l *ledger) confirm(partition int32, offset int64, t tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.partitions[partition]
	if p == nil {
		p = &page{sums: []tally{{}}}
		l.partitions[partition] = p
	}
	if end := p.first + int64(len(p.sums)) - 1; offset != end {
		l.fail(fmt.Errorf("partition %d: message confirmed at offset %d, expected at %d: "+
			"somebody else writes to the topic", partition, offset, end))
		return
	}
	p.sums = append(p.sums, p.sums[len(p.sums)-1].plus(t))
	l.total = l.total.plus(t)
	l.produced++
}

// lost notes that the fate of a message is unknown.
func (l *ledger) lost(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail(fmt.Errorf("produce: %w", err))
}

func (l *ledger) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// totals are over everything that was confirmed.
func (l *ledger) totals() (produced int64, t tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.produced, l.total
}

// failure is why the ledger says nothing any more; nil while all is well.
func (l *ledger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// at is the tally of the messages below the given offsets, and false while one of them is not confirmed yet: a
// consumer can be faster than the answer to the producer. Offsets never fall from one call to the next; what
// lies below is forgotten.
func (l *ledger) at(reached map[int32]int64) (sum tally, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for partition, offset := range reached {
		p := l.partitions[partition]
		if p == nil || offset-p.first >= int64(len(p.sums)) {
			return tally{}, false
		}
		sum = sum.plus(p.sums[offset-p.first])
	}
	for partition, offset := range reached {
		p := l.partitions[partition]
		p.sums, p.first = p.sums[offset-p.first:], offset
	}
	return sum, true
}
