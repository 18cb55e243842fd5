package isolate

import (
	"context"
	"errors"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
)

// failedOn says what a call's failure means, behind so many messages that are kept.
func (s *Isolation) failedOn(ctx context.Context, c call, kept int, cause error) (done int, err error) {
	kind, cause := s.Meaning(ctx, cause)
	switch {
	case kind == OfInfrastructure:
		return 0, cause
	case kind == OfConcurrency && !s.Known.patient():
		return 0, &repeatError{cause}
	}
	return c.at(kept), s.narrow(ctx, c, kept, kind, cause)
}

// narrow takes back what a failed call did behind the messages that are kept, and judges the culprit or, where the
// handler does not say which it is, suspects fewer messages.
func (s *Isolation) narrow(ctx context.Context, c call, kept int, kind Kind, cause error) error {
	culprit := s.culprit(c, cause)
	if culprit < 0 && kind == OfTime && !s.Traits.Each { // of those handled one after the other none took half of it
		return s.lostTime(c, cause)
	}
	cause = s.excuse(c, culprit, cause)
	if s.Tx.Lost() || errors.Is(cause, dedup.ErrEnded) || kept == c.size() {
		return lost(c, culprit, cause)
	}
	if failure.Code(cause) == codeDuplicateTable && !s.Traits.Singly.Swap(true) {
		return s.singly(ctx)
	}
	named := culprit >= 0 && s.Pipelined()
	// Nothing is to be undone where a queue's own error came before it sent anything.
	s.undo = !named || kept < c.before(culprit) || s.Tx.Check() != nil
	if !named || !failure.IsOfValues(cause) {
		if err := s.takeBack(ctx); err != nil {
			return err
		}
	}
	if culprit < 0 {
		s.suspects = c.size() - kept
		return nil
	}
	s.suspects = 0
	s.Pace.Failed(c.before(culprit))
	s.judge(c.entries[culprit], cause)
	return nil
}

// culprit finds the entry of a call that an error is about, or -1.
func (s *Isolation) culprit(c call, cause error) int {
	if c.size() == 1 {
		return c.stretches[0].from
	}
	if inFailedTransaction(cause) {
		return -1
	}
	for _, part := range c.stretches {
		for i := part.from; i < part.to; i++ {
			if s.IsAbout(cause, c.entries[i].Message) {
				return i
			}
		}
	}
	return -1
}

// inFailedTransaction says that the error is the echo of an earlier one, which the handler has dropped: the message
// that it came up with is not the one to blame.
func inFailedTransaction(err error) bool {
	return failure.Code(err) == "25P02"
}

// codeDuplicateTable comes of a handler that makes a temporary table for each message: the one for the message before
// is there until the commit.
const codeDuplicateTable = "42P07"

// singly has the handler's messages handled one at a time from now on, with no temporary table left by the one before.
func (s *Isolation) singly(ctx context.Context) error {
	s.Log.Warn("a handler makes a table for each message that is still there at the next one: "+
		"its messages are handled one at a time, which is slow",
		"do", "have it drop the table itself, or create it if not exists and truncate it")
	s.undo = true
	return s.takeBack(ctx)
}

// excuse marks a failure that may be an outage's so that it counts no attempt, unless the message's siblings pass.
// Several in a row have the rest wait.
func (s *Isolation) excuse(c call, culprit int, cause error) error {
	if culprit < 0 || !errors.As(cause, new(*AwayError)) {
		return cause
	}
	if c.before(culprit) > 0 {
		s.row, s.passed = nil, true
	}
	s.row = append(s.row, Of(c.entries[culprit]))
	counts, begun := s.Outage(s.row, s.passed, cause)
	if begun {
		s.held = cause
	}
	return counts
}

// LostTime says of entries that a call took all of its time and told of none what became of it.
func (s *Isolation) LostTime(entries []*dedup.Entry, cause error) error {
	return s.lostTime(call{entries, []stretch{{0, len(entries)}}}, cause)
}

// lostTime has the messages of a call handled each by itself: others would lose as much time again.
func (s *Isolation) lostTime(c call, cause error) error {
	lost := &LostError{Err: cause}
	for _, part := range c.stretches {
		for _, e := range c.entries[part.from:part.to] {
			lost.apart = append(lost.apart, Of(e))
		}
	}
	s.Log.Warn("a handler took all of its time; the messages of its call are handled one at a time",
		"first", c.entries[c.stretches[0].from].Message.Place(), "messages", len(lost.apart), "error", cause)
	return lost
}

// lost marks a failure that cost the transaction, with the culprit where it is known, for the next transaction.
func lost(c call, culprit int, cause error) error {
	lost := &LostError{Err: cause}
	if culprit >= 0 {
		lost.Of = Of(c.entries[culprit])
	}
	return lost
}
