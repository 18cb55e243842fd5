package handlers

import (
	"errors"
	"sort"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
)

// call is what a handler is called with next: stretches of entries, with a savepoint between one and the next.
type call struct {
	entries   []*dedup.Entry // all that are left, from the first stretch's beginning or before it
	stretches []stretch
}

// stretch is entries from one to before another, by their places.
type stretch struct{ from, to int }

// size is how many messages are handed over.
func (c *call) size() int { return c.before(len(c.entries)) }

// before is how many of them come before an entry.
func (c *call) before(entry int) (n int) {
	for _, s := range c.stretches {
		n += max(0, min(s.to, entry)-s.from)
	}
	return n
}

// end is where the last stretch ends.
func (c *call) end() int { return c.stretches[len(c.stretches)-1].to }

// at is where the first n of the messages end.
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
			if m := c.entries[i].Message; m.Topic == about.Topic && m.Partition == about.Partition && m.Offset == about.Offset {
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
func (r *run) plan(entries []*dedup.Entry) call {
	c := call{entries: entries}
	left, length, most := r.limits()
	waiting := map[laneOf]bool{}
	for i, e := range entries {
		if left == 0 {
			break
		}
		if r.passesOver(e, waiting) {
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

// limits is how many messages to hand over in one call, how many in a stretch, and how many stretches.
func (r *run) limits() (messages, length, stretches int) {
	_, each := r.target.handler.(each)
	_, pipelined := r.pipelined()
	switch {
	case r.known.alone, r.target.singly.Load():
		return 1, 1, 1
	case r.suspects > 0:
		half := (r.suspects + 1) / 2
		return half, half, 1
	case pipelined:
		return min(r.pace.call(), mostQueued), r.pace.stretch(), unlimited
	case each:
		return unlimited, r.pace.stretch(), 1
	}
	return unlimited, r.pace.call(), 1
}

// passesOver says whether an entry is left out of a call. waiting has the lanes of those that were, and will be parked.
func (r *run) passesOver(e *dedup.Entry, waiting map[laneOf]bool) bool {
	if v := r.verdict(e); v != nil {
		if v.entry.State == dedup.Parked {
			waiting[laneOf{e.Scope, v.entry.Lane}] = true
		}
		return true
	}
	return len(r.blocked)+len(waiting) > 0 && (r.blocks(e) != nil || waiting[laneOf{e.Scope, r.laneOf(e)}])
}

// messages are those of a call.
func (r *run) messages(c call) [][]dedup.Message {
	stretches := make([][]dedup.Message, len(c.stretches))
	for i, s := range c.stretches {
		stretches[i] = r.messagesOf(c.entries[s.from:s.to])
	}
	return stretches
}

// messagesOf are a part of the batch's own slice, where nothing is left out in between.
func (r *run) messagesOf(entries []*dedup.Entry) []dedup.Message {
	n := len(entries)
	at := sort.Search(len(r.all), func(i int) bool { return r.all[i].Offset >= entries[0].Message.Offset })
	if at+n <= len(r.all) && entries[0].Message == &r.all[at] && entries[n-1].Message == &r.all[at+n-1] {
		return r.all[at : at+n : at+n]
	}
	ms := make([]dedup.Message, n)
	for i, e := range entries {
		ms[i] = *e.Message
	}
	return ms
}
