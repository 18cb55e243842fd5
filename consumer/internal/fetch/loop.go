package fetch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
)

// loops are one loop for each broker that leads any of the partitions.
type loops struct {
	goroutines sync.WaitGroup

	mu      sync.Mutex
	running map[shard]bool
}

func (l *loops) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, len(l.running))
}

// shard is one loop's part of the partitions that a broker leads.
type shard struct{ leader, part int32 }

// fetchesPerBroker caps the requests in flight to a broker: while one answer is decoded, another is on its way.
const fetchesPerBroker = 2

// loop keeps one request in flight to one broker, for all partitions that it leads and that have room.
type loop struct {
	*Fetcher
	shard
	wake *wait.Bell // rung when a partition may have become readable
	room *wire.Room
	cost float64 // what a byte of an answer costs, with what comes out of it; 0: not known yet

	throttled time.Time // since when the broker has answered nothing, to slow this client down; zero: it answers
}

const (
	// ErrorPause keeps a partition out of the fetches after an error.
	ErrorPause = 250 * time.Millisecond
	// restlessWait is a fetch's wait where some partitions were left out: they may have room soon.
	restlessWait = 20 * time.Millisecond
	// idleCheck is the time between two looks of a loop that has nothing to fetch and is not woken.
	idleCheck = 250 * time.Millisecond
	// memoryPatience bounds a fetch's wait for memory before its partitions are held for that.
	memoryPatience = 10 * time.Second
	// throttlePatience is the time without any answer of a broker that slows this client down before that is a hold: a
	// quota that is small slows down now and then, and one that is far too small for ever.
	throttlePatience = 10 * time.Second
	// peekBytes is a peek's first share of the memory.
	peekBytes = 64 << 10
	// firstCost is the cost of an answer's byte before one is measured, and mostCost its bound.
	firstCost, mostCost = 3, 1000
)

func (l *loop) run() {
	broker := l.Holds.Place(holds.BrokerKind, strconv.Itoa(int(l.leader)))
	defer broker.Leave()
	defer l.Memory.Watch(l.wake.Ring)()
	retry := wait.NewBackoff()
	for l.Ctx.Err() == nil {
		size := l.size()
		if parts, _ := l.wanted(size); len(parts) == 0 {
			l.idle()
			continue
		}
		if l.enter(size) != nil {
			return
		}
		err := l.fetch(int32(max(1, float64(size)/l.cost)))
		switch {
		case err == nil && l.isThrottled():
			broker.Wait(holds.Throttled, errors.New("its answers are empty, and ask for fewer requests"))
		case err == nil:
			broker.End()
			retry = wait.NewBackoff()
		case l.Ctx.Err() == nil:
			broker.Wait(holds.Broker, err)
			l.Decider.Refresh()
			retry.Wait(l.Ctx)
		}
	}
}

// size is a fetch's share of the memory, in bytes: a quarter of it is for all loops together.
func (l *loop) size() int {
	if l.cost == 0 {
		l.cost = firstCost
	}
	return max(1, min(int(float64(l.Config.Bytes)*l.cost), l.Config.BufferBytes/4/l.loops.count()))
}

// enter takes memory for a fetch. Where that takes long, the partitions that have nothing left are held for it.
func (l *loop) enter(size int) error {
	timer := time.AfterFunc(memoryPatience, func() {
		for _, p := range l.Partitions {
			if l.reads(p) {
				p.starve(fmt.Errorf("%d of %d bytes are in use", l.Memory.Used(), l.Memory.Limit()))
			}
		}
	})
	defer timer.Stop()
	return l.room.Begin(l.Ctx, size)
}

func (l *loop) fetch(maxBytes int32) error {
	parts, all := l.wanted(0)
	if len(parts) == 0 { // others have taken memory meanwhile
		l.room.End(false, nil)
		return nil
	}
	wait := l.Config.Wait
	if !all {
		wait = min(wait, restlessWait)
	}
	began := time.Now()
	fetched, err := l.Wire.Fetch(l.Ctx, l.leader, parts, wire.FetchOptions{MaxWait: wait, MinBytes: 1,
		MaxBytes: maxBytes, Room: l.room})
	progress := slices.ContainsFunc(fetched, func(f wire.Fetched) bool { return f.Next > f.From })
	l.deliver(fetched)
	l.tell(fetched)
	l.learn()
	again := l.room.End(progress, err)
	if err != nil {
		l.room = l.room.Successor()
	}
	if again {
		return nil
	}
	if err == nil || l.Ctx.Err() == nil {
		l.Telemetry.fetched(began, l.leader, fetched, err)
	}
	return err
}

