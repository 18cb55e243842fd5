package ingress_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/handlers/ingress"
)

type object = map[string]any

const documentURL = "mem:///openapi.json"

// document is the OpenAPI document, in which no answer may have more than it says.
var document = sync.OnceValues(func() (object, error) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	for _, schema := range at(doc, "components", "schemas").(object) {
		schema.(object)["additionalProperties"] = false
	}
	return doc.(object), nil
})

// at is a part of the document; nil: there is none.
func at(part any, names ...string) any {
	for _, name := range names {
		fields, _ := part.(object)
		part = fields[name]
	}
	return part
}

// asDocumented holds an answer against the document: every one that a test gets. What is no route there is not looked
// at.
func asDocumented(r *http.Request, got answer) error {
	doc, err := document()
	if err != nil {
		return err
	}
	path := documentedPath(doc, r.URL.EscapedPath())
	operation := at(doc, "paths", path, strings.ToLower(r.Method))
	if operation == nil {
		return nil
	}
	answered := fmt.Sprintf("%s %s answered %d", r.Method, path, got.status)
	response := at(operation, "responses", strconv.Itoa(got.status))
	if response == nil {
		return fmt.Errorf("%s, which the document does not have", answered)
	}
	headers, _ := at(response, "headers").(object)
	for name, header := range headers {
		if at(header, "required") == true && got.header.Get(name) == "" {
			return fmt.Errorf("%s without the header %s", answered, name)
		}
	}
	kind := got.header.Get("Content-Type")
	if at(response, "content", kind) == nil {
		return fmt.Errorf("%s with a body of the type %s, which the document does not have", answered, kind)
	}
	return validate(doc, got.body, "paths", path, strings.ToLower(r.Method), "responses", strconv.Itoa(got.status),
		"content", kind, "schema")
}

func documentedPath(doc object, asked string) string {
	steps := strings.Split(asked, "/")
	for path := range at(doc, "paths").(object) {
		if slices.EqualFunc(strings.Split(path, "/"), steps, fits) {
			return path
		}
	}
	return asked
}

// fits says that a step of a path is one of the document's path.
func fits(documented, asked string) bool {
	return documented == asked || strings.HasPrefix(documented, "{")
}

// validate holds JSON against the schema at a place of the document.
func validate(doc object, text string, place ...string) error {
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(documentURL, doc); err != nil {
		return err
	}
	pointer := documentURL + "#"
	for _, name := range place {
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
	}
	schema, err := compiler.Compile(pointer)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func TestTheDocumentIsForCallersAndThePageForAll(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	got := orders.get("/v1/openapi.json")
	require.Equal(t, http.StatusOK, got.status)
	written, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	require.JSONEq(t, string(written), got.body)
	require.Equal(t, http.StatusUnauthorized, orders.get("/v1/openapi.json", "Authorization", "Bearer wrong").status)
	page := orders.get("/v1/try", "Authorization", "Bearer wrong")
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.header.Get("Content-Security-Policy"), "default-src 'none'")
	for _, path := range []string{"/v1/try", "/v1/openapi.json", "/v1/topics/orders/messages/x"} {
		r, err := http.NewRequest(http.MethodPost, strings.Replace(orders.url, "/v1/topics/orders/messages", path, 1), nil)
		require.NoError(t, err)
		refused, err := do(r)
		require.NoError(t, err)
		require.Equal(t, http.StatusMethodNotAllowed, refused.status, path)
		require.Equal(t, "GET, HEAD", refused.header.Get("Allow"), path)
	}
}

// What the ingress reads and the document's schema of a body are of one mind.
func TestTheDocumentSaysWhatAMessageCanBe(t *testing.T) {
	doc, err := document()
	require.NoError(t, err)
	s := newStage(t)
	s.topic.Queued = true
	s.topic.Resolve = func(context.Context, ingress.Template) ([]byte, error) { return []byte(`{}`), nil }
	orders := s.serve()
	long, longer := strings.Repeat("\u00e4", 1000), strings.Repeat("\u00e4", 1001)
	for body, good := range map[string]bool{
		`{"content":null}`: true, `{}`: false,
		`{"content":1,"template":{"key":"a"}}`: false, `{"content":1,"template":null}`: true,
		`{"template":{"key":"a"}}`: true, `{"template":null}`: false, `{"template":{"key":"a","version":null}}`: true,
		`{"template":{"key":" "}}`: false, `{"template":{"key":"a","more":1}}`: false, `{"template":{"version":"1"}}`: false,
		`{"content":1,"more":2}`: false,
		`{"content":1,"key":null,"headers":null,"participants":null,"idempotencyKey":null}`: true,
		`{"content":1,"key":"` + long + `"}`:                                                true, `{"content":1,"key":"` + longer + `"}`: false,
		`{"content":1,"headers":[{"name":"` + long + `","value":null}]}`:                              true,
		`{"content":1,"headers":[{"name":"` + longer + `"}]}`:                                         false,
		`{"content":1,"headers":[{"name":"","value":"x"}]}`:                                           false,
		`{"content":1,"headers":[{"name":"a","value_base64":"eA=="}]}`:                                false,
		`{"content":1,"headers":[null]}`:                                                              false,
		`{"content":1,"participants":[{"role":"to","address":"` + long + `","name":"` + long + `"}]}`: true,
		`{"content":1,"participants":[{"role":"to","address":"a","name":null}]}`:                      true,
		`{"content":1,"participants":[{"role":"to","address":"` + longer + `"}]}`:                     false,
		`{"content":1,"participants":[{"role":"to","address":"a","name":"` + longer + `"}]}`:          false,
		`{"content":1,"participants":[{"role":"to","address":"a\u0085"}]}`:                            false,
		`{"content":1,"participants":[{"role":"of","address":"a"}]}`:                                  false,
		`{"content":1,"participants":[{"role":"to"}]}`:                                                false,
		`{"content":1,"idempotencyKey":"` + strings.Repeat("k", 200) + `"}`:                           true,
		`{"content":1,"idempotencyKey":"` + strings.Repeat("k", 201) + `"}`:                           false,
		`{"content":1,"idempotencyKey":"a\u0000b"}`:                                                   false,
		`{"content":1,"idempotencyKey":7}`:                                                            false,
		`[]`:                                                                                          false,
		`[{"content":1}]`:                                                                             true,
		`7`:                                                                                           false,
	} {
		said := validate(doc, body, "paths", "/v1/topics/{topic}/messages", "post", "requestBody", "content",
			"application/json", "schema")
		require.Equal(t, good, said == nil, "the document: %.80s: %v", body, said)
		got := orders.post("", body)
		require.Equal(t, good, got.status < 300, "the ingress: %.80s: %s", body, got.body)
	}
}
