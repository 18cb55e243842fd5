package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
)

// verdict is what becomes of an entry that its handler failed on, when its turn comes: those before it may have to be
// handled again first.
type verdict struct {
	entry dedup.Entry // as it will be
	err   error
}

// judge decides on an entry that its handler failed on.
func (s *isolation) judge(e *dedup.Entry, err error) *verdict {
	v := &verdict{*e, err}
	s.target.retry.fail(&v.entry, err)
	v.entry.Lane, v.entry.Alone = s.laneOf(e), handledAlone(err)
	if s.failed == nil {
		s.failed = map[*dedup.Entry]*verdict{}
	}
	s.failed[e] = v
	return v
}

// verdict is what was decided on an entry, in this transaction or by an earlier one's loss; nil: it has not failed.
func (s *isolation) verdict(e *dedup.Entry) *verdict {
	if len(s.failed)+len(s.known.failed) == 0 {
		return nil
	}
	if v := s.failed[e]; v != nil {
		return v
	}
	if err := s.known.failed[of(e)]; err != nil {
		return s.judge(e, err)
	}
	return nil
}

// settle brings entries to their states, in order: they were handled, or passed over.
func (s *isolation) settle(ctx context.Context, entries []*dedup.Entry) {
	for _, e := range entries {
		if s.isBlocked(e) {
			continue // also if it failed: one before it, that was handled at first, has failed since
		}
		if v := s.verdict(e); v != nil {
			s.carryOut(ctx, e, v)
			continue
		}
		e.State, e.Reason, e.Error = dedup.Processed, "", ""
	}
}

// putOff parks entries that were not tried, where an outage has begun.
func (s *isolation) putOff(ctx context.Context, entries []*dedup.Entry) {
	for _, e := range entries {
		if s.isBlocked(e) {
			continue
		}
		if v := s.verdict(e); v != nil {
			s.carryOut(ctx, e, v)
			continue
		}
		e.Lane = s.laneOf(e)
		e.Reason, e.Error = reasonUnavailable, clip(s.held)
		e.Park(0)
	}
}

// fail settles an entry that its handler failed on, where none before it is left.
func (s *isolation) fail(ctx context.Context, e *dedup.Entry, err error) {
	s.carryOut(ctx, e, s.judge(e, err))
}

// carryOut settles an entry as was decided. While it is unfinished its lane waits behind it.
func (s *isolation) carryOut(ctx context.Context, e *dedup.Entry, v *verdict) {
	*e = v.entry
	delete(s.failed, e)
	if s.tries == nil {
		s.tries = tries{}
	}
	s.tries[e.Reason]++
	if errors.As(v.err, new(*awayError)) {
		if s.away == nil {
			s.away = map[messageOf]error{}
		}
		s.away[of(e)] = v.err
	}
	handler, message := slog.String("handler", s.target.name), slog.String("message", place(e.Message))
	s.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "handler failed", handler, message,
		slog.String("state", e.Reason), slog.Int("attempts", e.Attempts), slog.String("error", e.Error))
	if p := (*PanicError)(nil); errors.As(v.err, &p) {
		s.p.cfg.Logger.ErrorContext(ctx, "handler panicked", handler, message, "stack", string(p.Stack))
	}
	if e.State == dedup.Parked {
		s.block(e)
	}
}

func (s *isolation) block(e *dedup.Entry) {
	if s.blocked == nil {
		s.blocked = map[laneOf]*dedup.Entry{}
	}
	s.blocked[laneOf{e.Scope, e.Lane}] = e
}

type laneOf struct {
	scope int32
	lane  uuid.UUID
}

// blocks gives the unfinished entry that e has to wait behind.
func (s *isolation) blocks(e *dedup.Entry) *dedup.Entry {
	if len(s.blocked) == 0 {
		return nil
	}
	return s.blocked[laneOf{e.Scope, s.laneOf(e)}]
}

// laneOf is the lane that a message lies in already, whatever the ordering was then, or belongs to.
func (s *isolation) laneOf(e *dedup.Entry) uuid.UUID {
	if e.Lane != uuid.Nil {
		return e.Lane
	}
	return s.target.ordering.Lane(e.Message)
}

// isBlocked parks an entry that has to wait.
func (s *isolation) isBlocked(e *dedup.Entry) bool {
	first := s.blocks(e)
	if first == nil {
		return false
	}
	e.Lane = first.Lane
	e.Park(first.Due)
	return true
}

// place names a message for the log.
func place(m *dedup.Message) string { return fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset) }
