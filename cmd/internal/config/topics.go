package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/firstseen/firstseen/dedup"
)

// topicName is what Kafka takes.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (l *loader) checkTopics(topics []Topic) {
	if len(topics) == 0 {
		l.require("topics", "", "list at least one with its handlers")
	}
	first := map[string]int{}
	functions := map[string]Handler{}
	for i, t := range topics {
		at := fmt.Sprintf("topics[%d]", i)
		if l.require(at+".name", t.Name, "name the topic") {
			l.checkTopicName(at, t.Name, first, i)
		}
		l.checkIdentity(at+".id", t.ID)
		l.checkHandlers(at, t.Handlers, functions)
	}
}

func (l *loader) checkTopicName(at, name string, first map[string]int, i int) {
	if !topicName.MatchString(name) || name == "." || name == ".." {
		l.fault(at+".name", "is no name of a topic; Kafka takes up to 249 letters, digits, dots, _ and -")
	}
	if other, twice := first[name]; twice {
		l.fault(at+".name", "is the topic of topics[%d] already; list all its handlers there", other)
		return
	}
	first[name] = i
}

func (l *loader) checkIdentity(path string, texts Sources) {
	before := len(l.faults)
	sources := make([]dedup.Source, len(texts))
	for i, text := range texts {
		err := sources[i].UnmarshalText([]byte(text))
		if err != nil {
			l.fault(fmt.Sprintf("%s[%d]", path, i), "%s", l.sourceFault(path, err))
		}
	}
	if len(l.faults) > before {
		return
	}
	if _, err := dedup.NewIdentity(sources...); err != nil {
		l.fault(path, "%s", l.sourceFault(path, err))
	}
}

func (l *loader) sourceFault(path string, err error) string {
	for hiddenPath := range l.unshown {
		if strings.HasPrefix(hiddenPath, path) {
			return "is no source of an ID; write header:NAME, cloudevents, json:/POINTER, key, position, hash, or hash:/POINTER,/POINTER"
		}
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// checkHandlers checks one topic's handlers; functions are those of the topics before it, by handler.
func (l *loader) checkHandlers(topic string, handlers []Handler, functions map[string]Handler) {
	if len(handlers) == 0 {
		l.require(topic+".handlers", "", "list at least one, {name: NAME, function: SCHEMA.FUNCTION}")
	}
	here := map[string]bool{}
	for i, h := range handlers {
		at := fmt.Sprintf("%s.handlers[%d]", topic, i)
		named := l.require(at+".name", h.Name, "the name is what the handler's seen IDs are kept under")
		if l.require(at+".function", h.Function, "name the Postgres function, like billing.book_order") {
			if err := checkFunction(h.Function); err != nil {
				l.fault(at+".function", "%v", err)
			}
		}
		if !named {
			continue
		}
		other, known := functions[h.Name]
		switch {
		case here[h.Name]:
			l.fault(at+".name", "is the name of another handler of this topic; give each its own")
		case known && other.Function != h.Function:
			l.fault(at+".name", "is the name of a handler with another function; handlers of one name share the IDs that they have seen, "+
				"so give each function its own")
		}
		here[h.Name], functions[h.Name] = true, h
	}
}

func checkFunction(name string) error {
	if !strings.Contains(name, `"`) && strings.ContainsAny(name, "(); ") {
		return errors.New("is no name of a function; write it without arguments, like billing.book_order")
	}
	return nil
}
