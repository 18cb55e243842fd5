package fetch

import (
	"fmt"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
)

// Listen asks how far the partitions go that no fetch has told of for a while, as they are held, paused, or have no
// room: their lag grows all the same.
func (f *Fetcher) Listen() {
	var unheard []wire.TopicPartition
	for tp, p := range f.Partitions {
		if p.isUnheard(f.Config.Interval) {
			unheard = append(unheard, tp)
		}
	}
	if len(unheard) == 0 {
		return
	}
	ends, err := f.Wire.ListOffsets(f.Ctx, unheard, wire.LatestOffset)
	if err != nil && f.Ctx.Err() == nil {
		f.Log.Debug("ends of partitions that are not fetched not looked up", "error", err)
	}
	for tp, end := range ends {
		f.Partitions[tp].heardOf(end)
	}
}

// isUnheard says whether no answer has told of the partition's end for so long.
func (p *Partition) isUnheard(long time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.heard) >= long
}

// heardOf takes in the last stable offset.
func (p *Partition) heardOf(lastStable int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard, p.lastStable, p.highWatermark = time.Now(), lastStable, max(lastStable, p.highWatermark)
}

// openTransactionAfter is the age of a transaction that holds a partition back from which it is reported. Kafka itself
// aborts one after transaction.timeout.ms, which is a minute by default in its Java producer.
const openTransactionAfter = time.Minute

// LookForOpenTransaction begins or ends the hold of a partition whose records are there but held back by a producer's
// open transaction: that is not lag, and no consumer can do anything about it.
func (p *Partition) LookForOpenTransaction() {
	switch since, at, behind := p.openTransaction(time.Now()); {
	case since.IsZero():
		p.openTx.End()
	case time.Since(since) >= openTransactionAfter:
		p.openTx.WaitSince(since, holds.OpenTx,
			fmt.Errorf("a transaction is open at offset %d, and %d offsets lie behind", at, behind))
	}
}

// openTransaction returns the time since which one holds the partition back, its offset, and the number of offsets
// behind it; zero: none does.
func (p *Partition) openTransaction(now time.Time) (since time.Time, at, behind int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	behind = p.highWatermark - p.lastStable
	switch {
	case behind <= 0 || p.next < p.lastStable:
		p.stalledSince = time.Time{}
	case p.stalledSince.IsZero() || p.stalledAt != p.lastStable:
		p.stalledAt, p.stalledSince = p.lastStable, now
	}
	return p.stalledSince, p.lastStable, behind
}
