// Package fetch keeps the buffers of partitions filled, within the memory that there is. Records come in from the
// leaders, by requests of package wire that are always in flight; a worker or a pager takes them out, partition by
// partition, and says when it is done with them. What to do where a partition can't be read on is its owner's to
// decide.
//
// In reading order:
//
//	fetch.go      a set of partitions, and what their owner has to decide
//	loop.go       one request in flight: what is asked for, and where the answer goes
//	partition.go  one partition's buffer: fetched, taken, done; given up while it rests
//	message.go    the message that a record becomes
//	holds.go      why a partition waits
//	ends.go       how far a partition goes, and whether an open transaction holds it back
//	telemetry.go  what is measured
package fetch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Fetcher is a set of partitions whose buffers are kept filled: those of a consumer's session, or of a Reader's pass.
type Fetcher struct {
	Config    Config
	Wire      *wire.Client
	Memory    *memory.Account
	Holds     *holds.Registry
	Log       *slog.Logger
	Telemetry *Telemetry
	Decider   Decider

	Ctx        context.Context                    // ends the loops
	Partitions map[wire.TopicPartition]*Partition // none is added once a loop runs

	loops loops
}

// Config says how to fetch.
type Config struct {
	Wait        time.Duration // how long a broker waits for new records
	Bytes       int           // of an answer, compressed
	BufferBytes int           // of all that is held
	Interval    time.Duration // between two looks at the cluster
}

// Decider knows what becomes of partitions that can't be fetched as they should.
type Decider interface {
	Refresh()                // brings the leaders up to date
	OutOfRange(p *Partition) // nothing is at the partition's offset
	Undecodable(p *Partition, offset int64, err error)
	Diverged(p *Partition, err error) // the log is not the one that was read
}

// StartLoops begins a loop for each leader that has none yet. A loop without partitions waits for some.
func (f *Fetcher) StartLoops() {
	l := &f.loops
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		l.running = map[shard]bool{}
	}
	for _, p := range f.Partitions {
		p.mu.Lock()
		leader := p.leader
		p.mu.Unlock()
		of := shard{leader, p.Partition % fetchesPerBroker}
		if leader >= 0 && !l.running[of] {
			l.running[of] = true
			loop := &loop{Fetcher: f, shard: of, wake: wait.NewBell(), room: wire.NewRoom(f.Memory)}
			l.goroutines.Go(loop.run)
		}
	}
}

// Follow has the partitions read from their leaders as they are now.
func (f *Fetcher) Follow(found map[string]wire.Topic) {
	for tp, p := range f.Partitions {
		if m, err := found[tp.Topic].Led(tp.Partition); err == nil {
			p.lead(m)
		}
	}
	f.StartLoops()
}

// Peek asks for the least there is of a partition from an offset on, for it alone: the answer for many may have no
// room for it. It does not wait long for memory, which may be the caller's own to give back.
func (f *Fetcher) Peek(p *Partition, offset int64) (found wire.Fetched, err error) {
	leader, part := p.at(offset)
	r := wire.NewRoom(f.Memory)
	for again := true; again; {
		if err := r.BeginSoon(f.Ctx, peekBytes); err != nil {
			return found, err
		}
		all, err := f.Wire.Fetch(f.Ctx, leader, []wire.FetchPartition{part}, wire.FetchOptions{MaxBytes: 1, Room: r})
		if err == nil {
			found = all[0]
			r.Release(found.Bytes())
		}
		if again = r.End(found.Next > offset, err); err != nil && !again {
			return found, err
		}
		r = r.Successor()
	}
	return found, found.Err
}

// Finish waits for the loops, once ctx has ended, and empties the buffers.
func (f *Fetcher) Finish() {
	f.loops.goroutines.Wait()
	unread := 0
	for _, p := range f.Partitions {
		unread += p.Discard()
	}
	f.Memory.Give(unread)
}

// FirstLeft finds the first offset that a partition has left where nothing is at its offset. Where it is not found the
// partition pauses.
func (f *Fetcher) FirstLeft(p *Partition) (at, first int64, ok bool) {
	found, err := f.Wire.ListOffsets(f.Ctx, []wire.TopicPartition{p.TopicPartition}, wire.EarliestOffset)
	if err != nil {
		if f.Ctx.Err() == nil {
			p.StopFor(holding.Kafka(fmt.Errorf(
				"the offset is out of range, and the partition's first one not found: %w", err)))
		}
		p.BackOff(ErrorPause)
		return 0, 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next, found[p.TopicPartition], true
}

// SkipLost goes on at the first offset that is left.
func (f *Fetcher) SkipLost(p *Partition, at, first int64) {
	f.Log.Error("messages were deleted before they were read: LOST", "partition", p.String(),
		"from", at, "to", first-1, "count", first-at)
	f.Telemetry.Skipped(p.Topic, first-at)
	p.ReadFrom(first, nil)
}
