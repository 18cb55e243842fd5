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

	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
)

// fetching is a set of partitions whose buffers are kept filled: those of a consumer's session, or of a Reader's pass.
type fetching struct {
	cfg     *Config
	wire    *wire.Client
	memory  *memory.Account
	holds   *holds.Registry
	log     *slog.Logger
	decider decider

	telemetry *telemetry

	partitions map[wire.TopicPartition]*partition // none is added once a loop runs

	ctx     context.Context // ends the loops
	goexits sync.WaitGroup
	loops   fetchLoops
}

// decider knows what becomes of partitions that can't be fetched as they should.
type decider interface {
	refresh()                // brings the leaders up to date
	outOfRange(p *partition) // nothing is at the partition's offset
	undecodable(p *partition, offset int64, err error)
	diverged(p *partition, err error) // the log is not the one that was read
}

// fetchLoops are one loop for each broker that leads any of the partitions.
type fetchLoops struct {
	mu      sync.Mutex
	running map[fetchTurf]bool
}

// startLoops begins a loop for each leader that has none yet. A loop without partitions waits for some.
func (f *fetching) startLoops() {
	l := &f.loops
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		l.running = map[fetchTurf]bool{}
	}
	for _, p := range f.partitions {
		p.mu.Lock()
		leader := p.leader
		p.mu.Unlock()
		turf := fetchTurf{leader, p.Partition % fetchesPerBroker}
		if leader >= 0 && !l.running[turf] {
			l.running[turf] = true
			loop := &fetchLoop{fetching: f, fetchTurf: turf, wake: wait.NewBell(), room: wire.NewRoom(f.memory)}
			f.goexits.Go(loop.run)
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

// discard empties the buffers.
func (f *fetching) discard() {
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

// fetchTurf is what one loop reads: a part of the partitions that a broker leads.
type fetchTurf struct{ leader, part int32 }

// fetchesPerBroker is how many requests are in flight to a broker: while one answer is decoded, another is on its way.
const fetchesPerBroker = 2

// fetchLoop keeps one request in flight to one broker, for all partitions that it leads and that have room.
type fetchLoop struct {
	*fetching
	fetchTurf
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
			l.decider.refresh()
			retry.Wait(l.ctx)
		}
	}
}

// size is what a fetch takes of the memory: a quarter of it is for all loops together.
func (l *fetchLoop) size() int {
	if l.cost == 0 {
		l.cost = firstCost
	}
	return max(1, min(int(float64(l.cfg.FetchBytes)*l.cost), l.cfg.BufferBytes/4/l.loops.count()))
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
	wait := l.cfg.FetchWait
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
	share := l.cfg.BufferBytes / max(1, len(l.partitions))
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
			l.decider.diverged(p, f.Err)
		case errors.Is(f.Err, kerr.OffsetOutOfRange):
			l.decider.outOfRange(p)
		case errors.Is(f.Err, kerr.CorruptMessage), errors.Is(f.Err, kerr.MessageTooLarge), errors.Is(f.Err, kerr.UnsupportedForMessageFormat):
			l.decider.undecodable(p, f.Next, f.Err)
		case errors.Is(f.Err, kerr.TopicAuthorizationFailed):
			p.stopFor(&holdError{HeldDenied, f.Err})
			p.pause(l.cfg.MetadataInterval)
		default: // another broker may lead it
			stale = true
			p.stopFor(&holdError{holds.Broker, f.Err})
			p.pause(errorPause)
		}
	}
	if stale {
		l.decider.refresh()
	}
}

// firstLeft finds the first offset that a partition has left where nothing is at its offset. Where it is not found the
// partition pauses.
func (f *fetching) firstLeft(p *partition) (at, first int64, ok bool) {
	found, err := f.wire.ListOffsets(f.ctx, []wire.TopicPartition{p.TopicPartition}, wire.EarliestOffset)
	if err != nil {
		if f.ctx.Err() == nil {
			p.stopFor(kafkaHold(fmt.Errorf("the offset is out of range, and the partition's first one not found: %w", err)))
		}
		p.pause(errorPause)
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

// outOfRange finds out why there is nothing at a partition's offset, and acts by policy.
func (s *session) outOfRange(p *partition) {
	at, first, ok := s.firstLeft(p)
	switch {
	case !ok:
	case at >= first:
		s.refused(p, fmt.Errorf("partition %s ends below the position %d", p, at))
	case s.cfg.OnLoss == Continue:
		s.skipLost(p, at, first)
	default:
		s.hold(p, &holdError{HeldLost, fmt.Errorf("messages %d to %d were deleted before they were read", at, first-1)})
	}
}

func (s *session) diverged(p *partition, err error) {
	s.refused(p, fmt.Errorf("partition %s: %w", p, err))
}

// refused is for a leader that has nothing after what was read last. Where it only does not know that epoch the fetches go on
// without; else acquiring the partition anew finds out where the logs part, and decides by policy.
func (s *session) refused(p *partition, reason error) {
	found, named, err := s.wire.Parted(s.ctx, p.TopicPartition, p.topicID, p.read())
	switch {
	case err != nil && s.ctx.Err() == nil:
		p.stopFor(kafkaHold(err))
		p.pause(errorPause)
	case err != nil:
	case found == nil && !named:
		p.nameEpochs(false)
	default:
		s.fault(reason)
	}
}

// undecodable keeps a partition from being fetched for a while.
func (s *session) undecodable(p *partition, offset int64, err error) {
	p.stopFor(&holdError{HeldUndecodable, err}, "offset", offset)
	p.pause(10 * time.Second)
}

// hold stops a partition that only a person's decision can set going again. The others go on.
func (s *session) hold(p *partition, reason error) {
	p.stopReading()
	p.stopFor(reason)
}
