package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/firstseen/firstseen/dedup/identity"
)

// topicName is what Kafka takes.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (l *loader) checkTopics(topics []Topic) {
	if len(topics) == 0 {
		l.require("topics", "", "list at least one with its handlers")
	}
	first := map[string]int{}
	before := map[string]Handler{}
	for i, t := range topics {
		at := fmt.Sprintf("topics[%d]", i)
		if l.require(at+".name", t.Name, "name the topic") {
			l.checkTopicName(at, t.Name, first, i)
		}
		l.checkIdentity(at+".id", t.ID)
		l.choice(at+".fingerprint", t.Fingerprint)
		l.checkHandlers(at, t.Handlers, before)
	}
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
