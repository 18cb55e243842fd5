package handlers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

func TestPatternMatchesTheWholeOfANameAndNoneOfKafkasOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, topic string
		matches        bool
	}{
		{`orders\..*`, "orders.eu", true},
		{`orders\..*`, "orders", false},
		{`orders\..*`, "all.orders.eu", false},
		{`a|b`, "a", true},
		{`a|b`, "ab", false},
		{`^a$`, "a", true},
		{`(?i)A`, "a", true},
		{`(?m)^a$`, "a\nb", false},
		{`.*`, "__consumer_offsets", false},
		{`.*`, "_schemas", true},
	} {
		p, err := handlers.ParsePattern(c.pattern)
		require.NoError(t, err)
		require.Equal(t, c.matches, p.Matches(c.topic), "%s on %s", c.pattern, c.topic)
	}
	require.False(t, handlers.Pattern{}.Matches(""))
	for _, bad := range []string{"", "(", `a)|(b`, `(?=a)`, "[z-a]", "\xff"} {
		_, err := handlers.ParsePattern(bad)
		require.Error(t, err, "%q", bad)
	}
}

func TestHandlersOfATopicAreThoseOfItsNameAndElseOfTheFirstPattern(t *testing.T) {
	t.Parallel()
	var r handlers.Registry
	h := handlers.BatchHandlerFunc(nil)
	for _, reg := range []handlers.Registration{
		{Name: "both", Topics: []string{"orders.eu"}, Patterns: []string{`orders\..*`}},
		{Name: "pattern", Patterns: []string{`orders\..*`, `orders\..*`}},
		{Name: "all", Patterns: []string{".*"}},
		{Name: "us", Patterns: []string{`.*\.us`}},
	} {
		reg.Handler = h
		require.NoError(t, r.Add(reg))
	}
	p, err := handlers.NewProcessor(handlers.Config{Store: &dedup.Store{}, Handlers: &r})
	require.NoError(t, err)
	require.Equal(t, []string{"orders.eu"}, p.Topics())
	require.Equal(t, []string{`orders\..*`, ".*", `.*\.us`}, p.Patterns())
	require.Equal(t, []string{"both"}, p.Handlers("orders.eu"))
	require.Equal(t, []string{"both", "pattern"}, p.Handlers("orders.us"))
	require.Equal(t, []string{"all"}, p.Handlers("orders"))
	require.Empty(t, p.Handlers("__orders"))

	r.Prefer(`.*\.us`, "nobody's")
	require.Equal(t, []string{`.*\.us`, `orders\..*`, ".*"}, p.Patterns())
	require.Equal(t, []string{"us"}, p.Handlers("orders.us"))
	require.Equal(t, []string{"both"}, p.Handlers("orders.eu"))

	require.ErrorContains(t, r.Add(handlers.Registration{Name: "x", Handler: h, Patterns: []string{"("}}),
		"register handler x: pattern ( is no regular expression: missing closing ): `(`")
	require.ErrorContains(t, r.Add(handlers.Registration{Name: "x", Handler: h}), "no topic given")
}
