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

	"github.com/firstseen/firstseen/dedup/holds"
)

// fetching is a set of partitions whose buffers are kept filled: those of a consumer's session, or of a Reader's pass.
type fetching struct {
	cfg     *Config
	wire    *wire
	memory  *memory
	holds   *holds.Registry
	log     *slog.Logger
	decider decider

	telemetry *telemetry

	partitions map[topicPartition]*partition // none is added once a loop runs

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
		turf := fetchTurf{leader, p.partition % fetchesPerBroker}
		if leader >= 0 && !l.running[turf] {
			l.running[turf] = true
			loop := &fetchLoop{fetching: f, fetchTurf: turf, wake: newWake()}
			f.goexits.Go(loop.run)
		}
	}
}

// follow has the partitions read from their leaders as they are now.
func (f *fetching) follow(found map[string]topicMetadata) {
	for tp, p := range f.partitions {
		if m, err := found[tp.topic].partition(tp.partition); err == nil {
			p.lead(m)
		}
	}
	f.startLoops()
}

// peek asks for the least there is of a partition from an offset on, for it alone: the answer for many may have no room
// for it.
func (f *fetching) peek(p *partition, offset int64) (fetchedPartition, error) {
	leader, part := p.at(offset)
	found, err := f.wire.fetch(f.ctx, leader, []fetchPartition{part}, fetchOptions{maxBytes: 1})
	if err != nil {
		return fetchedPartition{}, err
	}
	return found[0], found[0].err
}

// discard empties the buffers.
func (f *fetching) discard() {
	unread := 0
	for _, p := range f.partitions {
		unread += p.discard()
	}
	f.memory.giveBack(unread)
}

// fetchTurf is what one loop reads: a part of the partitions that a broker leads.
type fetchTurf struct{ leader, part int32 }

// fetchesPerBroker is how many requests are in flight to a broker: while one answer is decoded, another is on its way.
const fetchesPerBroker = 2

// fetchLoop keeps one request in flight to one broker, for all partitions that it leads and that have room.
type fetchLoop struct {
	*fetching
	fetchTurf
	wake *wake // rung when a partition may have become readable
	turn int   // rotates the partitions' order: a broker fills its answer from the front
}

const (
	// errorPause keeps a partition out of the fetches after an error.
	errorPause = 250 * time.Millisecond
	// restlessWait is a fetch's wait where some partitions were left out: they may have room soon.
	restlessWait = 20 * time.Millisecond
	// idleCheck is how often a loop with nothing to fetch looks again without being woken.
	idleCheck = 250 * time.Millisecond
)

func (l *fetchLoop) run() {
	defer l.memory.subscribe(l.wake)()
	broker := l.holds.Place(holds.BrokerKind, strconv.Itoa(int(l.leader)))
	defer broker.Leave()
	retry := newBackoff()
	for l.ctx.Err() == nil {
		parts, all := l.wanted()
		if len(parts) == 0 {
			l.idle()
			continue
		}
		wait := l.cfg.FetchWait
		if !all {
			wait = min(wait, restlessWait)
		}
		began := time.Now()
		fetched, err := l.wire.fetch(l.ctx, l.leader, parts, fetchOptions{
			maxWait: wait, minBytes: 1, maxBytes: int32(l.cfg.FetchBytes), maxMemory: l.cfg.BufferBytes,
		})
		if err != nil && l.ctx.Err() != nil {
			return
		}
		l.telemetry.fetched(began, l.leader, fetched, err)
		if err != nil {
			broker.Wait(holds.Broker, err)
			l.decider.refresh()
			retry.wait(l.ctx)
			continue
		}
		broker.End()
		retry = newBackoff()
		l.deliver(fetched)
	}
}

// idle waits until something may have become readable.
func (l *fetchLoop) idle() {
	timer := time.NewTimer(idleCheck)
	defer timer.Stop()
	select {
	case <-l.ctx.Done():
	case <-l.wake.c:
	case <-timer.C:
	}
}

// wanted lists the broker's partitions that have room, and says whether that is all but those that rest. A partition with
// an empty buffer always has room: else partitions that are held with full buffers could starve all others.
func (l *fetchLoop) wanted() (parts []fetchPartition, all bool) {
	share := l.cfg.BufferBytes / max(1, len(l.partitions))
	most := int32(min(max(share, 64<<10), 1<<20))
	full := l.memory.full()
	now := time.Now()
	all = true
	for _, p := range l.partitions {
		p.mu.Lock()
		if p.leader == l.leader && p.partition%fetchesPerBroker == l.part && p.next < p.end {
			p.loop = l.wake
			room := p.bytes == 0 || (!full && p.bytes < share)
			if p.reading && !p.resting && room && !now.Before(p.pausedUntil) {
				parts = append(parts, fetchPartition{topic: p.topic, topicID: p.topicID, partition: p.partition,
					leaderEpoch: p.leaderEpoch, offset: p.next, lastEpoch: p.lastEpoch(), maxBytes: most})
			} else if !p.resting { // a pause may last for days
				all = false
			}
		}
		p.mu.Unlock()
	}
	slices.SortFunc(parts, func(a, b fetchPartition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	if len(parts) > 1 {
		l.turn++
		k := l.turn % len(parts)
		parts = append(parts[k:], parts[:k]...)
	}
	return parts, all
}

// deliver puts what was fetched where its workers find it.
func (l *fetchLoop) deliver(fetched []fetchedPartition) {
	stale := false
	var diverged *divergedError
	for i := range fetched {
		f := &fetched[i]
		p := l.partitions[topicPartition{f.topic, f.partition}]
		switch {
		case f.err == nil:
			l.memory.take(f.bytes)
			fresh := p.add(f)
			if !fresh && f.bytes > 0 {
				l.memory.giveBack(f.bytes)
			}
			p.answered(fresh)
		case errors.As(f.err, &diverged):
			l.decider.diverged(p, f.err)
		case errors.Is(f.err, kerr.OffsetOutOfRange):
			l.decider.outOfRange(p)
		case errors.Is(f.err, kerr.CorruptMessage), errors.Is(f.err, kerr.MessageTooLarge), errors.Is(f.err, kerr.UnsupportedForMessageFormat):
			l.decider.undecodable(p, f.next, f.err)
		case errors.Is(f.err, kerr.TopicAuthorizationFailed):
			p.stopFor(&holdError{HeldDenied, f.err})
			p.pause(l.cfg.MetadataInterval)
		default: // another broker may lead it
			stale = true
			p.stopFor(&holdError{holds.Broker, f.err})
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
	found, err := f.wire.listOffsets(f.ctx, []topicPartition{p.topicPartition}, earliestOffset)
	if err != nil {
		if f.ctx.Err() == nil {
			p.stopFor(kafkaHold(fmt.Errorf("the offset is out of range, and the partition's first one not found: %w", err)))
		}
		p.pause(errorPause)
		return 0, 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next, found[p.topicPartition], true
}

// skipLost goes on at the first offset that is left.
func (f *fetching) skipLost(p *partition, at, first int64) {
	f.log.Error("messages were deleted before they were read: LOST", "partition", p.String(),
		"from", at, "to", first-1, "count", first-at)
	f.telemetry.skipped(p.topic, first-at)
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
	found, named, err := s.wire.parted(s.ctx, p.topicPartition, p.topicID, p.read())
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
