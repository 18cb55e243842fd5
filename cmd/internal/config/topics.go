package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
)

// topicName is Kafka's own rule.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (l *loader) checkTopics(c *Config) {
	if len(c.Topics) == 0 && len(c.Outbox.Destinations) == 0 && !l.has("outbox.destinations") && !l.elsewhere {
		l.require("topics", "", "list at least one with its handlers, or outbox.destinations to only send")
	}
	first := map[string]int{}
	before := map[string]Handler{}
	for i, t := range c.Topics {
		at := fmt.Sprintf("topics[%d]", i)
		l.checkTopic(at, t, first, i)
		l.checkIdentity(at+".id", t.ID)
		l.choice(at+".fingerprint", t.Fingerprint)
		l.choice(at+".format", t.Format)
		l.checkHandlers(at, t.Handlers, before)
	}
}

// checkTopic checks what an entry is for; first has the entries before, by what they are for.
func (l *loader) checkTopic(at string, t Topic, first map[string]int, i int) {
	patterned := t.Pattern != "" || valueAt(l.raw, at+".pattern") != nil || l.has(at+".pattern")
	switch {
	case t.Name != "" && patterned:
		l.fault(at+".pattern", "is given beside name; keep one of the two")
	case patterned:
		l.checkPattern(at+".pattern", t.Pattern, first, i)
	case l.require(at+".name", t.Name, "name the topic, or give a pattern"):
		l.checkTopicName(at, t.Name, first, i)
	}
}

func (l *loader) checkPattern(path, pattern string, first map[string]int, i int) {
	if !l.require(path, pattern, "write a regular expression, like 'orders\\..*', or name the topic") {
		return
	}
	if _, err := handlers.ParsePattern(pattern); err != nil {
		text := err.Error()
		if l.unshown[path] {
			text = "it is no regular expression in the syntax of RE2"
		}
		l.fault(path, "can't be used: %s", text)
	}
	const of = "pattern " // what no topic's name begins with
	if other, twice := first[of+pattern]; twice {
		l.fault(path, "is the pattern of topics[%d] already; list all its handlers there", other)
		return
	}
	first[of+pattern] = i
}

// Label is the topic's name, or the pattern.
func (t Topic) Label() string { return t.Name + t.Pattern }

// Patterns are those of the topics, in the order in which they are tried.
func (c *Config) Patterns() (list []string) {
	for _, t := range c.Topics {
		if t.Pattern != "" {
			list = append(list, t.Pattern)
		}
	}
	return list
}

// TopicOf is what the config says of a topic: the entry of its name or, where there is none, the first one whose pattern
// matches it. False: the config reads no such topic.
func (c *Config) TopicOf(name string) (Topic, bool) {
	if i := slices.IndexFunc(c.Topics, func(t Topic) bool { return t.Name == name && name != "" }); i >= 0 {
		return c.Topics[i], true
	}
	if matching := c.matching(c.parsed(), name); len(matching) > 0 {
		return matching[0], true
	}
	return Topic{}, false
}

// parsed are the topics' patterns; one that is at fault, or that there is none of, picks none.
func (c *Config) parsed() []handlers.Pattern {
	patterns := make([]handlers.Pattern, len(c.Topics))
	for i, t := range c.Topics {
		patterns[i], _ = handlers.ParsePattern(t.Pattern)
	}
	return patterns
}

// matching are the entries whose patterns match a topic that may be one of a pattern.
func (c *Config) matching(patterns []handlers.Pattern, name string) (list []Topic) {
	for i, p := range patterns {
		if p.Matches(name) && name != c.DeadLetterTopic {
			list = append(list, c.Topics[i])
		}
	}
	return list
}

// Several are the patterns that match a topic where no entry names it and more than one does; the first has it.
func (c *Config) Several(name string) (patterns []string) {
	if t, is := c.TopicOf(name); !is || t.Name != "" {
		return nil
	}
	for _, t := range c.matching(c.parsed(), name) {
		patterns = append(patterns, t.Pattern)
	}
	if len(patterns) == 1 {
		return nil
	}
	return patterns
}

// ReadOf are the topics that are read: those that are named, and of all topics of a cluster those that a pattern matches.
func (c *Config) ReadOf(all []string) (names []string) {
	for _, t := range c.Topics {
		if t.Name != "" {
			names = append(names, t.Name)
		}
	}
	patterns := c.parsed()
	named := len(names)
	for _, name := range slices.Sorted(slices.Values(all)) {
		if !slices.Contains(names[:named], name) && len(c.matching(patterns, name)) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (l *loader) checkTopicName(at, name string, first map[string]int, i int) {
	l.checkName(at+".name", name)
	if other, twice := first[name]; twice {
		l.fault(at+".name", "is the topic of topics[%d] already; list all its handlers there", other)
		return
	}
	first[name] = i
}

func (l *loader) checkName(path, name string) {
	if !topicName.MatchString(name) || name == "." || name == ".." {
		l.fault(path, "is no name of a topic; Kafka takes up to 249 letters, digits, dots, _ and -")
	}
}

func (l *loader) checkDeadLetterTopic(c *Config) {
	const path = "dead_letter_topic"
	if c.DeadLetterTopic == "" {
		return
	}
	l.checkName(path, c.DeadLetterTopic)
	if len(c.Topics) == 0 && !l.has("topics") && !l.elsewhere {
		l.fault(path, "has no effect while no topics are read; what the outbox gives up lies in Postgres only")
	}
	if i := slices.IndexFunc(c.Topics, func(t Topic) bool { return t.Name == c.DeadLetterTopic }); i >= 0 {
		l.fault(path, "is the topic of topics[%d]; what died would come again: name another", i)
	}
}

func (l *loader) checkIdentity(path string, texts Sources) {
	before := len(l.faults)
	sources := make([]identity.Source, len(texts))
	for i, text := range texts {
		err := sources[i].UnmarshalText([]byte(text))
		if err != nil {
			l.fault(fmt.Sprintf("%s[%d]", path, i), "%s", l.sourceFault(path, err))
		}
	}
	if len(l.faults) > before {
		return
	}
	if _, err := identity.NewRule(sources...); err != nil {
		l.fault(path, "%s", l.sourceFault(path, err))
	}
}

func (l *loader) sourceFault(path string, err error) string {
	for hiddenPath := range l.unshown {
		if strings.HasPrefix(hiddenPath, path) {
			return "is no source of an ID; write header:NAME, cloudevents, json:/POINTER, key, " +
				"position, hash, or hash:/POINTER,/POINTER"
		}
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
