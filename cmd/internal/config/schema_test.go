package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func parsedSchema(t *testing.T) (s map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(Schema()), &s))
	return s
}

// held holds a file against the schema, and gives where it is what it must not be.
func held(t *testing.T, text string) (found []string) {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(Schema()))
	require.NoError(t, err)
	require.NoError(t, compiler.AddResource("config", document))
	compiled, err := compiler.Compile("config")
	require.NoError(t, err)
	var parsed map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &parsed))
	asJSON, err := json.Marshal(parsed)
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	require.NoError(t, err)
	var invalid *jsonschema.ValidationError
	if errors.As(compiled.Validate(v), &invalid) {
		found = violations(invalid)
	}
	return found
}

// violations are the places and the keywords that they violate.
func violations(e *jsonschema.ValidationError) (found []string) {
	at := item.ReplaceAllString("."+strings.Join(e.InstanceLocation, "."), "[$1]")
	switch broken := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range broken.Missing {
			found = append(found, strings.TrimSuffix(at, ".")+"."+name+": required")
		}
		return found
	case *kind.AdditionalProperties:
		for _, name := range broken.Properties {
			found = append(found, strings.TrimSuffix(at, ".")+"."+name+": additionalProperties")
		}
		return found
	case *kind.AnyOf:
		return []string{at + ": anyOf"}
	}
	for _, cause := range e.Causes {
		found = append(found, violations(cause)...)
	}
	if len(e.Causes) == 0 {
		found = append(found, at+": "+strings.Join(e.ErrorKind.KeywordPath(), "."))
	}
	return found
}

var item = regexp.MustCompile(`\.(\d+)`)

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
		"start_at: latest\n":                                 ".group: required",
		minimal + "grup: x\n":                                ".grup: additionalProperties",
		minimal + "batch: {message: 1}\n":                    ".batch.message: additionalProperties",
		minimal + "batch: {messages: 0}\n":                   ".batch.messages: minimum",
		minimal + "batch: {bytes: 4 MB/s}\n":                 ".batch.bytes: pattern",
		minimal + "batch: {bytes: 4194304}\n":                ".batch.bytes: type",
		minimal + "batch: {bytes: 1.5}\n":                    ".batch.bytes: type",
		minimal + "fetch: {wait: 500}\n":                     ".fetch.wait: type",
		minimal + "fetch: {wait: soon}\n":                    ".fetch.wait: pattern",
		minimal + "retention: {ids: 90}\n":                   ".retention.ids: maximum",
		minimal + "log: {level: loud}\n":                     ".log.level: anyOf",
		minimal + "inbox: 5\n":                               ".inbox: type",
		minimal + "http: {rate: many}\n":                     ".http.rate: pattern",
		minimal + "health: {degraded: {failure_ratio: 2}}\n": ".health.degraded.failure_ratio: maximum",
		withTopics("[]"):                                     ".topics: minItems",

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
