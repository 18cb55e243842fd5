package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers/crashguard"
)

// start acquires the position and sets where reading begins. It goes on trying until it is done, and returns
// false where the session ends or the partition is held.
func (w *worker) start() bool {
	s, p := w.session, w.partition
	for retry := wait.NewBackoff(); s.ctx.Err() == nil; {
		s.c.cfg.Observe(StageAcquiring)
		at, hold, err := w.acquire(s.ctx)
		switch {
		case err == nil && hold != nil:
			s.hold(p, hold)
			return false
		case err == nil:
			s.offsets.processed(p.TopicPartition, at)
			w.tellProgress()
			p.ReadFrom(at.Offset, at.Epoch)
			return true
		case s.ctx.Err() == nil:
			p.WaitFor(err)
			retry.Wait(s.ctx)
		}
	}
	return false
}

func (w *worker) acquire(ctx context.Context) (at wire.Reading, hold, err error) {
	s, p := w.session, w.partition
	store, cfg := s.c.processor.Store(), &s.c.cfg
	if w.position, err = store.Acquire(ctx, cfg.Group, p.Topic, p.Partition, s.c.owner); err != nil {
		return at, nil, err
	}
	if w.position.Evicted > 0 {
		w.log.Warn("ended transactions that an earlier owner had left open", "transactions", w.position.Evicted)
	}
	committed, hasCommit := s.offsets.committedTo(p.TopicPartition)
	facts := startFacts{
		committed: committed, hasCommit: hasCommit,
		position: wire.Reading{Offset: w.position.Next, Epoch: w.position.LeaderEpoch}, hasPosition: w.position.Known,
		positionID: w.position.TopicID, topicID: p.TopicID,
		onReset: cfg.OnReset, onPostgresBehind: cfg.OnPostgresBehind,
	}
	begin := facts.decide()
	if begin.hold != nil {
		return at, begin.hold, nil
	}
	if at, hold, err = w.resolve(ctx, begin); err != nil || hold != nil {
		return at, hold, err
	}
	if begin.warn != "" {
		w.log.Warn(begin.warn, "offset", at.Offset)
	}
	w.next = at.Offset
	handled := at.Offset
	if at.Offset == begin.offset {
		handled = w.position.Next
	}
	w.guard = crashguard.AfterAcquiring(s.c.processor, w.position, at.Offset, handled, w.limit, w.log)
	return at, nil, store.Reposition(ctx, w.position, at.Offset, p.TopicID, at.Epoch)
}

// resolve finds out whether the log still is the one that was read, and where reading begins.
func (w *worker) resolve(ctx context.Context, begin start) (at wire.Reading, hold, err error) {
	p := w.partition
	found, named, err := w.session.c.wire.Parted(ctx, p.TopicPartition, p.TopicID, begin.read)
	if err != nil {
		return at, nil, holding.Kafka(err)
	}
	p.NameEpochs(named)
	if found != nil && (p.TopicID == uuid.Nil || p.TopicID != w.position.TopicID) {
		found.Exact = false // it may have been made anew, and have nothing in common with what was read
	}
	switch {
	case found == nil && begin.read.Offset == begin.offset:
		at.Epoch = begin.read.Epoch
	case found != nil && (!found.Exact || found.At < begin.offset):
		return w.cutOff(ctx, begin, found)
	case found != nil:
		w.log.Warn("the log was cut off below the position, and is read again from before", "position",
			begin.read.Offset, "parts_at", found.At, "offset", begin.offset)
	}
	at.Offset, hold, err = w.within(ctx, begin.offset)
	if at.Offset != begin.offset {
		at.Epoch = nil
	}
	return at, hold, err
}

// cutOff decides by policy what to do where the log is not the one that was read. Reading on from where the logs
// part skips nothing, and what was seen is a duplicate. Where that place is not known exactly it is the first
// message.
func (w *worker) cutOff(ctx context.Context, begin start, found *wire.Parting) (at wire.Reading, hold, err error) {
	earliest, err := w.offsetAt(ctx, wire.EarliestOffset)
	if err != nil {
		return at, nil, err
	}
	parts := "at"
	if at = (wire.Reading{Offset: found.At, Epoch: begin.read.Epoch}); !found.Exact {
		parts = "at or below"
	}
	if !found.Exact || found.At < earliest {
		at = wire.Reading{Offset: earliest}
	}
	reason := fmt.Errorf("the log is not the one that was read up to %d, under the leader epoch %d: they part %s %d, "+
		"and what follows are other messages, or none (an unclean leader election, or a topic made anew)",
		begin.read.Offset, *begin.read.Epoch, parts, found.At)
	if !w.restarts() {
		return at, w.cutOffHold(reason), nil
	}
	w.session.offsets.takeBack(w.partition.TopicPartition)
	w.log.Error("reading again from where the logs part", "offset", at.Offset, "reason", reason)
	return at, nil, nil
}

