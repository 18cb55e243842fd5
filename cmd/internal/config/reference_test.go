package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

// effectiveValues are the keys' values where only what is required is given, as they are printed.
func effectiveValues(t *testing.T) map[string]any {
	t.Helper()
	c, err := loadText(t, withTopics(
		"[{name: orders, handlers: [{name: book, function: f}, {name: notify, webhook: {url: 'https://h'}}]}]")+
		"outbox: {destinations: [{name: events, topics: events}, {name: crm, topics: crm, webhook: {url: 'https://h'}}]}\n")
	require.NoError(t, err)
	values := map[string]any{}
	each(reflect.ValueOf(c), "", func(path string, v reflect.Value) {
		if k := pattern(path); values[k] == nil {
			values[k] = printed(v)
		}
	})
	return values
}

// A comment states a default as the file would have it, and that is what takes effect; or it says that there is none.
func TestCommentsStateTheDefaultsThatTakeEffect(t *testing.T) {
	values := effectiveValues(t)
	derived := []string{"postgres.max_connections", "inbox"}
	for _, k := range keys {
		if k.section {
			continue
		}
		value, stated := values[k.path], k.commentDefault()
		required, _ := k.required()
		switch {
		case stated != "":
			require.Equal(t, yamlValue(value), stated, "%s: %s", k.path, k.comment())
		case required, slices.Contains(derived, k.path):
		default:
			require.Contains(t, k.comment(), "Default: ", k.path)
			require.Nil(t, value, "%s takes effect as %v, and its comment says no such default", k.path, value)
		}
	}
}

func TestEveryKeyHasACommentInTheWordsOfTheFile(t *testing.T) {
	for _, k := range keys {
		_, name := split(k.path)
		require.NotEmpty(t, k.comment(), k.path)
		require.Contains(t, k.comment(), name, k.path)
		require.False(t, strings.HasPrefix(k.comment(), k.field+" "), k.comment())
		require.True(t, strings.HasSuffix(k.comment(), "."), k.comment())
		for _, choice := range choices[k.path] {
			require.Contains(t, k.comment(), choice, k.path)
		}
	}
	for path := range choices {
		_, known := findKey(path)
		require.True(t, known, path)
	}
	for _, path := range slices.Concat(mayBeZero, liveKeys) {
		_, known := findKey(path)
		require.True(t, known, path)
	}
}

// What a key's comment calls required is a fault when it is missing, and nothing else is.
func TestRequiredKeysAreThoseThatAreAskedFor(t *testing.T) {
	var asked []string
	for _, text := range []string{"",
		"topics: [{id: key}, {handlers: [{webhook: {timeout: 1s}}, {ordering: key}]}]\n" +
			"outbox: {destinations: [{workers: 1}, {webhook: {timeout: 1s}}]}\n"} {
		_, err := loadText(t, text)
		for _, fault := range faults(t, err) {
			path, _, _ := strings.Cut(fault, ": is required")
			asked = append(asked, pattern(path))
		}
	}
	for _, k := range keys {
		required, _ := k.required()
		require.Equal(t, required, slices.Contains(asked, k.path), k.path)
	}
}

// The default is dedup's own, which shows only in what it does.
func TestDefaultIDsAreThoseOfDedup(t *testing.T) {
	c, err := loadText(t, minimal)
	require.NoError(t, err)
	topics, err := c.topics()
	require.NoError(t, err)
	ours, err := identity.NewRule()
	require.NoError(t, err)
	require.Equal(t, ours, topics[0].Identity)
}

func TestTextsThatAreNoIDAreAListOfTheirOwnOrNone(t *testing.T) {
	for text, want := range map[string]identity.Reason{`["-"]`: "", "[]": "", `["null"]`: identity.ReasonMissingID,
		`"NULL"`: identity.ReasonMissingID} {
		c, err := loadText(t,
			withTopics(`[{name: orders, no_id: `+text+`, handlers: [{name: book, function: book}]}]`))
		require.NoError(t, err)
		topics, err := c.topics()
		require.NoError(t, err)
		m := dedup.Message{Headers: []dedup.Header{{Key: "id", Value: []byte("null")}}}
		m.Identify(topics[0].Identity, uuid.Nil)
		require.Equal(t, want, m.Reason, text)
	}
}
