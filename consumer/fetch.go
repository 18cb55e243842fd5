package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// fetchLoops are the session's fetch loops, one for each broker that leads an assigned partition.
type fetchLoops struct {
	mu      sync.Mutex
	running map[int32]bool
}

// start begins a loop for each leader that has none yet. A loop without partitions waits for some.
func (l *fetchLoops) start(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		l.running = map[int32]bool{}
	}
	for _, p := range s.partitions {
		p.mu.Lock()
		leader := p.leader
		p.mu.Unlock()
		if leader >= 0 && !l.running[leader] {
			l.running[leader] = true
			loop := &fetchLoop{session: s, leader: leader, wake: newWake()}
			s.goexits.Go(loop.run)
		}
	}
}

// fetchLoop keeps one request in flight to one broker, for all partitions that it leads and that have room.
type fetchLoop struct {
	session *session
	leader  int32
	wake    *wake // rung when a partition may have become readable
	turn    int   // rotates the partitions' order: a broker fills its answer from the front
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
	s := l.session
	defer s.c.memory.subscribe(l.wake)()
	retry := newBackoff()
	for s.ctx.Err() == nil {
		parts, all := l.wanted()
		if len(parts) == 0 {
			l.idle()
			continue
		}
		wait := s.c.cfg.FetchWait
		if !all {
			wait = min(wait, restlessWait)
		}
		fetched, err := s.c.wire.fetch(s.ctx, l.leader, parts, fetchOptions{
			maxWait: wait, minBytes: 1, maxBytes: int32(s.c.cfg.FetchBytes), maxMemory: s.c.cfg.BufferBytes,
		})
		if err != nil {
			if s.ctx.Err() != nil {
				return
			}
			s.log.Warn("fetch failed; trying again", "broker", l.leader, "error", err)
			s.refresh()
			retry.wait(s.ctx)
			continue
		}
		retry = newBackoff()
		l.deliver(fetched)
	}
}

// idle waits until something may have become readable.
func (l *fetchLoop) idle() {
	timer := time.NewTimer(idleCheck)
	defer timer.Stop()
	select {
	case <-l.session.ctx.Done():
	case <-l.wake.c:
	case <-timer.C:
	}
}

// wanted lists the broker's partitions that have room, and says whether that is all of them. A partition with an
// empty buffer always has room: else partitions that are held with full buffers could starve all others.
func (l *fetchLoop) wanted() (parts []fetchPartition, all bool) {
	s := l.session
	share := s.c.cfg.BufferBytes / max(1, len(s.partitions))
	most := int32(min(max(share, 64<<10), 1<<20))
	full := s.c.memory.full()
	now := time.Now()
	all = true
	for _, p := range s.partitions {
		p.mu.Lock()
		if p.leader == l.leader {
			p.loop = l.wake
			room := p.bytes == 0 || (!full && p.bytes < share)
			if p.reading && room && !now.Before(p.pausedUntil) {
				parts = append(parts, fetchPartition{topic: p.topic, topicID: p.topicID, partition: p.partition,
					leaderEpoch: p.leaderEpoch, offset: p.next, maxBytes: most})
			} else {
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
	s := l.session
	stale := false
	for i := range fetched {
		f := &fetched[i]
		p := s.partitions[topicPartition{f.topic, f.partition}]
		switch {
		case f.err == nil:
			s.c.memory.take(f.bytes)
			p.add(f)
		case errors.Is(f.err, kerr.OffsetOutOfRange):
			s.outOfRange(p)
		case errors.Is(f.err, kerr.CorruptMessage), errors.Is(f.err, kerr.MessageTooLarge), errors.Is(f.err, kerr.UnsupportedForMessageFormat):
			s.log.Error("records can't be decoded; the partition is held", "partition", p.String(), "offset", f.next, "error", f.err)
			p.pause(10 * time.Second)
		default:
			stale = true
			s.log.Warn("fetch refused; looking for the partition's leader", "partition", p.String(), "error", f.err)
			p.pause(errorPause)
		}
	}
	if stale {
		s.refresh()
	}
}

// outOfRange finds out why there is nothing at a partition's offset, and acts by policy.
func (s *session) outOfRange(p *partition) {
	parts := []topicPartition{p.topicPartition}
	first, err := s.c.wire.listOffsets(s.ctx, parts, earliestOffset)
	if err != nil {
		if s.ctx.Err() == nil {
			s.log.Warn("offset out of range, and the partition's first offset not found; trying again",
				"partition", p.String(), "error", err)
		}
		p.pause(errorPause)
		return
	}
	p.mu.Lock()
	at := p.next
	p.mu.Unlock()
	earliest := first[p.topicPartition]
	switch {
	case at >= earliest:
		s.fault(fmt.Errorf("partition %s ends below the position %d", p, at)) // acquiring it again decides by policy
	case s.c.cfg.OnLoss == Continue:
		s.log.Error("messages were deleted before they were read: LOST", "partition", p.String(),
			"from", at, "to", earliest-1, "count", earliest-at)
		p.readFrom(earliest)
	default:
		s.hold(p, fmt.Errorf("messages %d to %d were deleted before they were read", at, earliest-1))
	}
}

// holdReminder is how often a held partition is reported.
const holdReminder = 30 * time.Second

// hold stops a partition that only a person's decision can set going again, and says so now and then. The others
// go on.
func (s *session) hold(p *partition, reason error) {
	p.stopReading()
	s.goexits.Go(func() {
		for {
			s.log.Error("partition HELD: decide, set the policy and restart (see OPERATIONS, held partitions)",
				"partition", p.String(), "reason", reason)
			if !sleep(s.ctx, holdReminder) {
				return
			}
		}
	})
}