// within turns earliest into an offset, and finds out whether the partition ends below the offset:
// then it was cut off, or made anew on a broker that has no topic IDs.
func (w *worker) within(ctx context.Context, offset int64) (next int64, hold, err error) {
	earliest, err := w.offsetAt(ctx, wire.EarliestOffset)
	if err != nil {
		return 0, nil, err
	}
	latest, err := w.offsetAt(ctx, wire.LatestOffset)
	switch {
	case err != nil:
		return 0, nil, err
	case offset == wire.EarliestOffset:
		return earliest, nil, nil
	case offset <= latest:
		return offset, nil, nil
	}
	switch below, err := w.endsBelow(offset); {
	case err != nil || !below:
		return offset, nil, err
	case w.restarts():
		w.log.Error("the partition ends below the position: starting again from its first message",
			"position", offset, "end", latest, "first", earliest)
		w.session.offsets.takeBack(w.partition.TopicPartition)
		return earliest, nil, nil
	}
	return 0, w.cutOffHold(fmt.Errorf("the partition ends at %d, below the position %d: it was cut off or made anew",
		latest, offset)), nil
}

// restarts says that a log that was cut off is to be read again, and that this skips nothing.
func (w *worker) restarts() bool {
	return w.session.c.cfg.OnReset == Restart && !w.session.c.cfg.entry(w.partition.Topic).Identity.ByPosition()
}

func (w *worker) cutOffHold(reason error) error {
	if w.session.c.cfg.OnReset == Restart {
		reason = fmt.Errorf("%w; it is not read again in spite of on_reset: messages are known by their "+
			"positions, which others have now", reason)
	}
	return holding.As(HeldCutOff, reason)
}

// endsBelow asks with a fetch whether an offset beyond the last stable one is beyond the end too: a group that was
// taken over may stand within an open transaction.
func (w *worker) endsBelow(offset int64) (bool, error) {
	_, err := w.session.fetching.Peek(w.partition, offset)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return true, nil
	}
	return false, holding.Kafka(err)
}

func (w *worker) offsetAt(ctx context.Context, timestamp int64) (int64, error) {
	tp := w.partition.TopicPartition
	found, err := w.session.c.wire.ListOffsets(ctx, []wire.TopicPartition{tp}, timestamp)
	return found[tp], holding.Kafka(err)
}

// startFacts describe a partition whose position has been acquired.
type startFacts struct {
	committed        wire.Reading // valid where hasCommit
	hasCommit        bool
	position         wire.Reading // valid where hasPosition
	hasPosition      bool
	positionID       uuid.UUID // the topic that the position was set in
	topicID          uuid.UUID // the topic as it is now
	onReset          Policy
	onPostgresBehind Policy
}

type start struct {
	offset int64 // or wire.EarliestOffset
	// read must still be in the log: up to the offset, or beyond it, to the position.
	read wire.Reading
	warn string
	hold error // do not begin
}

// decide picks a partition's first offset. Whatever it picks is safe for effects, as what was seen is a duplicate;
// the point is that nothing is skipped that nobody decided to skip. The first start of a topic is decided before, by
// session.begin.
func (f *startFacts) decide() start {
	recreated := f.hasPosition && f.positionID != uuid.Nil && f.topicID != uuid.Nil && f.positionID != f.topicID
	switch {
	case recreated && f.onReset == Restart:
		return start{offset: wire.EarliestOffset,
			warn: "the topic was deleted and created again: starting from its first message"}
	case recreated:
		return start{hold: holding.As(HeldTopicReset,
			fmt.Errorf("the topic was deleted and created again (it was %s and is %s)", f.positionID, f.topicID))}
	case f.hasPosition && f.hasCommit && f.committed.Offset > f.position.Offset:
		return f.postgresBehind()
	case f.hasPosition && f.hasCommit && f.committed.Offset < f.position.Offset:
		if f.committed.Epoch == nil {
			return start{offset: f.committed.Offset, read: f.position}
		}
		return start{offset: f.committed.Offset, read: f.committed}
	case f.hasPosition:
		return start{offset: f.position.Offset, read: f.position}
	case f.hasCommit:
		return start{offset: wire.EarliestOffset,
			warn: "Kafka has a committed offset and Postgres, which knows the topic, no position: " +
				"Postgres lost it; starting from the first message"}
	}
	return start{offset: wire.EarliestOffset} // a partition that was added to the topic
}

func (f *startFacts) postgresBehind() start {
	if f.onPostgresBehind == Committed {
		return start{offset: f.committed.Offset, read: f.committed,
			warn: fmt.Sprintf("the position in Postgres is behind the committed offset: "+
				"SKIPPING %d to %d, as configured", f.position.Offset, f.committed.Offset-1)}
	}
	return start{offset: f.position.Offset, read: f.position,
		warn: fmt.Sprintf("the position in Postgres, %d, is behind the committed offset, %d: Postgres was "+
			"set back, or the group moved forward by hand; starting from the position (to skip on purpose, set "+
			"on_postgres_behind: committed)",
			f.position.Offset, f.committed.Offset)}
}
