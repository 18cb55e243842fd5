package handlers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Registry says which handlers a topic's messages go to. Fill it before the consumer starts; after that it is
// only read. The zero value is empty.
type Registry struct {
	byTopic map[string][]registered
}

type registered struct {
	name    string
	handler BatchHandler
}

// Register adds a handler for topics. Its name is part of what a message ID is unique within: renaming a
// handler makes every message new to it. A handler registered for several topics runs once for an ID, whichever
// of the topics brings it first.
func (r *Registry) Register(name string, h BatchHandler, topics ...string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("register handler: a name is required")
	case h == nil:
		return fmt.Errorf("register handler %s: the handler is nil", name)
	case len(topics) == 0:
		return fmt.Errorf("register handler %s: no topic given", name)
	}
	if r.byTopic == nil {
		r.byTopic = map[string][]registered{}
	}
	for _, topic := range topics {
		if slices.ContainsFunc(r.byTopic[topic], func(o registered) bool { return o.name == name }) {
			return fmt.Errorf("register handler %s: topic %s has a handler of that name already", name, topic)
		}
		r.byTopic[topic] = append(r.byTopic[topic], registered{name, h})
	}
	return nil
}

// Topics lists the topics that have a handler, sorted.
func (r *Registry) Topics() []string {
	return slices.Sorted(maps.Keys(r.byTopic))
}
