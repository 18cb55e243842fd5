package isolate

import "github.com/firstseen/firstseen/dedup"

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

// parts are the entries of the stretches.
func (c *call) parts() [][]*dedup.Entry {
	parts := make([][]*dedup.Entry, len(c.stretches))
	for i, s := range c.stretches {
		parts[i] = c.entries[s.from:s.to]
	}
	return parts
}

// plan picks entries for a call, up to the limits: not those that have failed, nor those that wait behind one.
func (s *Isolation) plan(entries []*dedup.Entry) call {
	c := call{entries: entries}
	left, length, most := s.limits()
	waiting := map[Lane]bool{}
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
func (s *Isolation) limits() (messages, length, stretches int) {
	switch {
	case s.Known.alone, s.Traits.Singly.Load():
		return 1, 1, 1
	case s.suspects > 0:
		half := (s.suspects + 1) / 2
		return half, half, 1
	case s.Pipelined():
		return min(s.Pace.call(), MostQueued), s.Pace.stretch(), Unlimited
	case s.Traits.Each:
		return Unlimited, s.Pace.stretch(), 1
	}
	return Unlimited, s.Pace.call(), 1
}

// passesOver says whether an entry is left out of a call. waiting has the lanes of those that were, and will be
// parked.
func (s *Isolation) passesOver(e *dedup.Entry, waiting map[Lane]bool) bool {
	if v := s.verdict(e); v != nil {
		if v.entry.State == dedup.Parked {
			waiting[Lane{e.Scope, v.entry.Lane}] = true
		}
		return true
	}
	return len(s.blocked)+len(waiting) > 0 && (s.blocks(e) != nil || waiting[Lane{e.Scope, s.laneOf(e)}])
}
