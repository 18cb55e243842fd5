package fetch

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Partition is one assigned partition's buffer: a fetch loop fills it, its worker empties it.
type Partition struct {
	wire.TopicPartition
	TopicID  uuid.UUID
	settings Settings
	Data     *wait.Bell // for the worker: there is something to take
	End      int64      // where fetching ends; a consumer's goes on for ever

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

// NewPartition is an empty buffer, which is read from nowhere yet.
func NewPartition(tp wire.TopicPartition, topic wire.Topic, settings Settings) *Partition {
	p := &Partition{TopicPartition: tp, TopicID: topic.ID, settings: settings, Data: wait.NewBell(),
		End: math.MaxInt64, leader: -1, leaderEpoch: -1, lastStable: -1, highWatermark: -1}
	p.HeldIn(nil)
	if m, err := topic.Led(tp.Partition); err == nil {
		p.lead(m)
	}
	return p
}

func (p *Partition) lead(m wire.Partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leader, p.leaderEpoch = m.Leader, m.LeaderEpoch
}

// at is the request for the least there is from an offset on, and the broker to ask.
func (p *Partition) at(offset int64) (leader int32, part wire.FetchPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leader, wire.FetchPartition{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition,
		LeaderEpoch: p.leaderEpoch, Offset: offset, MaxBytes: 1}
}

// ReadFrom begins, or begins again, to fetch at an offset. epoch is the leader epoch of the last message before; nil:
// not known.
func (p *Partition) ReadFrom(next int64, epoch *int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.reading = next, true
	p.epochs.Begin(next, epoch)
	if p.loop != nil {
		p.loop.Ring()
	}
}

// StopReading ends the fetches of the partition until ReadFrom.
func (p *Partition) StopReading() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
}

// BackOff keeps the partition out of the next fetches.
func (p *Partition) BackOff(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pausedUntil = time.Now().Add(d)
}

// Add takes in what was fetched, and says whether that was anything new: where a partition moves while it is being
// fetched, both leaders may answer; where it was paused and resumed meanwhile, it may have gone back.
func (p *Partition) Add(f *wire.Fetched) bool {
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
	p.Data.Ring()
	return true
}

// Stalled says whether the last answer brought nothing new, or an error.
func (p *Partition) Stalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dry || time.Now().Before(p.pausedUntil)
}

// Taken is a run of records, and the offset that comes after it.
type Taken struct {
	Records []*wire.Record
	Next    int64
}

// Beyond says whether anything is there past an offset: records, or a gap to move over.
func (p *Partition) Beyond(next int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.records) > 0 || p.reading && p.next > next
}

// Take gives the first records, up to the limits but at least one. Where it empties the buffer, Next lies past the
// gaps and control records that follow. Done gives back what they cost.
func (p *Partition) Take(maxRecords, maxBytes int) Taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := Taken{Next: p.next}
	if len(p.records) > 0 {
		p.front = p.oldestWaiting()
		n := p.fitting(maxRecords, maxBytes)
		t.Records = slices.Clone(p.records[:n]) // else what is left keeps those that are done
		clear(p.records[:n])
		if p.records = p.records[n:]; len(p.records) == 0 {
			p.records = nil
		} else if t.Next = 0; n > 0 { // and not the next record's offset: that may be another epoch's
			t.Next = t.Records[n-1].Offset + 1
		}
	}
	n := 0
	for ; n < len(p.costs) && p.costs[n].Next <= t.Next; n++ {
		p.bytes -= p.costs[n].Bytes
	}
	p.taken = append(p.taken, p.costs[:n]...)
	p.costs = p.costs[n:]
	if p.loop != nil {
		p.loop.Ring()
	}
	return t
}

// fitting counts the first records that are within the limits, at least one where maxBytes is above 0.
func (p *Partition) fitting(maxRecords, maxBytes int) (n int) {
	for size := 0; n < len(p.records) && n < maxRecords; n++ {
		size += p.records[n].Size()
		if size > maxBytes && (n > 0 || maxBytes <= 0) {
			break
		}
	}
	return n
}

// Done says that what was taken is done up to an offset, and returns what it cost.
func (p *Partition) Done(next int64) (bytes int) {
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
func (p *Partition) empty() (bytes int) {
	bytes = p.bytes + p.taken.Total()
	p.bytes, p.records, p.costs, p.taken = 0, nil, nil, nil
	return bytes
}

// Discard empties the buffer, for good, and returns what it cost.
func (p *Partition) Discard() (bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
	return p.empty()
}

// Rest gives up what is fetched and what the worker has taken, until Resume, and returns what it cost.
func (p *Partition) Rest() (bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front, p.resting = p.oldestWaiting(), true
	return p.empty()
}

// Resume begins to fetch again, at an offset, unless a person's decision is waited for.
func (p *Partition) Resume(next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.resting = next, false
	p.epochs.Cut(next)
	if p.loop != nil {
		p.loop.Ring()
	}
}

// EpochAt is the leader epoch of the last message before a position; nil: not known.
func (p *Partition) EpochAt(next int64) *int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epochs.At(next)
}

// lastEpoch is the leader epoch that the next fetch names; nil: none. Call it with mu held.
func (p *Partition) lastEpoch() *int32 {
	if p.unnamed {
		return nil
	}
	return p.epochs.At(p.next)
}

// Read returns how far the partition was fetched.
func (p *Partition) Read() wire.Reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return wire.Reading{Offset: p.next, Epoch: p.lastEpoch()}
}

// NameEpochs says whether fetches may name the epoch that was read last.
func (p *Partition) NameEpochs(named bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unnamed = !named
}

// oldestWaiting is the timestamp of the first message that is there and not processed; zero: none is there. Call it
// with mu held.
func (p *Partition) oldestWaiting() time.Time {
	if p.front.IsZero() && len(p.records) > 0 {
		return time.UnixMilli(p.records[0].Timestamp)
	}
	return p.front
}

// Facts describe a buffer, as of one moment.
type Facts struct {
	Next                      int64     // the offset to fetch next
	LastStable, HighWatermark int64     // -1: not known yet
	Oldest                    time.Time // of the first message that is there and not processed; zero: none is
	OpenTransaction           time.Time // since when one is known to hold the partition back; zero: none does
	Bytes                     int       // of what is fetched and not taken
	Resting                   bool
}

// Facts tell where the buffer stands.
func (p *Partition) Facts() Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := Facts{Next: p.next, LastStable: p.lastStable, HighWatermark: p.highWatermark, Oldest: p.oldestWaiting(),
		Bytes: p.bytes, Resting: p.resting}
	if p.highWatermark > p.lastStable && p.next >= p.lastStable && p.stalledAt == p.lastStable {
		f.OpenTransaction = p.stalledSince
	}
	return f
}
