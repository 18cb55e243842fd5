package consumer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
)

// Topic is one topic to read, or all whose names match a pattern. Either Name or Pattern is required.
type Topic struct {
	Name string
	// Pattern is a regular expression, see [handlers.ParsePattern], for all topics whose whole name it matches and that no
	// other entry names, nor an earlier one matches; also those that appear later. Each of them is read from its first
	// message. Kafka's own topics are none of them, nor others whose names begin with two underscores, nor the config's
	// DeadTopic. A topic that was deleted is let go.
	Pattern string
	// Identity says where message IDs come from. Default: the header message-id, then the header id.
	Identity *identity.Rule
	// TenantHeader names the header that holds a message's tenant. Default none: all messages have the same.
	TenantHeader string
	// Fingerprint compares a copy's content with the first message's of its ID. Default none: copies are duplicates.
	Fingerprint identity.FingerprintMode
	// Format decodes values, for handlers that take JSON and for IDs that are looked for in it; package handlers/schemas
	// has one. While what it needs can't be had, the partition is held. Default none: values are what they are.
	Format handlers.Format

	pattern handlers.Pattern
}

// Checked is a topic, by its name, with a default wherever it says nothing, or what is wrong with it.
func (t Topic) Checked() (Topic, error) {
	err := t.prepare()
	switch {
	case t.Pattern != "":
		err = errors.Join(fmt.Errorf("topic: %s is a pattern, and one topic's name is required", t.Pattern), err)
	case t.Name == "":
		err = errors.Join(errors.New("topic: a name is required"), err)
	}
	return t, err
}

func (t *Topic) prepare() (err error) {
	if t.Identity == nil {
		t.Identity, _ = identity.NewRule() // the default can't be wrong
	}
	if t.Pattern != "" {
		if t.pattern, err = handlers.ParsePattern(t.Pattern); err != nil {
			return fmt.Errorf("topic: %w", err)
		}
	}
	if err := t.Fingerprint.Validate(); err != nil {
		return fmt.Errorf("topic %s: %w", t.Name+t.Pattern, err)
	}
	return nil
}

// byPattern says that the entry names no topic.
func (t Topic) byPattern() bool { return t.Name == "" && t.Pattern != "" }

func (t *Topic) matches(name string) bool {
	p := t.pattern
	if p == (handlers.Pattern{}) {
		p, _ = handlers.ParsePattern(t.Pattern) // nobody has prepared it; one that is at fault matches nothing
	}
	return p.Matches(name)
}

// message says how a record becomes a message.
func (t *Topic) message() fetch.Settings {
	return fetch.Settings{Rule: t.Identity, TenantHeader: t.TenantHeader, Fingerprint: t.Fingerprint, Format: t.Format}
}

// Topic is what the config says of a topic, by the entry of its name or the first one whose pattern matches it; false:
// it is none that is read.
func (c *Config) Topic(name string) (t Topic, is bool) {
	entry := c.entry(name)
	if entry == nil {
		return Topic{}, false
	}
	t = *entry
	t.Name, t.Pattern, t.pattern = name, "", handlers.Pattern{}
	return t, true
}

// entry is the one of Topics that a topic belongs to; nil: it is none that is read.
func (c *Config) entry(name string) *Topic {
	if i := slices.IndexFunc(c.Topics, func(t Topic) bool { return t.Name == name }); i >= 0 && name != "" {
		return &c.Topics[i]
	}
	if name == c.DeadTopic {
		return nil // what died would come again
	}
	for i := range c.Topics {
		if t := &c.Topics[i]; t.byPattern() && t.matches(name) {
			return t
		}
	}
	return nil
}

// Formats gives the formats of topics' values, as Topics say; nil: they say none.
func (c *Config) Formats() handlers.Formats {
	if !slices.ContainsFunc(c.Topics, func(t Topic) bool { return t.Format != nil }) {
		return nil
	}
	topics := Config{Topics: slices.Clone(c.Topics), DeadTopic: c.DeadTopic}
	for i := range topics.Topics {
		_ = topics.Topics[i].prepare() // its patterns, now: it is asked by many at once
	}
	return func(topic string) handlers.Format {
		if entry := topics.entry(topic); entry != nil {
			return entry.Format
		}
		return nil
	}
}

// prepareTopics fills in the defaults. named and patterns are what has a handler.
func (c *Config) prepareTopics(named, patterns []string) error {
	c.Topics = slices.Clone(c.Topics)
	if len(c.Topics) == 0 {
		for _, name := range named {
			c.Topics = append(c.Topics, Topic{Name: name})
		}
		for _, pattern := range patterns {
			c.Topics = append(c.Topics, Topic{Pattern: pattern})
		}
	}
	var faults []error
	for i := range c.Topics {
		t := &c.Topics[i]
		faults = append(faults, c.checkName(i), t.prepare())
		if !t.handled(named, patterns) {
			faults = append(faults, fmt.Errorf("topic %s: no handler is registered for it", t.Name+t.Pattern))
		}
	}
	return errors.Join(faults...)
}

func (c *Config) checkName(i int) error {
	t := &c.Topics[i]
	same := func(o Topic) bool { return o.Name == t.Name && o.Pattern == t.Pattern }
	switch {
	case t.Name == "" && t.Pattern == "":
		return fmt.Errorf("topics[%d]: a name is required, or a pattern", i)
	case t.Name != "" && t.Pattern != "":
		return fmt.Errorf("topic %s: it has the pattern %s too, and an entry has one of the two", t.Name, t.Pattern)
	case slices.ContainsFunc(c.Topics[:i], same):
		return fmt.Errorf("topic %s: named twice", t.Name+t.Pattern)
	}
	return nil
}

// handled says that what the entry stands for has a handler: for a pattern the same one must be registered, so that each
// topic that it matches has.
func (t *Topic) handled(named, patterns []string) bool {
	switch {
	case t.Name == "":
		return t.Pattern == "" || slices.Contains(patterns, t.Pattern)
	case slices.Contains(named, t.Name):
		return true
	}
	return slices.ContainsFunc(patterns, func(text string) bool {
		p, err := handlers.ParsePattern(text)
		return err == nil && p.Matches(t.Name)
	})
}
