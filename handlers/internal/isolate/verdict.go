package isolate

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
)

// verdict is the decision on an entry that its handler failed on, carried out when its turn comes: those before it may
// have to be handled again first.
type verdict struct {
	entry dedup.Entry // as it will be
	err   error
}

// judge decides on an entry that its handler failed on.
func (s *Isolation) judge(e *dedup.Entry, err error) *verdict {
	v := &verdict{*e, err}
	s.Decide(&v.entry, err)
	v.entry.Lane = s.laneOf(e)
	if s.failed == nil {
		s.failed = map[*dedup.Entry]*verdict{}
	}
	s.failed[e] = v
	return v
}

// verdict returns the decision on an entry, by this transaction or by an earlier one that was lost; nil: it has not
// failed.
func (s *Isolation) verdict(e *dedup.Entry) *verdict {
	if len(s.failed)+len(s.Known.failed) == 0 {
		return nil
	}
	if v := s.failed[e]; v != nil {
		return v
	}
	if err := s.Known.failed[Of(e)]; err != nil {
		return s.judge(e, err)
	}
	return nil
}

// settle brings entries to their states, in order: they were handled, or passed over.
func (s *Isolation) settle(ctx context.Context, entries []*dedup.Entry) {
	for _, e := range entries {
		if s.Blocked(e) {
			continue // also if it failed: one before it, that was handled at first, has failed since
		}
		if v := s.verdict(e); v != nil {
			s.carryOut(ctx, e, v)
			continue
		}
		e.State, e.Reason, e.Error = dedup.Processed, "", ""
	}
}

// Unsettled settles entries that wait behind another or failed in a transaction that was lost, and gives the others.
func (s *Isolation) Unsettled(ctx context.Context, entries []*dedup.Entry) []*dedup.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e *dedup.Entry) bool {
		if s.Blocked(e) {
			return true
		}
		v := s.verdict(e)
		if v != nil {
			s.carryOut(ctx, e, v)
		}
		return v != nil
	})
}

// putOff parks entries that were not tried, where an outage has begun.
func (s *Isolation) putOff(ctx context.Context, entries []*dedup.Entry) {
	for _, e := range entries {
		if s.Blocked(e) {
			continue
		}
		if v := s.verdict(e); v != nil {
			s.carryOut(ctx, e, v)
			continue
		}
		e.Lane = s.laneOf(e)
		s.PutOff(e, s.held)
	}
}

// Fail settles an entry that its handler failed on, where none before it is left.
func (s *Isolation) Fail(ctx context.Context, e *dedup.Entry, err error) {
	s.carryOut(ctx, e, s.judge(e, err))
}

// carryOut settles an entry as was decided. While it is unfinished its lane waits behind it.
func (s *Isolation) carryOut(ctx context.Context, e *dedup.Entry, v *verdict) {
	*e = v.entry
	delete(s.failed, e)
	if s.Tries == nil {
		s.Tries = Tries{}
	}
	s.Tries[e.Reason]++
	if errors.As(v.err, new(*AwayError)) {
		if s.Away == nil {
			s.Away = map[Message]error{}
		}
		s.Away[Of(e)] = v.err
	}
	s.Tell(ctx, e, v.err)
	if e.State == dedup.Parked {
		s.block(e)
	}
}

func (s *Isolation) block(e *dedup.Entry) {
	if s.blocked == nil {
		s.blocked = map[Lane]*dedup.Entry{}
	}
	s.blocked[Lane{e.Scope, e.Lane}] = e
}

// blocks gives the unfinished entry that e has to wait behind.
func (s *Isolation) blocks(e *dedup.Entry) *dedup.Entry {
	if len(s.blocked) == 0 {
		return nil
	}
	return s.blocked[Lane{e.Scope, s.laneOf(e)}]
}

// laneOf is the lane that a message lies in already, whatever the ordering was then, or belongs to.
func (s *Isolation) laneOf(e *dedup.Entry) uuid.UUID {
	if e.Lane != uuid.Nil {
		return e.Lane
	}
	return s.Lane(e.Message)
}

// Blocked parks an entry that has to wait behind an unfinished one of its lane, and says so.
func (s *Isolation) Blocked(e *dedup.Entry) bool {
	first := s.blocks(e)
	if first == nil {
		return false
	}
	e.Lane = first.Lane
	e.Park(first.Due)
	return true
}
