package consumer

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
)

// partition is one assigned partition's buffer: a fetch loop fills it, its worker empties it.
type partition struct {
	wire.TopicPartition
	topicID  uuid.UUID
	settings settings
	data     *wait.Bell // for the worker: there is something to take
	end      int64      // where fetching ends; a consumer's goes on for ever

	waits   *holds.Place // of the worker, before it tries again
	stopped *holds.Place // of the fetching
	openTx  *holds.Place // of a producer's open transaction

	mu          sync.Mutex
	leader      int32
	leaderEpoch int32
	reading     bool           // the worker has said where to start, and no decision is waited for
	loop        *wait.Bell     // of the fetch loop that reads this partition
	pausedUntil time.Time      // after an error
	next        int64          // the offset to fetch next
	epochs      wire.Epochs    // up to there
	unnamed     bool           // fetches name no epoch: the leader does not know it
	records     []*wire.Record // fetched and not taken
	costs       wire.Costs     // of keeping them
	bytes       int            // all of costs
	taken       wire.Costs     // of what the worker has taken and is not done with
	served      time.Time      // when a fetch brought something last
	dry         bool           // the last answer brought nothing new
	resting     bool           // its worker waits: nothing is fetched, nor kept
	front       time.Time      // of the first message that is not processed; zero: none is known

	heard                     time.Time // when a broker last told of the two
	lastStable, highWatermark int64     // -1: not known yet
	stalledAt                 int64     // the last stable offset when an open transaction was first seen
	stalledSince              time.Time // zero: none seen
}

func newPartition(tp wire.TopicPartition, topic wire.Topic, settings settings) *partition {
	p := &partition{TopicPartition: tp, topicID: topic.ID, settings: settings, data: wait.NewBell(), end: math.MaxInt64,
		leader: -1, leaderEpoch: -1, lastStable: -1, highWatermark: -1}
	p.heldIn(nil)
	if m, err := topic.Led(tp.Partition); err == nil {
		p.lead(m)
	}
	return p
}

func (p *partition) lead(m wire.Partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leader, p.leaderEpoch = m.Leader, m.LeaderEpoch
}

// at is the request for the least there is from an offset on, and the broker to ask.
func (p *partition) at(offset int64) (leader int32, part wire.FetchPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leader, wire.FetchPartition{Topic: p.Topic, TopicID: p.topicID, Partition: p.Partition,
		LeaderEpoch: p.leaderEpoch, Offset: offset, MaxBytes: 1}
}

// readFrom begins, or begins again, to fetch at an offset. epoch is the leader epoch of the last message before; nil: not
// known.
func (p *partition) readFrom(next int64, epoch *int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.reading = next, true
	p.epochs.Begin(next, epoch)
	if p.loop != nil {
		p.loop.Ring()
	}
}

// stopReading has no more fetched until readFrom.
func (p *partition) stopReading() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
}

// backOff keeps the partition out of the next fetches.
func (p *partition) backOff(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pausedUntil = time.Now().Add(d)
}

// add takes in what was fetched, and says whether that was anything new: where a partition moves while it is being
// fetched, both leaders may answer; where it was paused and resumed meanwhile, it may have gone back.
func (p *partition) add(f *wire.Fetched) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.LastStable >= 0 { // a broker that throttles tells nothing
		p.lastStable, p.highWatermark, p.heard = f.LastStable, f.HighWatermark, time.Now()
	}
	if p.dry = f.Next <= p.next || f.From > p.next || p.resting; p.dry {
		return false
	}
	p.served = time.Now()
	fresh := f.Records
	for len(fresh) > 0 && fresh[0].Offset < p.next {
		fresh = fresh[1:]
	}
	p.records = append(p.records, fresh...)
	p.epochs.Add(f.Epochs)
	p.costs = append(p.costs, f.Costs...)
	p.bytes += f.Bytes()
	p.next = f.Next
	p.data.Ring()
	return true
}

// stalled says whether the last answer brought nothing new, or an error.
func (p *partition) stalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dry || time.Now().Before(p.pausedUntil)
}

// taken is a run of records, and the offset that comes after it.
type taken struct {
	records []*wire.Record
	next    int64
}

// beyond says whether anything is there past an offset: records, or a gap to move over.
func (p *partition) beyond(next int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.records) > 0 || p.reading && p.next > next
}

