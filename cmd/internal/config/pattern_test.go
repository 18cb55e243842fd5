package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/handlers"
)

func TestPatternIsCheckedAndItsFaultsNameTheKey(t *testing.T) {
	for text, want := range map[string][]string{
		"{pattern: 'orders('}":            {"topics[0].pattern: can't be used: pattern orders( is no regular expression: missing closing ): `orders(`"},
		"{pattern: ''}":                   {"topics[0].pattern: is required; write a regular expression, like 'orders\\..*', or name the topic"},
		"{pattern: '${PATTERN}'}":         {"topics[0].pattern: can't be used: it is no regular expression in the syntax of RE2"},
		"{name: orders, pattern: orders}": {"topics[0].pattern: is given beside name; keep one of the two"},
		"{pattern: [orders]}":             {"topics[0].pattern: is not a text; put it in quotes"},
		"{}":                              {"topics[0].name: is required; name the topic, or give a pattern"},
	} {
		text = withoutTopics + "topics: [{handlers: [{name: h, function: f}], " + text[1:] + "]\n"
		_, err := loadText(t, text, "PATTERN=secret(")
		require.Equal(t, want, faults(t, err), text)
	}
	_, err := loadText(t, withoutTopics+`start_at: latest
ingress: {topics: [orders.eu, refunds]}
topics:
  - {pattern: 'orders\..*', handlers: [{name: h, function: f}]}
  - {pattern: 'orders\..*', handlers: [{name: h, function: f}]}
`)
	require.Equal(t, []string{
		"topics[1].pattern: is the pattern of topics[0] already; list all its handlers there",
		"start_at: can't be latest beside topics[0].pattern: messages that are written before such a topic is found would be " +
			"skipped; take it out, or name the topics",
		"ingress.topics[1]: is none of the topics",
	}, faults(t, err))
	_, err = loadText(t, withoutTopics+`topics: [{pattern: "orders\..*", handlers: [{name: h, function: f}]}]`)
	require.ErrorContains(t, err, "in double quotes \\ begins an escape; write a regular expression in single quotes")
}

// patterned has a topic by name, and two patterns whose order is not that of their handlers.
const patterned = withoutTopics + `
dead_letter_topic: orders.dead
topics:
  - {pattern: '.*\.eu', id: position, handlers: [{name: second, function: f}]}
  - {pattern: 'orders\..*', handlers: [{name: first, function: f}, {name: second, function: f}]}
  - {name: orders.eu.old, id: key, handlers: [{name: named, function: f}]}
`

func TestTopicBelongsToItsNameAndElseToTheFirstPattern(t *testing.T) {
	c, err := loadText(t, patterned)
	require.NoError(t, err)
	registrations, err := c.Registrations(func(string) (handlers.BatchHandler, error) {
		return handlers.BatchHandlerFunc(nil), nil
	})
	require.NoError(t, err)
	var registry handlers.Registry
	for _, r := range registrations {
		require.NoError(t, registry.Add(r))
	}
	registry.Prefer(c.Patterns()...)
	require.Equal(t, []string{"orders.eu.old"}, registry.Topics())
	require.Equal(t, []string{`.*\.eu`, `orders\..*`}, registry.Patterns())

	settings := c.settings()
	settings.Topics, err = c.topics()
	require.NoError(t, err)
	for name, want := range map[string]string{
		"orders.eu": "position", "orders.us": "header:message-id", "orders.eu.old": "key", "orders.dead": "", "__x.eu": "",
	} {
		of, is := c.TopicOf(name)
		require.Equal(t, want != "", is, name)
		topic, is := settings.Topic(name)
		require.Equal(t, want != "", is, name)
		if is {
			require.Equal(t, want, of.ID[0], name)
			require.Equal(t, name, topic.Name)
			require.Equal(t, want == "position", topic.Identity.ByPosition(), name)
		}
	}
	require.Equal(t, []string{`.*\.eu`, `orders\..*`}, c.Several("orders.eu"))
	require.Empty(t, c.Several("orders.us"))
	require.Empty(t, c.Several("orders.eu.old"))
	require.Equal(t, []string{"orders.eu.old", "a.eu", "orders.us"},
		c.ReadOf([]string{"orders.us", "orders.dead", "a.eu", "orders.eu.old", "other"}))
	require.Contains(t, c.Summary(), `reads 3 topics (.*\.eu, orders\..*, orders.eu.old)`)
}
