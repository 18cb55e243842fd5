package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
)

// fetching is a set of partitions whose buffers are kept filled: those of a consumer's session, or of a Reader's pass.
type fetching struct {
	cfg       fetchConfig
	wire      *wire.Client
	memory    *memory.Account
	holds     *holds.Registry
	log       *slog.Logger
	telemetry *fetchTelemetry
	decider   decider

	ctx        context.Context                    // ends the loops
	partitions map[wire.TopicPartition]*partition // none is added once a loop runs

	loops fetchLoops
}

// fetchConfig says how to fetch.
type fetchConfig struct {
	wait        time.Duration // how long a broker waits for new records
	bytes       int           // of an answer, compressed
	bufferBytes int           // of all that is held
	interval    time.Duration // between two looks at the cluster
}

// decider knows what becomes of partitions that can't be fetched as they should.
type decider interface {
	Refresh()                // brings the leaders up to date
	OutOfRange(p *partition) // nothing is at the partition's offset
	Undecodable(p *partition, offset int64, err error)
	Diverged(p *partition, err error) // the log is not the one that was read
}

// fetchLoops are one loop for each broker that leads any of the partitions.
type fetchLoops struct {
	goroutines sync.WaitGroup

	mu      sync.Mutex
	running map[shard]bool
}

// startLoops begins a loop for each leader that has none yet. A loop without partitions waits for some.
func (f *fetching) startLoops() {
	l := &f.loops
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		l.running = map[shard]bool{}
	}
	for _, p := range f.partitions {
		p.mu.Lock()
		leader := p.leader
		p.mu.Unlock()
		of := shard{leader, p.Partition % fetchesPerBroker}
		if leader >= 0 && !l.running[of] {
			l.running[of] = true
			loop := &fetchLoop{fetching: f, shard: of, wake: wait.NewBell(), room: wire.NewRoom(f.memory)}
			l.goroutines.Go(loop.run)
		}
	}
}

// follow has the partitions read from their leaders as they are now.
func (f *fetching) follow(found map[string]wire.Topic) {
	for tp, p := range f.partitions {
		if m, err := found[tp.Topic].Led(tp.Partition); err == nil {
			p.lead(m)
		}
	}
	f.startLoops()
}

// peek asks for the least there is of a partition from an offset on, for it alone: the answer for many may have no room
// for it. It does not wait long for memory, which may be the caller's own to give back.
func (f *fetching) peek(p *partition, offset int64) (found wire.Fetched, err error) {
	leader, part := p.at(offset)
	r := wire.NewRoom(f.memory)
	for again := true; again; {
		if err := r.BeginSoon(f.ctx, peekBytes); err != nil {
			return found, err
		}
		all, err := f.wire.Fetch(f.ctx, leader, []wire.FetchPartition{part}, wire.FetchOptions{MaxBytes: 1, Room: r})
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

// finish waits for the loops, once ctx has ended, and empties the buffers.
func (f *fetching) finish() {
	f.loops.goroutines.Wait()
	unread := 0
	for _, p := range f.partitions {
		unread += p.discard()
	}
	f.memory.Give(unread)
}

func (l *fetchLoops) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, len(l.running))
}

// shard is what one loop reads: a part of the partitions that a broker leads.
type shard struct{ leader, part int32 }

// fetchesPerBroker is how many requests are in flight to a broker: while one answer is decoded, another is on its way.
const fetchesPerBroker = 2

// fetchLoop keeps one request in flight to one broker, for all partitions that it leads and that have room.
type fetchLoop struct {
	*fetching
	shard
	wake *wait.Bell // rung when a partition may have become readable
	room *wire.Room
	cost float64 // what a byte of an answer costs, with what comes out of it; 0: not known yet
}

