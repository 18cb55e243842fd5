package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/stretchr/testify/require"
)

// violations holds a value against a schema, for the keywords that ours has.
func violations(s map[string]any, v any, at string) (found []string) {
	if types, has := s["type"]; has && !slices.ContainsFunc(asList(types), func(t any) bool { return isOfType(v, t.(string)) }) {
		return []string{at + ": type"}
	}
	if choices, has := s["anyOf"]; has && !slices.ContainsFunc(asList(choices), func(one any) bool {
		return len(violations(one.(map[string]any), v, at)) == 0
	}) {
		found = append(found, at+": anyOf")
	}
	if allowed, has := s["enum"]; has && !slices.Contains(asList(allowed), v) {
		found = append(found, at+": enum")
	}
	switch v := v.(type) {
	case string:
		if p, has := s["pattern"]; has && !regexp.MustCompile(p.(string)).MatchString(v) {
			found = append(found, at+": pattern")
		}
	case float64:
		if least, has := s["minimum"]; has && v < least.(float64) {
			found = append(found, at+": minimum")
		}
		if most, has := s["maximum"]; has && v > most.(float64) {
			found = append(found, at+": maximum")
		}
	case []any:
		if least, has := s["minItems"]; has && float64(len(v)) < least.(float64) {
			found = append(found, at+": minItems")
		}
		for i, item := range v {
			found = append(found, violations(s["items"].(map[string]any), item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case map[string]any:
		found = append(found, violationsOfObject(s, v, at)...)
	}
	return found
}

func violationsOfObject(s, v map[string]any, at string) (found []string) {
	for _, name := range asList(s["required"]) {
		if _, has := v[name.(string)]; !has {
			found = append(found, at+"."+name.(string)+": required")
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, value := range v {
		property, known := properties[name]
		if !known {
			property = s["additionalProperties"]
		}
		if of, is := property.(map[string]any); is {
			found = append(found, violations(of, value, at+"."+name)...)
		} else if property == false {
			found = append(found, at+"."+name+": additionalProperties")
		}
	}
	return found
}

func asList(v any) []any {
	list, is := v.([]any)
	if !is && v != nil {
		return []any{v}
	}
	return list
}

func isOfType(v any, t string) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case string:
		return t == "string"
	case bool:
		return t == "boolean"
	case float64:
		return t == "number" || t == "integer" && v == float64(int64(v))
	case []any:
		return t == "array"
	}
	return t == "object"
}

func parsedSchema(t *testing.T) (s map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(Schema()), &s))
	return s
}

// held holds a file against the schema.
func held(t *testing.T, text string) []string {
	t.Helper()
	parsed, err := yaml.Parser().Unmarshal([]byte(text))
	require.NoError(t, err)
	asJSON, err := json.Marshal(parsed)
	require.NoError(t, err)
	var v any
	require.NoError(t, json.Unmarshal(asJSON, &v))
	found := violations(parsedSchema(t), v, "")
	slices.Sort(found)
	return found
}

func TestSchemaTakesWhatLoads(t *testing.T) {
	for _, text := range []string{minimal, complete, Example(), `
postgres: {dsn_file: x}
kafka: {brokers: "${BROKERS}"}
group: g
topics: [{name: a, id: key, handlers: [{name: book, function: f, ordering: "${O}"}]}]
batch:
log: {level: "${LEVEL}", format: }
max_parked: ${N}
retention: {ids: 0, inbox: 1d12h, handlers: {book: 0}}
health: {window: 1.5h, degraded: {failure_ratio: 1}}
`} {
		require.Empty(t, held(t, text), text)
	}
}

func TestSchemaRefusesWhatDoesNotLoad(t *testing.T) {
	for text, want := range map[string]string{
		"start_at: latest\n":                                                     ".group: required",
		minimal + "grup: x\n":                                                    ".grup: additionalProperties",
		minimal + "batch: {message: 1}\n":                                        ".batch.message: additionalProperties",
		minimal + "batch: {messages: 0}\n":                                       ".batch.messages: minimum",
		minimal + "batch: {bytes: 4 MB/s}\n":                                     ".batch.bytes: pattern",
		minimal + "batch: {bytes: 1.5}\n":                                        ".batch.bytes: type",
		minimal + "fetch: {wait: 500}\n":                                         ".fetch.wait: type",
		minimal + "fetch: {wait: soon}\n":                                        ".fetch.wait: pattern",
		minimal + "retention: {ids: 90}\n":                                       ".retention.ids: maximum",
		minimal + "log: {level: loud}\n":                                         ".log.level: anyOf",
		minimal + "inbox: 5\n":                                                   ".inbox: type",
		minimal + "http: {rate: many}\n":                                         ".http.rate: pattern",
		minimal + "health: {degraded: {failure_ratio: 2}}\n":                     ".health.degraded.failure_ratio: maximum",
		withTopics("[]"):                                                         ".topics: minItems",
		withTopics("[{name: a, handlers: [{name: h}]}]"):                         ".topics[0].handlers[0]: anyOf",
		withTopics("[{name: a, handlers: [{name: h, webhook: {timeout: 1s}}]}]"): ".topics[0].handlers[0].webhook.url: required",
	} {
		require.Contains(t, held(t, text), want, text)
		_, err := loadText(t, text)
		require.Error(t, err, "the schema refuses what loads: %s", text)
	}
}

func TestSchemaDescribesEveryKey(t *testing.T) {
	values := effectiveValues(t)
	s := parsedSchema(t)
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", s["$schema"])
	for _, k := range keys {
		at := s
		for _, name := range regexp.MustCompile(`\[\]\.|\.`).Split(k.path, -1) {
			if items, is := at["items"].(map[string]any); is {
				at = items
			}
			require.Equal(t, false, at["additionalProperties"], k.path)
			at = at["properties"].(map[string]any)[name].(map[string]any)
		}
		require.Equal(t, k.comment(), at["description"], k.path)
		require.Equal(t, k.secret, at["writeOnly"] == true, k.path)
		if k.commentDefault() != "" {
			require.EqualValues(t, fmt.Sprint(values[k.path]), fmt.Sprint(at["default"]), k.path)
		}
	}
}
