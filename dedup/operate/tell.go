package operate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

// tell puts the facts into sentences.
func (e *Explanation) tell() []string {
	var t teller
	if e.Place != nil {
		e.tellPlace(&t)
	} else if len(e.Seen)+len(e.Waiting) == 0 {
		t.say("Message %s was never seen, by any handler of any inbox in this schema: it has not been delivered, "+
			"its batch has not committed yet, or its ID is another.", e.Asked)
	}
	if e.Place == nil && len(e.Seen)+len(e.Waiting) == 0 && !e.ForgottenBefore.IsZero() {
		t.say("Or it was forgotten: retention has deleted IDs that inbox %s saw first before %s.", e.Inbox,
			clock(e.ForgottenBefore))
	}
	for i := range e.Seen {
		e.tellSighting(&t, &e.Seen[i])
	}
	for i := range e.Waiting {
		e.Waiting[i].tellWaiting(&t, e.Now)
	}
	e.tellCaused(&t)
	switch {
	case len(e.Seen) > 0 && e.Seen[0].Inbox == dedup.OutboxInbox:
	case len(e.Seen) > 0 && e.Seen[0].Inbox != e.Inbox:
		t.say("Inbox %s, which was asked, has not seen it.", e.Inbox)
	case len(e.Unseen) > 0:
		t.say("These handlers of inbox %s have not seen it: %s.", e.Inbox, strings.Join(e.Unseen, ", "))
	}
	return t.sentences
}

type teller struct{ sentences []string }

func (t *teller) say(format string, args ...any) {
	t.sentences = append(t.sentences, fmt.Sprintf(format, args...))
}

func (e *Explanation) tellPlace(t *teller) {
	p := e.Place
	switch {
	case len(e.Seen) > 0 && p.Conflict:
		t.say("At %s lay a copy of message %s with another content than the first one's. "+
			"It was not handled: the first one stands.", p, e.id())
	case len(e.Seen) > 0:
		t.say("At %s lay message %s.", p, e.id())
	}
	if len(p.Consumers) == 0 && len(e.Seen) == 0 && p.Partition >= 0 {
		t.say("No consumer has a position in %s/%d: nothing of it was read through this schema.", p.Topic, p.Partition)
	}
	for _, c := range p.Consumers {
		c.tell(t, p)
	}
	if len(e.Seen) == 0 && !p.SearchedFrom.IsZero() {
		t.say("Nothing that is kept came from this offset; the inbox was searched back to %s.", clock(p.SearchedFrom))
		if len(p.Consumers) > 0 {
			t.say("So it was a copy of a message that was seen before, which leaves no trace (ask for its ID); " +
				"or a record of the broker's own, or removed from the topic before it was read; " +
				"or it lies below the offset that the consumer began at; or it was processed earlier than that.")
		}
	}
}

// id names the sightings' message.
func (e *Explanation) id() string {
	for _, f := range e.Seen {
		if f.Stored != nil {
			return f.Stored.Message.ID.String()
		}
	}
	return "of an ID whose content is kept no more"
}

func (c *Position) tell(t *teller, p *Place) {
	switch {
	case c.Next < 0:
		t.say("Consumer %s has acquired the partition and not read of it yet.", c.Consumer)
	case c.Next > p.Offset:
		t.say("Consumer %s is past it: its position is %d.", c.Consumer, c.Next)
	case c.Next < p.Offset:
		t.say("Consumer %s has not reached it: its position is %d, %s before it, and last moved at %s.",
			c.Consumer, c.Next, counted(p.Offset-c.Next, "offset"), clock(c.MovedAt))
	default:
		t.say("Consumer %s is right at it since %s: it is next, once it arrives; "+
			"if it has arrived, the partition is held.", c.Consumer, clock(c.MovedAt))
	}
	if c.Owner != "" && c.Next <= p.Offset {
		again := ""
		if c.Fruitless > 1 {
			again = fmt.Sprintf(", the %s time without getting on", ordinal(c.Fruitless))
		}
		t.say("Its owner is %s, since %s%s; the log of that process says what holds it.", c.Owner,
			clock(c.AcquiredAt), again)
	}
}

