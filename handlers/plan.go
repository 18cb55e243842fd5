package handlers

import (
	"errors"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
)

// call has stretches of entries, with a savepoint between one and the next.
type call struct {
	entries   []*dedup.Entry // all that are left, from the first stretch's beginning or before it
	stretches []stretch
}

// stretch is entries from one to before another, by their places.
type stretch struct{ from, to int }

func (c *call) size() int { return c.before(len(c.entries)) }

func (c *call) before(entry int) (n int) {
	for _, s := range c.stretches {
		n += max(0, min(s.to, entry)-s.from)
	}
	return n
}

func (c *call) end() int { return c.stretches[len(c.stretches)-1].to }

// at gives the place behind the first n of the messages.
func (c *call) at(n int) int {
	for _, s := range c.stretches {
		if n <= s.to-s.from {
			return s.from + n
		}
		n -= s.to - s.from
	}
	return c.end()
}

// culprit finds the entry that a handler's error is about, or -1.
func (c *call) culprit(cause error) int {
	if c.size() == 1 {
		return c.stretches[0].from
	}
	var about *MessageError
	if !errors.As(cause, &about) || inFailedTransaction(cause) {
		return -1
	}
	for _, s := range c.stretches {
		for i := s.from; i < s.to; i++ {
			if m := c.entries[i].Message; m.Topic == about.Topic && m.Partition == about.Partition &&
				m.Offset == about.Offset {
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

// plan picks entries for a call, up to the limits: not those that have failed, nor those that wait behind one.
func (s *isolation) plan(entries []*dedup.Entry) call {
	c := call{entries: entries}
	left, length, most := s.limits()
	waiting := map[laneOf]bool{}
	for i, e := range entries {
		if left == 0 {
			break
		}
		if s.passesOver(e, waiting) {
			continue
		}
		last := len(c.stretches) - 1
		if last >= 0 && c.stretches[last].to == i && i-c.stretches[last].from < length {
			c.stretches[last].to++
		} else if last+1 < most {
			c.stretches = append(c.stretches, stretch{i, i + 1})
		} else {
			break
		}
		left--
	}
	return c
}

// limits caps the messages of a call, those of a stretch, and the stretches.
func (s *isolation) limits() (messages, length, stretches int) {
	_, each := s.target.handler.(each)
	_, pipelined := s.pipelined()
	switch {
	case s.known.alone, s.target.singly.Load():
		return 1, 1, 1
	case s.suspects > 0:
		half := (s.suspects + 1) / 2
		return half, half, 1
	case pipelined:
		return min(s.pace.call(), mostQueued), s.pace.stretch(), unlimited
	case each:
		return unlimited, s.pace.stretch(), 1
	}
	return unlimited, s.pace.call(), 1
}

// passesOver says whether an entry is left out of a call. waiting has the lanes of those that were, and will be
// parked.
func (s *isolation) passesOver(e *dedup.Entry, waiting map[laneOf]bool) bool {
	if v := s.verdict(e); v != nil {
		if v.entry.State == dedup.Parked {
			waiting[laneOf{e.Scope, v.entry.Lane}] = true
		}
		return true
	}
	return len(s.blocked)+len(waiting) > 0 && (s.blocks(e) != nil || waiting[laneOf{e.Scope, s.laneOf(e)}])
}

// messages are those of a call.
func (s *isolation) messages(c call) [][]dedup.Message {
	stretches := make([][]dedup.Message, len(c.stretches))
	for i, part := range c.stretches {
		stretches[i] = s.messagesOf(c.entries[part.from:part.to])
	}
	return stretches
}
