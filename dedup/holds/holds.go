// Package holds is how waiting is shown. Whatever has a partition, a topic, a handler or a whole program wait is a
// [Hold] of one [Registry], from which the log, status, health, metrics and doctor tell. The catalogue has all codes
// that a hold can have, with what to do about each.
package holds

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is the kind of a subject.
type Kind string

// The kinds; a subject's name is what stands behind.
const (
	PartitionKind Kind = "partition"  // TOPIC/N
	TopicKind     Kind = "topic"      // its name
	HandlerKind   Kind = "handler"    // its name
	GroupKind     Kind = "group"      // its name
	InboxKind     Kind = "inbox"      // its name
	BrokerKind    Kind = "broker"     // its number
	ReplayKind    Kind = "replay"     // its name
	DeadTopicKind Kind = "dead_topic" // its name
	StartKind     Kind = "start"      // of the program; what it waits for
)

// Subject names something that waits.
type Subject struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

func (s Subject) String() string { return string(s.Kind) + " " + s.Name }

// Partition is a partition as a subject.
func Partition(topic string, partition int32) Subject {
	return Subject{PartitionKind, fmt.Sprintf("%s/%d", topic, partition)}
}

// Hold is something that waits. It does not change.
type Hold struct {
	Subject
	// Code is one of the catalogue's.
	Code string `json:"code"`
	// Since is when it began to wait for this.
	Since time.Time `json:"since"`
	// Reason is the last try's error, as text.
	Reason string `json:"reason"`
	// Tries counts the tries that failed, 1 at least.
	Tries int `json:"tries"`
}

// Entry is the catalogue's entry of the hold's code.
func (h *Hold) Entry() Entry { return EntryOf(h.Code) }

// Registry has the holds of a process, and logs when they begin and end. Make it with New. It is safe for concurrent
// use. A nil Registry's places know their own hold, and nobody is told of it.
type Registry struct {
	mu     sync.Mutex
	log    *slog.Logger
	key    string // of each line; empty: none
	value  string
	places map[*Place]bool // that have a hold
	said   map[string]*said
}

// New makes a Registry that logs to log; nil stands for slog.Default().
func New(log *slog.Logger) *Registry {
	if log == nil {
		log = slog.Default()
	}
	return &Registry{log: log, places: map[*Place]bool{}, said: map[string]*said{}}
}

// LogTo has holds logged to another log from now on, each line with attribute key, unless it has that of its own.
func (r *Registry) LogTo(log *slog.Logger, key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log, r.key, r.value = log, key, value
}

// Place has the hold of something that waits, one at a time, or none. Several places may have the same subject. It is
// safe for concurrent use.
type Place struct {
	registry *Registry
	subject  Subject
	now      atomic.Pointer[Hold]
}

// Place makes a place where a subject may wait.
func (r *Registry) Place(kind Kind, name string) *Place {
	return &Place{registry: r, subject: Subject{kind, name}}
}

// Hold is the place's hold; nil where there is none.
func (p *Place) Hold() *Hold { return p.now.Load() }

// Code is the code of the place's hold; empty where there is none.
func (p *Place) Code() string {
	if h := p.now.Load(); h != nil {
		return h.Code
	}
	return ""
}

// Wait says that a try failed and another is made later, or never where that is for a person to decide. The first one
// of a code begins the hold, and is logged with attrs; a hold of another code has then ended.
func (p *Place) Wait(code string, reason error, attrs ...any) {
	p.WaitSince(time.Now(), code, reason, attrs...)
}

// WaitSince is Wait for a hold that is known to have begun before, where it begins with this.
func (p *Place) WaitSince(since time.Time, code string, reason error, attrs ...any) {
	p.registry.change(func(r *Registry) {
		next := Hold{Subject: p.subject, Code: code, Since: since, Reason: reason.Error(), Tries: 1}
		last := p.now.Load()
		if last != nil && last.Code == code {
			next.Since, next.Tries = last.Since, last.Tries+1
		}
		p.now.Store(&next)
		switch {
		case r == nil:
			return
		case last == nil:
			r.saying(code).begin(p, attrs)
		case last.Code != code:
			r.saying(last.Code).forget(p)
			r.saying(code).begin(p, attrs)
		}
		r.places[p] = true
	})
}

// End says that what was waited for has come: a try went through.
func (p *Place) End() { p.end((*said).end) }

// Leave says that the subject is waited for no longer, as where a partition is given up.
func (p *Place) Leave() { p.end((*said).forget) }

func (p *Place) end(say func(*said, *Place)) {
	if p.now.Load() == nil { // with each batch
		return
	}
	p.registry.change(func(r *Registry) {
		if h := p.now.Load(); h != nil && r != nil {
			say(r.saying(h.Code), p)
			delete(r.places, p)
		}
		p.now.Store(nil)
	})
}

// change has a hold begin or end, and logs what is to be logged then.
func (r *Registry) change(do func(*Registry)) {
	if r == nil {
		do(nil)
		return
	}
	r.mu.Lock()
	do(r)
	lines, log := r.due(time.Now()), r.log
	r.mark(lines)
	r.mu.Unlock()
	for _, l := range lines { // without the lock: a log may be slow
		log.Log(context.Background(), l.level, l.message, l.attrs...)
	}
}

// List gives all holds, the oldest first.
func (r *Registry) List() []Hold {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Hold, 0, len(r.places))
	for p := range r.places {
		list = append(list, *p.now.Load())
	}
	sorted(list)
	return list
}

// sorted puts the oldest first.
func sorted(list []Hold) {
	slices.SortFunc(list, func(a, b Hold) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.String(), b.String()))
	})
}
