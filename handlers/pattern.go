package handlers

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Pattern picks topics by their names. Make it with [ParsePattern]; the zero value picks none. It is safe for concurrent
// use.
type Pattern struct {
	text  string
	whole *regexp.Regexp
}

// ParsePattern reads a regular expression in the syntax of RE2 (package regexp/syntax).
func ParsePattern(text string) (Pattern, error) {
	if text == "" {
		return Pattern{}, errors.New("a pattern is required, like orders\\..*")
	}
	if _, err := regexp.Compile(text); err != nil { // by itself: what is around it could close its parentheses
		return Pattern{}, fmt.Errorf("pattern %s is no regular expression: %s", text,
			strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	whole, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil {
		return Pattern{}, fmt.Errorf("pattern %s: %w", text, err)
	}
	return Pattern{text, whole}, nil
}

// String is the regular expression as it was written.
func (p Pattern) String() string { return p.text }

// Matches says that the pattern matches the whole of a topic's name. It matches no name that begins with two
// underscores: such topics are Kafka's own, or another program's.
func (p Pattern) Matches(topic string) bool {
	return p.whole != nil && !strings.HasPrefix(topic, "__") && p.whole.MatchString(topic)
}
