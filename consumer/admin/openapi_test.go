package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

type object = map[string]any

// document is the OpenAPI document, in which no object may have more than it says; and what the tests have asked of
// it.
var document = sync.OnceValues(func() (object, error) {
	content, err := json.Marshal(describe(byPath{}, "v1"))
	if err != nil {
		return nil, err
	}
	var doc object
	err = json.Unmarshal(content, &doc)
	for _, schema := range doc["components"].(object)["schemas"].(object) {
		schema.(object)["additionalProperties"] = false
	}
	return doc, err
})

// documented is the part of the document at a path of names.
func documented(t *testing.T, names ...string) any {
	t.Helper()
	doc, err := document()
	require.NoError(t, err)
	var at any = doc
	for _, name := range names {
		at = at.(object)[name]
		if at == nil {
			return nil
		}
	}
	return at
}

// pathOf is the path of the document that a request goes to; empty: none.
func pathOf(t *testing.T, asked string) string {
	for path := range documented(t, "paths").(object) {
		if matches(strings.Split(path, "/"), strings.Split(asked, "/")) {
			return path
		}
	}
	return ""
}

func matches(path, asked []string) bool {
	if len(path) != len(asked) {
		return false
	}
	for i := range path {
		if path[i] != asked[i] && !strings.HasPrefix(path[i], "{") {
			return false
		}
	}
	return true
}

func (s *stage) requireAsDocumented(method string, u *url.URL, answer reply) {
	s.t.Helper()
	path := pathOf(s.t, u.EscapedPath())
	if path == "" || method == http.MethodHead || documented(s.t, "paths", path, strings.ToLower(method)) == nil {
		require.True(s.t, path == "" || answer.StatusCode == http.StatusMethodNotAllowed || answer.StatusCode >= 400 ||
			method == http.MethodHead, "%s %s is not in the document", method, path)
		return
	}
	responses := documented(s.t, "paths", path, strings.ToLower(method), "responses").(object)
	status := "default"
	for code := range responses {
		if strings.HasPrefix(answer.Status, code) {
			status = code
		}
	}
	kind := answer.Header.Get("Content-Type")
	schema := documented(s.t, "paths", path, strings.ToLower(method), "responses", status, "content", kind, "schema")
	require.NotNil(s.t, schema, "%s %s answers %d with %s, which is not in the document",
		method, path, answer.StatusCode, kind)
	requireValid(s.t, schema.(object), answer.body)
}

func requireValid(t *testing.T, schema object, content []byte) {
	t.Helper()
	doc, err := document()
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource("mem:///openapi.json", any(doc)))
	root := object{"components": doc["components"], "allOf": []any{schema}}
	require.NoError(t, compiler.AddResource("mem:///answer.json", any(root)))
	compiled, err := compiler.Compile("mem:///answer.json")
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	require.NoError(t, err)
	require.NoError(t, compiled.Validate(value), "%s", content)
}

func TestDocumentHasEveryRouteAndNoOther(t *testing.T) {
	s := newStage(t, nil)
	served := s.get(prefix + "/openapi.json")
	require.JSONEq(t, string(s.server.api.openapi), string(served.body))
	want := map[string]bool{"get /livez": true, "get /readyz": true, "get /healthz": true}
	for path, methods := range s.server.api.operations {
		for method := range methods {
			want[strings.ToLower(method)+" "+path] = true
		}
	}
	got := map[string]bool{}
	names := map[any]bool{}
	for path, methods := range documented(t, "paths").(object) {
		for method, operation := range methods.(object) {
			got[method+" "+path] = true
			names[operation.(object)["operationId"]] = true
			requireParameters(t, path, operation.(object))
			requireSecurity(t, path, operation.(object))
		}
	}
	require.Equal(t, want, got)
	require.Len(t, names, len(want), "each operation has a name of its own")
}

// requireParameters wants each {name} of a path to be described, and each parameter to say what it is.
func requireParameters(t *testing.T, path string, operation object) {
	described, _ := operation["parameters"].([]any)
	for _, p := range described {
		require.NotEmpty(t, p.(object)["description"], "%v of %s", p, path)
	}
	for _, step := range strings.Split(path, "/") {
		if !strings.HasPrefix(step, "{") {
			continue
		}
		found := false
		for _, p := range described {
			found = found || p.(object)["in"] == "path" && "{"+p.(object)["name"].(string)+"}" == step
		}
		require.True(t, found, "%s of %s", step, path)
	}
}

func TestDocumentSaysWhatAParameterCanBe(t *testing.T) {
	described := map[string]object{}
	for _, p := range documented(t, "paths", prefix+"/messages", "get", "parameters").([]any) {
		described[p.(object)["name"].(string)] = p.(object)["schema"].(object)
	}
	require.EqualValues(t, 1024, described["topic"]["maxLength"])
	require.EqualValues(t, 1024, described["since"]["maxLength"])
	require.EqualValues(t, 1024, described["id"]["items"].(object)["maxLength"])
	require.EqualValues(t, 100, described["id"]["maxItems"])
	id := documented(t, "components", "schemas", "NewJob", "properties", "id").(object)
	require.Equal(t, "uuid", id["format"])
	require.NotContains(t, id, "maxLength", "a UUID has one length, and no UUID has a thousand characters")
	require.NotContains(t, id, "pattern")
	require.Equal(t, []any{1.0, 1000.0, 50.0},
		[]any{described["limit"]["minimum"], described["limit"]["maximum"], described["limit"]["default"]})
	require.Equal(t, []any{"pending", "failed", "processed", "dead"}, described["status"]["enum"])
}

// Every route of the table is really served: asked with nothing, it answers something else than that it is not there.
func TestEveryRouteOfTheDocumentIsServed(t *testing.T) {
	s := newStage(t, nil)
	for path, methods := range documented(t, "paths").(object) {
		for method := range methods.(object) {
			asked := strings.NewReplacer("{handler}", "book", "{id}", "nothing").Replace(path)
			r, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(method), s.url(asked), nil)
			require.NoError(t, err)
			response, err := s.client.Do(r)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.NotEqual(t, http.StatusMethodNotAllowed, response.StatusCode, asked)
			if path == asked {
				require.NotEqual(t, http.StatusNotFound, response.StatusCode, asked)
			}
		}
	}
}

// requireSecurity wants of the API what its clients may have to show, and nothing of the probes.
func requireSecurity(t *testing.T, path string, operation object) {
	want := []any{object{}}
	if strings.HasPrefix(path, prefix) {
		want = append(want, object{"token": []any{}}, object{"certificate": []any{}})
	}
	require.Equal(t, want, operation["security"], path)
}

// Programs that are made from the document need not ask whether a list is there.
func TestNoListOfAnAnswerIsNull(t *testing.T) {
	lists := 0
	for name, schema := range documented(t, "components", "schemas").(object) {
		for field, described := range schema.(object)["properties"].(object) {
			if described.(object)["items"] != nil {
				lists++
				require.Equal(t, "array", described.(object)["type"], "%s of %s", field, name)
			}
		}
	}
	require.NotZero(t, lists)
}

// A field that is missing is explained by what the document says of it.
func TestRequiredFieldsOfBodiesAreDescribed(t *testing.T) {
	for _, body := range []string{"NewPause", "Change"} {
		schema := documented(t, "components", "schemas", body).(object)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			field := schema["properties"].(object)[name.(string)].(object)
			require.True(t, field["description"] != nil || field["enum"] != nil, "%s of %s", name, body)
		}
	}
}
