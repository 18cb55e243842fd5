package identity

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSourceTextRoundTrips(t *testing.T) {
	for _, text := range []string{
		"header:message-id", "header:X:y", "header:id, really", "cloudevents", "json:/event/id",
		"json:/", "json:/a~1b/~0/0",
		"key", "position", "hash", "hash:/a", "hash:/a,/b/c",
	} {
		s, err := ParseSource(text)
		require.NoError(t, err, text)
		assert.Equal(t, text, s.String())
		var again Source
		b, err := json.Marshal(s)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &again))
		assert.Equal(t, s, again)
	}
}

func TestSourceErrorNamesTextFaultAndForms(t *testing.T) {
	for text, fault := range map[string]string{
		"":                  `unknown kind ""`,
		"heder:id":          `unknown kind "heder"`,
		"Header:id":         `unknown kind "Header"`,
		"header":            "name is missing",
		"header:":           "name is missing",
		"header: id":        "white space around",
		"json":              "pointer is missing",
		"json:":             "pointer is missing",
		"json:id":           "does not begin with a slash",
		"json:/a~2":         "neither ~0 nor ~1",
		"json:/a~":          "neither ~0 nor ~1",
		"json:/\xff":        "not valid UTF-8",
		"hash:":             "pointer is missing",
		"hash:/a,b":         `"b" does not begin with a slash`,
		"hash:/a,/a":        `"/a" is there twice`,
		"key:x":             "key takes nothing after it",
		"cloudevents:":      "cloudevents takes nothing after it",
		"position:0":        "position takes nothing after it",
		"header:message-id": "",
	} {
		_, err := ParseSource(text)
		if fault == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, fault, text)
		require.ErrorContains(t, err, "identity source ")
		require.ErrorContains(t, err, "want header:NAME, cloudevents, ")
	}
}

func TestSourceIsUnchangedByTextThatIsRefused(t *testing.T) {
	s := Source{kind: fromKey}
	require.Error(t, s.UnmarshalText([]byte("nonsense")))
	assert.Equal(t, "key", s.String())
}

func FuzzParseSource(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSource(text)
		if err != nil {
			assert.Equal(t, Source{}, s)
			return
		}
		require.Equal(t, text, s.String())
		_, err = NewRule(s)
		require.NoError(t, err)
	})
}
