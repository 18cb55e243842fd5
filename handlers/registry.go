package handlers

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// Registry says which handlers a topic's messages go to: those that were registered for its name. Where none was, they
// are those of the first pattern that matches it. A pattern adds no handlers to a topic that has some by its name, nor to
// one that an earlier pattern has. Fill it before the consumer starts; after that it is only read. The zero value is
// empty.
type Registry struct {
	byTopic   map[string][]*registered
	byPattern []*patterned // in the order in which they are tried
	all       []*registered
}

// patterned are the handlers of a pattern.
type patterned struct {
	Pattern
	handlers []*registered
}

type registered struct {
	name        string
	handler     BatchHandler
	detached    Detached
	concurrency int
	connections int
	retry       Retry
	ordering    dedup.Ordering
	traits      isolate.Traits
	pace        isolate.Pace // of new messages
	lanePace    isolate.Pace // of parked ones, which fail more often
}

// mostAtOnce caps the messages of a call where none has failed lately.
func (t *registered) mostAtOnce() int {
	if t.traits.Queue {
		return isolate.MostQueued
	}
	return isolate.Unlimited
}

// Registration is a handler and how it is to be run.
type Registration struct {
	// Name is part of what a message ID is unique within: renaming a handler makes every message new to it. Required.
	Name string
	// Topics are those whose messages it gets; an ID that comes by several of them is handled once. Required, unless
	// Patterns are given.
	Topics []string
	// Patterns are regular expressions for more topics, see [ParsePattern]: those whose whole name one of them matches
	// and that no handler is registered for by name, whenever they appear. Default none.
	Patterns []string
	// Handler runs in the transaction that marks its messages as seen. Either it or Detached is required.
	Handler BatchHandler
	// Detached runs outside of it.
	Detached Detached
	// Concurrency is how many messages a detached handler is given at once, in this process. Default 8.
	Concurrency int
	// Connections is how many connections of the store's own pool one call of the handler takes at once, beside its
	// transaction's. Where the pool has too few for all calls that may be under way, the consumer refuses to start.
	// Default 0.
	Connections int
	// Retry is for messages that the handler fails on.
	Retry Retry
	// Ordering says what waits for such a message. Default: the later messages of its key.
	Ordering dedup.Ordering
}

func (r *Registration) validate() error {
	var faults []error
	if err := dedup.CheckName(r.Name); err != nil {
		faults = append(faults, err)
	}
	if (r.Handler == nil) == (r.Detached == nil) {
		faults = append(faults, errors.New("either a handler or a detached one is required"))
	}
	if len(r.Topics)+len(r.Patterns) == 0 {
		faults = append(faults, errors.New("no topic given"))
	}
	for _, pattern := range r.Patterns {
		if _, err := ParsePattern(pattern); err != nil {
			faults = append(faults, err)
		}
	}
	for _, topic := range r.Topics {
		if err := dedup.CheckName(topic); err != nil {
			faults = append(faults, fmt.Errorf("topic: %w", err))
		}
	}
	return errors.Join(append(faults, r.Retry.validate(), r.Ordering.Validate())...)
}

// WithDefaults is the registration with a default wherever it says nothing.
func (r Registration) WithDefaults() Registration {
	r.Retry.setDefaults()
	if r.Concurrency <= 0 {
		r.Concurrency = 8
	}
	if r.Ordering == "" {
		r.Ordering = dedup.OrderByKey
	}
	return r
}

// Register adds a handler for topics, with the defaults of Registration for everything else.
func (r *Registry) Register(name string, h BatchHandler, topics ...string) error {
	return r.Add(Registration{Name: name, Handler: h, Topics: topics})
}

// Add adds a handler. It reports every fault at once.
func (r *Registry) Add(reg Registration) error {
	if err := reg.validate(); err != nil {
		return fmt.Errorf("register handler %s: %w", reg.Name, err)
	}
	if slices.ContainsFunc(r.all, func(o *registered) bool { return o.name == reg.Name }) {
		return fmt.Errorf("register handler %s: there is one of that name already", reg.Name)
	}
	reg = reg.WithDefaults()
	h := &registered{name: reg.Name, handler: reg.Handler, detached: reg.Detached, concurrency: reg.Concurrency,
		connections: max(0, reg.Connections), retry: reg.Retry, ordering: reg.Ordering}
	_, h.traits.Each = reg.Handler.(each)
	_, h.traits.Queue = reg.Handler.(queue)
	r.all = append(r.all, h)
	r.give(h, reg.Topics, reg.Patterns)
	return nil
}

// give adds the handler to topics, and to patterns that are known to be well.
func (r *Registry) give(h *registered, topics, patterns []string) {
	if r.byTopic == nil {
		r.byTopic = map[string][]*registered{}
	}
	for _, topic := range topics {
		if !slices.Contains(r.byTopic[topic], h) {
			r.byTopic[topic] = append(r.byTopic[topic], h)
		}
	}
	for _, text := range patterns {
		if p := r.pattern(text); !slices.Contains(p.handlers, h) {
			p.handlers = append(p.handlers, h)
		}
	}
}

// pattern is the entry of a pattern, made where there is none yet.
func (r *Registry) pattern(text string) *patterned {
	if i := slices.IndexFunc(r.byPattern, func(p *patterned) bool { return p.text == text }); i >= 0 {
		return r.byPattern[i]
	}
	parsed, _ := ParsePattern(text) // checked
	r.byPattern = append(r.byPattern, &patterned{Pattern: parsed})
	return r.byPattern[len(r.byPattern)-1]
}

// Prefer says in which order patterns are tried: these first, and then the others, in the order in which handlers were
// added for them. Those that no handler has are left out.
func (r *Registry) Prefer(patterns ...string) {
	place := func(p *patterned) int {
		if i := slices.Index(patterns, p.text); i >= 0 {
			return i
		}
		return len(patterns)
	}
	slices.SortStableFunc(r.byPattern, func(a, b *patterned) int { return place(a) - place(b) })
}

// Topics lists the topics that have a handler by their names, sorted.
func (r *Registry) Topics() []string {
	return slices.Sorted(maps.Keys(r.byTopic))
}

// Patterns lists the patterns that have a handler, in the order in which they are tried.
func (r *Registry) Patterns() []string {
	texts := make([]string, len(r.byPattern))
	for i, p := range r.byPattern {
		texts[i] = p.text
	}
	return texts
}

// of are a topic's handlers, in the order in which they were added; none: it has none.
func (r *Registry) of(topic string) []*registered {
	if named, is := r.byTopic[topic]; is {
		return named
	}
	for _, p := range r.byPattern {
		if p.Matches(topic) {
			return p.handlers
		}
	}
	return nil
}

// only is the handler of that name where it is one of a topic's; of no name: all of the topic's.
func (r *Registry) only(name, topic string) []*registered {
	all := r.of(topic)
	if name == "" {
		return all
	}
	if i := slices.IndexFunc(all, func(h *registered) bool { return h.name == name }); i >= 0 {
		return all[i : i+1]
	}
	return nil
}

// noHandler says that a topic lacks the handler of that name, or of no name: any.
func noHandler(name string) error {
	if name == "" {
		return errors.New("the topic has no handler")
	}
	return fmt.Errorf("the topic has no handler %s", name)
}