// take gives the first records, up to the limits but at least one. Where it empties the buffer, next lies past
// the gaps and control records that follow. What they cost is given back by done.
func (p *partition) take(maxRecords, maxBytes int) taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := taken{next: p.next}
	if len(p.records) > 0 {
		p.front = p.oldestWaiting()
		n := p.fitting(maxRecords, maxBytes)
		t.records = slices.Clone(p.records[:n]) // else what is left keeps those that are done
		clear(p.records[:n])
		if p.records = p.records[n:]; len(p.records) == 0 {
			p.records = nil
		} else if t.next = 0; n > 0 { // and not the next record's offset: that may be another epoch's
			t.next = t.records[n-1].Offset + 1
		}
	}
	n := 0
	for ; n < len(p.costs) && p.costs[n].Next <= t.next; n++ {
		p.bytes -= p.costs[n].Bytes
	}
	p.taken = append(p.taken, p.costs[:n]...)
	p.costs = p.costs[n:]
	if p.loop != nil {
		p.loop.Ring()
	}
	return t
}

// fitting is how many of the first records are within the limits.
func (p *partition) fitting(maxRecords, maxBytes int) (n int) {
	for size := 0; n < len(p.records) && n < maxRecords; n++ {
		size += p.records[n].Size()
		if size > maxBytes && (n > 0 || maxBytes <= 0) {
			break
		}
	}
	return n
}

// done says that what was taken is done up to an offset, and returns what it cost.
func (p *partition) done(next int64) (bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for ; n < len(p.taken) && p.taken[n].Next <= next; n++ {
		bytes += p.taken[n].Bytes
	}
	p.taken = p.taken[n:]
	return bytes
}

// empty gives up all that is fetched and not done, and returns what it cost.
func (p *partition) empty() (bytes int) {
	bytes = p.bytes + p.taken.Total()
	p.bytes, p.records, p.costs, p.taken = 0, nil, nil, nil
	return bytes
}

// discard empties the buffer, for good, and returns what it cost.
func (p *partition) discard() (bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
	return p.empty()
}

// rest gives up what is fetched and what the worker has taken, until resume, and returns what it cost.
func (p *partition) rest() (bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front, p.resting = p.oldestWaiting(), true
	return p.empty()
}

// resume begins to fetch again, at an offset, unless a person's decision is waited for.
func (p *partition) resume(next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.resting = next, false
	p.epochs.Cut(next)
	if p.loop != nil {
		p.loop.Ring()
	}
}

// epochAt is the leader epoch of the last message before a position; nil: not known.
func (p *partition) epochAt(next int64) *int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epochs.At(next)
}

// lastEpoch is what the next fetch names; nil: nothing. Call it with mu held.
func (p *partition) lastEpoch() *int32 {
	if p.unnamed {
		return nil
	}
	return p.epochs.At(p.next)
}

// read is how far the partition was fetched.
func (p *partition) read() wire.Reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return wire.Reading{Offset: p.next, Epoch: p.lastEpoch()}
}

// nameEpochs says whether fetches may name the epoch that was read last.
func (p *partition) nameEpochs(named bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unnamed = !named
}

// oldestWaiting is the timestamp of the first message that is there and not processed; zero: none is there. Call it with
// mu held.
func (p *partition) oldestWaiting() time.Time {
	if p.front.IsZero() && len(p.records) > 0 {
		return time.UnixMilli(p.records[0].Timestamp)
	}
	return p.front
}

// partitionFacts are where a buffer stands, as of one moment.
type partitionFacts struct {
	next                      int64     // the offset to fetch next
	lastStable, highWatermark int64     // -1: not known yet
	oldest                    time.Time // of the first message that is there and not processed; zero: none is
	openTransaction           time.Time // since when one is known to hold the partition back; zero: none does
	bytes                     int       // of what is fetched and not taken
	resting                   bool
}

func (p *partition) facts() partitionFacts {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := partitionFacts{next: p.next, lastStable: p.lastStable, highWatermark: p.highWatermark, oldest: p.oldestWaiting(),
		bytes: p.bytes, resting: p.resting}
	if p.highWatermark > p.lastStable && p.next >= p.lastStable && p.stalledAt == p.lastStable {
		f.openTransaction = p.stalledSince
	}
	return f
}
