package identity_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/identity"
)

func ruleOf(t *testing.T, texts ...string) *identity.Rule {
	t.Helper()
	sources := make([]identity.Source, len(texts))
	for i, text := range texts {
		require.NoError(t, sources[i].UnmarshalText([]byte(text)))
	}
	rule, err := identity.NewRule(sources...)
	require.NoError(t, err)
	return rule
}

// What was found for a named message is what the rule finds in it as Kafka's.
func TestNamedMessageHasTheIDThatKafkasHas(t *testing.T) {
	header := func(value string) identity.Record {
		return identity.Record{Headers: []identity.Header{{Key: "x", Value: []byte(value)}}}
	}
	event := identity.Record{Value: []byte("{}"), Headers: []identity.Header{{Key: "ce_source", Value: []byte("/s")},
		{Key: "ce_id", Value: []byte("1")}, {Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_type", Value: []byte("t")}}}
	for name, c := range map[string]struct {
		sources []string
		m       identity.Record
		key     string
	}{
		"header that is put":          {sources: nil, key: "order 17"},
		"UUID":                        {sources: nil, key: "{0190B5E2-7C1A-7DEF-8123-456789ABCDEF}"},
		"header that is there":        {sources: []string{"header:x"}, m: header(" o-1 "), key: "o-1"},
		"header that is null":         {sources: []string{"header:x"}, m: identity.Record{Headers: []identity.Header{{Key: "x"}}}, key: "o-1"},
		"field":                       {sources: []string{"json:/id"}, m: identity.Record{Value: []byte(`{"id":"o-1"}`)}, key: "o-1"},
		"field that is a number":      {sources: []string{"json:/id"}, m: identity.Record{Value: []byte(`{"id":17}`)}, key: "17"},
		"field before a header":       {sources: []string{"json:/id", "header:x"}, m: identity.Record{Value: []byte(`{}`)}, key: "o-1"},
		"key that is put":             {sources: []string{"key"}, key: "o-1"},
		"key that is there":           {sources: []string{"key"}, m: identity.Record{Key: []byte("o-1")}, key: "o-1"},
		"CloudEvent":                  {sources: []string{"cloudevents"}, m: event, key: "/s 1"},
		"position behind a header":    {sources: []string{"header:x", "position"}, key: "o-1"},
		"no key, a field":             {sources: []string{"json:/id"}, m: identity.Record{Value: []byte(`{"id":"o-1"}`)}},
		"no key, the payload":         {sources: []string{"hash"}, m: identity.Record{Value: []byte(`{"id":"o-1"}`)}},
		"no key, and a header is put": {sources: []string{"header:x"}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := ruleOf(t, c.sources...)
			found, err := rule.FindNamed(&c.m, c.key)
			require.NoError(t, err)
			require.Empty(t, found.Reason)
			c.m.Topic, c.m.Partition, c.m.Offset = "orders", 3, 17
			again := rule.Find(&c.m, uuid.New())
			require.Equal(t, again.ID, found.ID)
			require.Empty(t, again.Reason)
		})
	}
}

func TestNamedMessageWhosePositionWouldBeItsIDIsKnownByItsKey(t *testing.T) {
	rule := ruleOf(t, "position")
	first, err := rule.FindNamed(&identity.Record{}, "o-1")
	require.NoError(t, err)
	again, err := rule.FindNamed(&identity.Record{Value: []byte("x")}, "o-1")
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, "o-1", first.RawID)
}

func TestUnnamedMessagesThatHaveNoIDAreEachNew(t *testing.T) {
	for _, source := range []string{"header:x", "json:/id", "position", "key"} {
		rule := ruleOf(t, source)
		first, err := rule.FindNamed(&identity.Record{Value: []byte(`{}`)}, "")
		require.NoError(t, err)
		again, err := rule.FindNamed(&identity.Record{Value: []byte(`{}`)}, "")
		require.NoError(t, err)
		require.NotEqual(t, first.ID, again.ID)
		require.EqualValues(t, 7, first.ID.Version())
	}
}

func TestKeysThatCanNotNameAMessage(t *testing.T) {
	value := func(text string) identity.Record { return identity.Record{Value: []byte(text)} }
	header := identity.Record{Headers: []identity.Header{{Key: "x", Value: []byte("secret")}}}
	for name, c := range map[string]struct {
		sources []string
		m       identity.Record
		key     string
		says    string
	}{
		"no ID":             {key: "null", says: "stands for no ID"},
		"nil UUID":          {key: "00000000-0000-0000-0000-000000000000", says: "stands for no ID"},
		"other header":      {sources: []string{"header:x"}, m: header, key: "o-1", says: "another ID than its key: looked for header:x"},
		"other field":       {sources: []string{"json:/id", "header:x"}, m: value(`{"id":"secret"}`), key: "o-1", says: "another ID"},
		"no field":          {sources: []string{"json:/id"}, m: value(`{}`), key: "o-1", says: "not where the topic's IDs are: looked for json:/id"},
		"other key":         {sources: []string{"key"}, m: identity.Record{Key: []byte("secret")}, key: "o-1", says: "another ID"},
		"payload":           {sources: []string{"hash"}, m: value(`{}`), key: "o-1", says: "another ID"},
		"ambiguous field":   {sources: []string{"json:/id"}, m: value(`{"id":1,"id":2}`), key: "1", says: "ambiguous_id"},
		"no key, ambiguous": {sources: []string{"json:/id"}, m: value(`{"id":1,"id":2}`), says: "can't be used"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ruleOf(t, c.sources...).FindNamed(&c.m, c.key)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}
