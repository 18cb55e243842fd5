package identity

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJSONPointerFollowsRFC6901(t *testing.T) {
	const doc = ` {"foo": ["bar", "baz", [ {"x":"deep"} ]], "": "empty", "a/b": "slash", "m~n": "tilde", "~1": "both",
		"k\"l": "quote", " ": "space", "\u0065": "e", "é": "accent", "n": {"o": [], "p": {}} } `
	for pointer, want := range map[string]string{
		"/foo/0": "bar", "/foo/1": "baz", "/foo/2/0/x": "deep", "/": "empty", "/a~1b": "slash",
		"/m~0n": "tilde", "/~01": "both",
		`/k"l`: "quote", "/ ": "space", "/e": "e", "/é": "accent",
	} {
		assert.Equal(t, want, identify(t, withValue(doc), "json:"+pointer).RawID, pointer)
	}
	for _, pointer := range []string{
		"/Foo", "/foo/3", "/foo/-", "/foo/00", "/foo/01", "/foo/+1", "/foo/-0", "/foo/99999999999999999999",
		"/foo/0/x", "/n/o/0", "/n/p/q", "//",
	} {
		requireReason(t, ReasonMissingID, withValue(doc), "json:"+pointer)
	}
}

func TestJSONNumberKeepsItsText(t *testing.T) {
	for _, number := range []string{"9007199254740993", "1.0", "1E+2", "-0", "1e999999999999",
		"123456789012345678901234567890"} {
		assert.Equal(t, number, identify(t, withValue(`{"id": `+number+` }`), "json:/id").RawID)
		assert.Equal(t, number, identify(t, withValue(`[`+number+`]`), "json:/0").RawID)
	}
}

func TestJSONValueWithoutTextIsMissingAndPassesOn(t *testing.T) {
	for _, value := range []string{"{}", `{"id":null}`, `{"id":""}`, `{"id":" \n"}`, "null", `"id"`, "17", "[]"} {
		requireReason(t, ReasonMissingID, withValue(value), "json:/id")
		m := withValue(value)
		m.Key = []byte("k")
		assert.Equal(t, "k", identify(t, m, "json:/id", "key").RawID, value)
	}
	requireReason(t, ReasonMissingID, Record{}, "json:/id")
}

func TestJSONValueThatIsNoScalarEndsTheSearch(t *testing.T) {
	for _, value := range []string{"{}", "[]", "true", "false", `["m1"]`} {
		requireReason(t, ReasonIDNotScalar, withValue(`{"id":`+value+`}`), "json:/id", "position")
	}
}

func TestJSONRepeatedKeyOnTheWayIsAmbiguous(t *testing.T) {
	for _, value := range []string{
		`{"a":{"id":"1"},"a":{"id":"2"}}`, `{"a":{"id":"1","id":"1"}}`,
		`{"a":{"id":"1","\u0069d":"2"}}`, `{"a":{"id":"1"},"a":0}`,
	} {
		requireReason(t, ReasonAmbiguousID, withValue(value), "json:/a/id", "position")
		requireReason(t, ReasonAmbiguousID, withValue(value), "hash:/b,/a/id", "position")
	}
	assert.Equal(t, "1", identify(t, withValue(`{"b":1,"b":2,"a":{"id":"1"}}`), "json:/a/id").RawID)
}

func TestJSONPayloadThatIsNotJSONIsTheReasonIfNothingYields(t *testing.T) {
	deep := strings.Repeat("[", maxJSONDepth) + strings.Repeat("]", maxJSONDepth)
	for _, value := range []string{
		"", "{", `{"id":"1"} x`, `{"id":"1"}{}`, "{'id':1}", `{"id":01}`,
		"\xef\xbb\xbf{\"id\":\"1\"}", "{\"id\":\"\xff\"}",
		`{"id":"1","x":[` + deep + `]}`, strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<20),
	} {
		requireReason(t, ReasonNotJSON, withValue(value), "json:/id")
		requireReason(t, ReasonNotJSON, withValue(value), "json:/id", "header:none")
		requireReason(t, ReasonNotJSON, withValue(value), "hash:/id")
	}
	assert.Equal(t, "1", identify(t, withValue(`{"id":"1","x":"`+"\xff"+strings.Repeat("[", 1000)+`"}`),
		"json:/id").RawID,
		"bad bytes elsewhere do not take the ID away")
}

func TestJSONFieldsMeetOnlyWhereTheyAreEqual(t *testing.T) {
	apart := []string{
		`{"a":"x"}`, `{"a":"x","b":null}`, `{"a":"x","b":""}`, `{"a":null,"b":"x"}`, `{"b":"x"}`,
		`{"a":"","b":"x"}`, `{"a":"xx","b":"x"}`,
		`{"a":1,"b":"x"}`, `{"a":"1","b":"x"}`, `{"a":true,"b":"x"}`, `{"a":[],"b":{}}`, `{"a":{},"b":[]}`,
		`{"a":9007199254740993,"b":0}`, `{"a":9007199254740992,"b":0}`,
	}
	ids := map[string]string{}
	for _, value := range apart {
		m := identify(t, withValue(value), "hash:/a,/b")
		require.Empty(t, m.Reason, value)
		require.Empty(t, m.RawID)
		assert.Empty(t, ids[m.ID.String()], value)
		ids[m.ID.String()] = value
	}
	assert.Equal(t, identify(t, withValue(`{"a":{"x":1,"y":[2]},"b":3,"c":4}`), "hash:/a,/b").ID,
		identify(t, withValue(`{"c":5,"b":3.0, "a":{ "y":[20e-1],"\u0078":1e0}}`), "hash:/a,/b").ID)
}

func TestJSONFieldsOfDifferentNamesNeverMeet(t *testing.T) {
	assert.NotEqual(t, identify(t, withValue(`{"a":1}`), "hash:/a").ID,
		identify(t, withValue(`{"b":1}`), "hash:/a", "hash:/b").ID)
}

func TestJSONFieldsWithoutAnyValueAreMissing(t *testing.T) {
	for _, value := range []string{`{}`, `{"a":"","b":""}`, `{"a":" ","b":"undefined"}`, `{"a":null}`,
		`{"a":null,"b":null}`, `[]`, `null`} {
		requireReason(t, ReasonMissingID, withValue(value), "hash:/a,/b")
	}
}

func FuzzJSONPointer(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, doc []byte) {
		p, err := parsePointer(text)
		if err != nil || !isJSON(doc) {
			return
		}
		raw, reason := p.find(doc)
		require.NotContains(t, []Reason{ReasonMissingID, ReasonNotJSON}, reason)
		if raw == nil {
			return
		}
		require.True(t, json.Valid(raw))
		if utf8.Valid(doc) && utf8.ValidString(text) && !hasEscape(doc) {
			want, ok := slowFind(doc, p.tokens)
			require.True(t, ok)
			require.JSONEq(t, string(want), string(raw))
		}
	})
}

// slowFind is find by way of encoding/json, for documents without escapes.
func slowFind(doc []byte, tokens []string) (json.RawMessage, bool) {
	at := json.RawMessage(doc)
	for _, token := range tokens {
		var object map[string]json.RawMessage
		var array []json.RawMessage
		if json.Unmarshal(at, &object) == nil && object != nil {
			next, ok := object[token]
			if !ok {
				return nil, false
			}
			at = next
			continue
		}
		n, err := strconv.Atoi(token)
		if json.Unmarshal(at, &array) != nil || err != nil || n >= len(array) {
			return nil, false
		}
		at = array[n]
	}
	return at, true
}