const (
	// errorPause keeps a partition out of the fetches after an error.
	errorPause = 250 * time.Millisecond
	// restlessWait is a fetch's wait where some partitions were left out: they may have room soon.
	restlessWait = 20 * time.Millisecond
	// idleCheck is how often a loop with nothing to fetch looks again without being woken.
	idleCheck = 250 * time.Millisecond
	// memoryPatience is how long a fetch waits for memory before its partitions are held for that.
	memoryPatience = 10 * time.Second
	// peekBytes is what a peek takes at first.
	peekBytes = 64 << 10
	// firstCost is what a byte of an answer is taken to cost at first, and mostCost the most that it is taken to cost.
	firstCost, mostCost = 3, 1000
)

func (l *fetchLoop) run() {
	broker := l.holds.Place(holds.BrokerKind, strconv.Itoa(int(l.leader)))
	defer broker.Leave()
	defer l.memory.Watch(l.wake.Ring)()
	retry := wait.NewBackoff()
	for l.ctx.Err() == nil {
		if parts, _ := l.wanted(); len(parts) == 0 {
			l.idle()
			continue
		}
		size := l.size()
		if l.enter(size) != nil {
			return
		}
		err := l.fetch(int32(max(1, float64(size)/l.cost)))
		switch {
		case err == nil:
			broker.End()
			retry = wait.NewBackoff()
		case l.ctx.Err() == nil:
			broker.Wait(holds.Broker, err)
			l.decider.Refresh()
			retry.Wait(l.ctx)
		}
	}
}

// size is what a fetch takes of the memory: a quarter of it is for all loops together.
func (l *fetchLoop) size() int {
	if l.cost == 0 {
		l.cost = firstCost
	}
	return max(1, min(int(float64(l.cfg.bytes)*l.cost), l.cfg.bufferBytes/4/l.loops.count()))
}

// enter takes memory for a fetch. Where that takes long, the partitions that have nothing left are held for it.
func (l *fetchLoop) enter(size int) error {
	timer := time.AfterFunc(memoryPatience, func() {
		for _, p := range l.partitions {
			if l.reads(p) {
				p.starve(fmt.Errorf("%d of %d bytes are in use", l.memory.Used(), l.memory.Limit()))
			}
		}
	})
	defer timer.Stop()
	return l.room.Begin(l.ctx, size)
}

// fetch sends a request and delivers the answer.
func (l *fetchLoop) fetch(maxBytes int32) error {
	parts, all := l.wanted()
	wait := l.cfg.wait
	if !all {
		wait = min(wait, restlessWait)
	}
	began := time.Now()
	fetched, err := l.wire.Fetch(l.ctx, l.leader, parts, wire.FetchOptions{MaxWait: wait, MinBytes: 1, MaxBytes: maxBytes, Room: l.room})
	progress := slices.ContainsFunc(fetched, func(f wire.Fetched) bool { return f.Next > f.From })
	l.deliver(fetched)
	l.learn()
	again := l.room.End(progress, err)
	if err != nil {
		l.room = l.room.Successor()
	}
	if again {
		return nil
	}
	if err == nil || l.ctx.Err() == nil {
		l.telemetry.fetched(began, l.leader, fetched, err)
	}
	return err
}

// learn finds out what a byte of an answer costs, so that what comes out of the next one finds room.
func (l *fetchLoop) learn() {
	switch now := l.room.PerByte(); {
	case now > 0:
		l.cost = min(max(now, (3*l.cost+now)/4), mostCost)
	case l.room.Short():
		l.cost = min(2*l.cost, mostCost)
	}
}

// idle waits until something may have become readable.
func (l *fetchLoop) idle() {
	timer := time.NewTimer(idleCheck)
	defer timer.Stop()
	select {
	case <-l.ctx.Done():
	case <-l.wake.C:
	case <-timer.C:
	}
}

// reads says whether the loop reads a partition.
func (l *fetchLoop) reads(p *partition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leader == l.leader && p.Partition%fetchesPerBroker == l.part && p.next < p.end
}