func (e *Explanation) tellSighting(t *teller, f *Sighting) {
	who := fmt.Sprintf("Handler %s of inbox %s", f.Handler, f.Inbox)
	if f.Inbox == dedup.OutboxInbox {
		who = fmt.Sprintf("Destination %s of the outbox", f.Handler)
	}
	if f.Tenant != "" {
		who += ", for tenant " + f.Tenant + ","
	}
	if f.Stored == nil {
		t.say("%s saw it first at %s.", who, clock(f.FirstSeenAt))
		f.tellGone(t, e.DroppedBefore)
	} else {
		m := &f.Stored.Message
		written := ""
		if m.RawID != "" {
			written = ", under the ID " + strconv.Quote(m.RawID)
		}
		t.say("%s saw it first at %s, at %s%s.", who, clock(f.FirstSeenAt), m.Place(), written)
		f.tellCause(t)
		f.tellState(t, e.Now)
	}
	for _, a := range f.Audit {
		t.say("%s: %s by %s: %s.", clock(a.At), a.Action, a.Actor, strings.TrimSuffix(a.Why, "."))
	}
	if n := len(f.Conflicts); n > 0 {
		last := &f.Conflicts[0]
		least := ""
		if f.MoreConflicts {
			least = "at least "
		}
		t.say("Under its ID "+least+"%s with another content came later and %s not handled, the last at %s from %s.",
			counted(int64(n), "copy"), was(n), clock(last.SeenAt), last.Message.Place())
	}
}

func (f *Sighting) tellGone(t *teller, dropped time.Time) {
	switch n := len(f.Audit); {
	case n > 0 && f.Audit[n-1].Action == "discard":
		t.say("Its content is gone: it was discarded.")
	case f.FirstSeenAt.Before(dropped):
		t.say("Its content is kept no more: it was %s, and retention has dropped the "+
			"inbox's days before %s since.", f.handled(), dropped.UTC().Format(time.DateOnly))
	default:
		t.say("Its content is kept no more: it was %s, and its day has been dropped from the inbox since.", f.handled())
	}
}

func (f *Sighting) tellState(t *teller, now time.Time) {
	m := f.Stored
	failed := ""
	if m.Attempts > 0 {
		failed = ", after " + counted(int64(m.Attempts), "failed attempt")
	}
	switch m.State {
	case dedup.Processed:
		if m.At.Equal(m.ReceivedAt) {
			t.say("It was %s in that transaction.", f.handled())
			return
		}
		t.say("It was %s at %s%s.", f.handled(), clock(m.At), failed)
	case dedup.Dead:
		t.say("It was given up at %s%s (%s).", clock(m.At), failed, cause(m))
		if slices.Contains(identity.Reasons(), m.Reason) {
			t.say("It has no message ID but that of its place, so it can't be redriven: " +
				"a replay of its offset finds its ID by the rule of today; then discard it.")
			return
		}
		t.say("It lies in the dead letters until it is redriven or discarded; a copy that arrives is not %s.", f.handled())
	case dedup.Parked:
		t.say("It has been waiting in its lane since %s%s.", clock(m.At), failed)
		f.tellLane(t, now)
	}
}

func (f *Sighting) tellLane(t *teller, now time.Time) {
	l := f.Lane
	if l == nil {
		t.say("The lane has just moved on: ask again.")
		return
	}
	if l.Ahead > 0 {
		t.say("%s before it, of which the first is message %s at %s.",
			capital(counted(int64(l.Ahead), "unfinished message")), l.Head.Message.ID, l.Head.Message.Place())
	}
	subject := "It"
	if l.Ahead > 0 {
		subject = "That one"
	}
	if l.Head.Reason != "" {
		t.say("%s has failed %s (%s).", subject, counted(int64(l.Head.Attempts), "time"), cause(&l.Head))
	}
	switch late := now.Sub(l.DueAt); {
	case late < 0 && l.Claims > 0:
		t.say("A worker has taken the lane; if it dies, others may take it after %s.", clock(l.DueAt))
	case late < 0:
		t.say("The lane is tried next at %s.", clock(l.DueAt))
	case late < time.Minute:
		t.say("The lane is due now.")
	default:
		t.say("The lane is due since %s and nobody has taken it, or its worker is still busy: "+
			"is a process running that has handler %s?", clock(l.DueAt), f.Handler)
	}
}

// cause is a failure's reason and text, on one line.
func cause(m *Stored) string {
	if m.Error == "" {
		return m.Reason
	}
	return m.Reason + ": " + strings.Join(strings.Fields(m.Error), " ")
}

func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000 MST") }

func counted(n int64, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "y"):
		what = strings.TrimSuffix(what, "y") + "ie"
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

func was(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// capital begins a sentence with "There is" or "There are".
func capital(what string) string {
	if strings.HasPrefix(what, "1 ") {
		return "There is " + what
	}
	return "There are " + what
}

func ordinal(n int) string {
	switch {
	case n%100/10 == 1:
	case n%10 == 1:
		return strconv.Itoa(n) + "st"
	case n%10 == 2:
		return strconv.Itoa(n) + "nd"
	case n%10 == 3:
		return strconv.Itoa(n) + "rd"
	}
	return strconv.Itoa(n) + "th"
}