// learn finds out what a byte of an answer costs, so that what comes out of the next one finds room.
func (l *loop) learn() {
	switch now := l.room.PerByte(); {
	case now > 0:
		l.cost = min(max(now, (3*l.cost+now)/4), mostCost)
	case l.room.Short():
		l.cost = min(2*l.cost, mostCost)
	}
}

// idle waits until something may have become readable.
func (l *loop) idle() {
	timer := time.NewTimer(idleCheck)
	defer timer.Stop()
	select {
	case <-l.Ctx.Done():
	case <-l.wake.C:
	case <-timer.C:
	}
}

func (l *loop) reads(p *Partition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leader == l.leader && p.Partition%fetchesPerBroker == l.part && p.next < p.End
}

// wanted lists the broker's partitions whose buffers have room, and says whether that is all but those that rest.
// Empty buffers are filled as soon as memory is had for it; of what is read ahead beyond that a quarter of the memory
// is kept free, when so many bytes more are taken. A broker fills its answer from the front: what was served last
// comes last.
func (l *loop) wanted(more int) (parts []wire.FetchPartition, all bool) {
	share := l.Config.BufferBytes / max(1, len(l.Partitions))
	most := int32(min(max(share, 64<<10), 1<<20))
	ahead := l.Memory.Used()+more < l.Memory.Limit()/4*3
	now := time.Now()
	var found []turn
	all = true
	for _, p := range l.Partitions {
		if !l.reads(p) {
			continue
		}
		p.mu.Lock()
		p.loop = l.wake
		if p.reading && !p.resting && (p.bytes == 0 || ahead && p.bytes < share) && !now.Before(p.pausedUntil) {
			found = append(found,
				turn{p.served, wire.FetchPartition{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition,
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

// tell takes in whether a broker has answered anything of what was asked for.
func (l *loop) tell(fetched []wire.Fetched) {
	switch {
	case !slices.ContainsFunc(fetched, func(f wire.Fetched) bool { return f.Unanswered() }):
		l.throttled = time.Time{}
	case l.throttled.IsZero():
		l.throttled = time.Now()
	}
}

func (l *loop) isThrottled() bool {
	return !l.throttled.IsZero() && time.Since(l.throttled) >= throttlePatience
}

// deliver puts what was fetched where its workers find it.
func (l *loop) deliver(fetched []wire.Fetched) {
	stale := false
	var diverged *wire.DivergedError
	for i := range fetched {
		f := &fetched[i]
		p := l.Partitions[wire.TopicPartition{Topic: f.Topic, Partition: f.Partition}]
		switch {
		case f.Err == nil:
			fresh := p.Add(f)
			if !fresh {
				l.room.Release(f.Bytes())
			}
			p.answered(fresh)
		case errors.As(f.Err, &diverged):
			l.Decider.Diverged(p, f.Err)
		case errors.Is(f.Err, kerr.OffsetOutOfRange):
			l.Decider.OutOfRange(p)
		case errors.Is(f.Err, kerr.CorruptMessage), errors.Is(f.Err, kerr.MessageTooLarge), errors.Is(f.Err,
			kerr.UnsupportedForMessageFormat):
			l.Decider.Undecodable(p, f.Next, f.Err)
		case errors.Is(f.Err, kerr.TopicAuthorizationFailed):
			p.StopFor(holding.As(holds.Denied, f.Err))
			p.BackOff(l.Config.Interval)
		default: // another broker may lead it
			stale = true
			p.StopFor(holding.As(holds.Broker, f.Err))
			p.BackOff(ErrorPause)
		}
	}
	if stale {
		l.Decider.Refresh()
	}
}
