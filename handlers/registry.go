package handlers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/firstseen/firstseen/dedup"
)

// Registry says which handlers a topic's messages go to. Fill it before the consumer starts; after that it is
// only read. The zero value is empty.
type Registry struct {
	byTopic map[string][]*registered
	all     []*registered
}

type registered struct {
	name        string
	handler     BatchHandler
	detached    Detached
	concurrency int
	connections int
	retry       Retry
	ordering    dedup.Ordering
	pace        pace        // of new messages
	lanePace    pace        // of parked ones, which fail more often
	singly      atomic.Bool // its temporary tables are in the way of its next call in the same transaction
}

// mostAtOnce caps the messages of a call where none has failed lately.
func (t *registered) mostAtOnce() int {
	if _, ok := t.handler.(queue); ok {
		return mostQueued
	}
	return unlimited
}

// Registration is a handler and how it is to be run.
type Registration struct {
	// Name is part of what a message ID is unique within: renaming a handler makes every message new to it. Required.
	Name string
	// Topics are those whose messages it gets; an ID that comes by several of them is handled once. Required.
	Topics []string
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
	if len(r.Topics) == 0 {
		faults = append(faults, errors.New("no topic given"))
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
	if r.byTopic == nil {
		r.byTopic = map[string][]*registered{}
	}
	r.all = append(r.all, h)
	for _, topic := range reg.Topics {
		if !slices.Contains(r.byTopic[topic], h) {
			r.byTopic[topic] = append(r.byTopic[topic], h)
		}
	}
	return nil
}

// Topics lists the topics that have a handler, sorted.
func (r *Registry) Topics() []string {
	return slices.Sorted(maps.Keys(r.byTopic))
}