// wanted lists the broker's partitions whose buffers have room, and says whether that is all but those that rest. Empty
// buffers are filled as soon as memory is had for it; of what is read ahead beyond that a quarter of the memory is kept free.
// A broker fills its answer from the front: what was served last comes last.
func (l *fetchLoop) wanted() (parts []wire.FetchPartition, all bool) {
	share := l.cfg.bufferBytes / max(1, len(l.partitions))
	most := int32(min(max(share, 64<<10), 1<<20))
	ahead := l.memory.Used() < l.memory.Limit()/4*3
	now := time.Now()
	var found []turn
	all = true
	for _, p := range l.partitions {
		if !l.reads(p) {
			continue
		}
		p.mu.Lock()
		p.loop = l.wake
		if p.reading && !p.resting && (p.bytes == 0 || ahead && p.bytes < share) && !now.Before(p.pausedUntil) {
			found = append(found, turn{p.served, wire.FetchPartition{Topic: p.Topic, TopicID: p.topicID, Partition: p.Partition,
				LeaderEpoch: p.leaderEpoch, Offset: p.next, LastEpoch: p.lastEpoch(), MaxBytes: most}})
		} else if !p.resting { // a pause may last for days
			all = false
		}
		p.mu.Unlock()
	}
	slices.SortFunc(found, func(a, b turn) int {
		return cmp.Or(a.served.Compare(b.served), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for i := range found {
		parts = append(parts, found[i].FetchPartition)
	}
	return parts, all
}

// turn is a partition to fetch, and when it was served last.
type turn struct {
	served time.Time
	wire.FetchPartition
}

// deliver puts what was fetched where its workers find it.
func (l *fetchLoop) deliver(fetched []wire.Fetched) {
	stale := false
	var diverged *wire.DivergedError
	for i := range fetched {
		f := &fetched[i]
		p := l.partitions[wire.TopicPartition{Topic: f.Topic, Partition: f.Partition}]
		switch {
		case f.Err == nil:
			fresh := p.add(f)
			if !fresh {
				l.room.Release(f.Bytes())
			}
			p.answered(fresh)
		case errors.As(f.Err, &diverged):
			l.decider.Diverged(p, f.Err)
		case errors.Is(f.Err, kerr.OffsetOutOfRange):
			l.decider.OutOfRange(p)
		case errors.Is(f.Err, kerr.CorruptMessage), errors.Is(f.Err, kerr.MessageTooLarge), errors.Is(f.Err, kerr.UnsupportedForMessageFormat):
			l.decider.Undecodable(p, f.Next, f.Err)
		case errors.Is(f.Err, kerr.TopicAuthorizationFailed):
			p.stopFor(holding.As(holds.Denied, f.Err))
			p.backOff(l.cfg.interval)
		default: // another broker may lead it
			stale = true
			p.stopFor(holding.As(holds.Broker, f.Err))
			p.backOff(errorPause)
		}
	}
	if stale {
		l.decider.Refresh()
	}
}

// firstLeft finds the first offset that a partition has left where nothing is at its offset. Where it is not found the
// partition pauses.
func (f *fetching) firstLeft(p *partition) (at, first int64, ok bool) {
	found, err := f.wire.ListOffsets(f.ctx, []wire.TopicPartition{p.TopicPartition}, wire.EarliestOffset)
	if err != nil {
		if f.ctx.Err() == nil {
			p.stopFor(holding.Kafka(fmt.Errorf("the offset is out of range, and the partition's first one not found: %w", err)))
		}
		p.backOff(errorPause)
		return 0, 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next, found[p.TopicPartition], true
}

// skipLost goes on at the first offset that is left.
func (f *fetching) skipLost(p *partition, at, first int64) {
	f.log.Error("messages were deleted before they were read: LOST", "partition", p.String(),
		"from", at, "to", first-1, "count", first-at)
	f.telemetry.skipped(p.Topic, first-at)
	p.readFrom(first, nil)
}
