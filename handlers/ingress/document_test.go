package ingress

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/request"
)

// With FIRSTSEEN_UPDATE_GOLDEN set the document is written anew.
func TestDocumentIsWrittenFromTheTypes(t *testing.T) {
	want := writtenDocument(t)
	if os.Getenv("FIRSTSEEN_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile("openapi.json", want, 0o600))
		return
	}
	require.Equal(t, string(want), string(openapi), "write it anew: go generate ./handlers/ingress")
}

const about = `Takes messages of topics in. A client that has heard nothing may post again, with the same ` +
	`Idempotency-Key, as often as it likes: there is one message, and one effect of it. Errors are ` +
	`application/problem+json (RFC 9457) with a code; another method of a path is answered 405 (` + codeMethod + `), another path 404 (` + codeNotFound + `).`

// problems are the codes of what a request may be refused for, by the answer's status.
type problems map[int][]string

// Of all requests, of those that are about a topic, and of those that make messages.
var (
	ofAll   = problems{401: {codeUnauthorized}, 431: {codeHeaders}}
	ofTopic = problems{403: {codeForbidden}, 404: {codeNotFound}, 410: {codeGone}, 500: {codeFailed},
		503: {codeBusy, codeUnavailable}}
	ofPost = problems{400: {codeKey, codeInvalid, codeNotJSON, request.CodeUnreadable}, 408: {request.CodeUnreadable},
		409: {codeConflict}, 413: {request.CodeTooLarge}, 415: {codeNotJSON}, 422: {codeTemplate},
		503: {codeBacklog, codeBusy, codeUnavailable}}
)

// Every problem that the package, or package request for it, can answer is in the document, by its status and code.
func TestDocumentHasEveryProblemOfTheCode(t *testing.T) {
	var said []string
	for _, of := range []problems{ofAll, ofTopic, ofPost} {
		for status, codes := range of {
			for _, code := range codes {
				said = append(said, strconv.Itoa(status)+" "+code)
			}
		}
	}
	require.ElementsMatch(t, slices.Compact(slices.Sorted(slices.Values(said))),
		slices.DeleteFunc(problemsOfTheCode(t), func(p string) bool { return p == "405 "+codeMethod }))
}

// Every way to a route is there, and every field that is read.
func TestDocumentHasEveryRouteAndField(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(openapi, &doc))
	var routes []string
	for path, methods := range doc.Paths {
		for method := range methods {
			routes = append(routes, strings.ToUpper(method)+" "+path)
		}
	}
	served := patternsOfTheCode(t)
	require.ElementsMatch(t, slices.DeleteFunc(served, func(p string) bool { return p == "GET "+pagePath }), routes)
	fields := append(slices.Collect(maps.Keys((&written{}).fields())), keyField)
	require.ElementsMatch(t, fields, slices.Collect(maps.Keys(doc.Components.Schemas["NewMessage"].Properties)))
}

// problemsOfTheCode are the statuses with their codes of all problems that are made in the code that is no test's.
func problemsOfTheCode(t *testing.T) []string {
	found := map[string]bool{}
	for _, dir := range []string{".", "../../dedup/request"} {
		eachNode(t, dir, func(n ast.Node) {
			status, code := problemOf(n)
			if strings.HasPrefix(status, "Status") && code != "code" { // which is a parameter
				found[strconv.Itoa(statuses[status])+" "+codes[code]] = true
			}
		})
	}
	require.NotContains(t, strings.Join(slices.Collect(maps.Keys(found)), "\n")+"\n", " \n", "a code is not known here")
	return slices.Sorted(maps.Keys(found))
}

// problemOf gives the names of a problem's status and code, where it is made here.
func problemOf(n ast.Node) (status, code string) {
	switch n := n.(type) {
	case *ast.CallExpr:
		switch nameOf(n.Fun) {
		case "refusal":
			return nameOf(n.Args[0]), nameOf(n.Args[1])
		case "later":
			return "StatusServiceUnavailable", nameOf(n.Args[0])
		}
	case *ast.CompositeLit:
		if nameOf(n.Type) == "Problem" {
			return nameOf(valueOf(n, "Status")), nameOf(valueOf(n, "Code"))
		}
	}
	return "", ""
}

// The names that problems are written with.
var (
	statuses = map[string]int{"StatusBadRequest": 400, "StatusUnauthorized": 401, "StatusForbidden": 403,
		"StatusNotFound":         404,
		"StatusMethodNotAllowed": 405, "StatusRequestTimeout": 408, "StatusConflict": 409, "StatusGone": 410,
		"StatusRequestEntityTooLarge": 413, "StatusUnsupportedMediaType": 415, "StatusUnprocessableEntity": 422,
		"StatusRequestHeaderFieldsTooLarge": 431, "StatusInternalServerError": 500, "StatusServiceUnavailable": 503}
	codes = map[string]string{"codeUnauthorized": codeUnauthorized, "codeForbidden": codeForbidden,
		"codeNotFound": codeNotFound, "codeMethod": codeMethod, "codeHeaders": codeHeaders, "codeNotJSON": codeNotJSON,
		"codeKey": codeKey, "codeConflict": codeConflict, "codeInvalid": codeInvalid, "codeTemplate": codeTemplate,
		"codeGone": codeGone, "codeBusy": codeBusy, "codeBacklog": codeBacklog, "codeUnavailable": codeUnavailable,
		"codeFailed": codeFailed, "CodeTooLarge": request.CodeTooLarge, "CodeUnreadable": request.CodeUnreadable}
)

// patternsOfTheCode are the methods and paths of all routes that don't refuse.
func patternsOfTheCode(t *testing.T) (patterns []string) {
	paths := map[string]string{"messagesPath": messagesPath, "documentPath": documentPath, "pagePath": pagePath}
	eachNode(t, ".", func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || nameOf(call.Fun) != "HandleFunc" && nameOf(call.Fun) != "Handle" {
			return
		}
		pattern := ""
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				pattern += paths[n.Name]
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				require.NoError(t, err)
				pattern += text
			}
			return true
		})
		if strings.Contains(pattern, " ") {
			patterns = append(patterns, pattern)
		}
	})
	return patterns
}

// eachNode goes through the syntax of a directory's files that are no tests.
func eachNode(t *testing.T, dir string, visit func(ast.Node)) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+e.Name(), nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool { visit(n); return true })
	}
}

// nameOf is the last word of a name.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func valueOf(literal *ast.CompositeLit, field string) ast.Expr {
	for _, e := range literal.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok && nameOf(pair.Key) == field {
			return pair.Value
		}
	}
	return nil
}

// document is what the OpenAPI document is written with: schemas of what is answered, and of what is read, which may
// not have other fields and need not have all.
type document struct {
	answered, read huma.Registry
	names          map[reflect.Type]string
}

func newDocument() *document {
	huma.DefaultArrayNullable = false
	d := &document{names: map[reflect.Type]string{
		reflect.TypeFor[told](): "Message", reflect.TypeFor[toldHandler](): "HandlerState",
		reflect.TypeFor[toldMany](): "Messages", reflect.TypeFor[request.Told](): "Problem",
		reflect.TypeFor[written](): "Message"}}
	d.answered = huma.NewMapRegistry("#/components/schemas/", d.namer(""))
	d.read = huma.NewMapRegistry("#/components/schemas/", d.namer("New"))
	return d
}

func (d *document) namer(prefix string) func(reflect.Type, string) string {
	return func(t reflect.Type, hint string) string {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if name := d.names[t]; name != "" {
			return prefix + name
		}
		return prefix + huma.DefaultSchemaNamer(t, hint)
	}
}

func writtenDocument(t *testing.T) []byte {
	t.Helper()
	d := newDocument()
	api := &huma.OpenAPI{OpenAPI: "3.1.0", Info: &huma.Info{Title: "firstseen ingress", Version: "v1", Description: about},
		Components: &huma.Components{Schemas: d.answered, SecuritySchemes: map[string]*huma.SecurityScheme{
			"token":       {Type: "http", Scheme: "bearer", Description: "One of ingress.tokens of the config."},
			"certificate": {Type: "mutualTLS", Description: "A certificate that ingress.client_ca_file has signed."}}},
		Security: []map[string][]string{{"token": {}}, {"certificate": {}}}}
	api.AddOperation(d.post())
	api.AddOperation(d.get())
	api.AddOperation(d.openapi())
	d.finish()
	maps.Copy(d.answered.Map(), d.read.Map())
	var text bytes.Buffer
	compact, err := json.Marshal(api)
	require.NoError(t, err)
	require.NoError(t, json.Indent(&text, compact, "", "  "))
	text.WriteByte('\n')
	return text.Bytes()
}

func (d *document) post() *huma.Operation {
	content := d.read.Schema(reflect.TypeFor[written](), true, "")
	template := &huma.Schema{Ref: strings.Replace(content.Ref, "NewMessage", "NewTemplatedMessage", 1)}
	return &huma.Operation{OperationID: "postMessages", Method: http.MethodPost, Path: messagesPath,
		Summary: "Make a message, or an array of them in one transaction.",
		Description: "What is there already is only told of. In an array each message has its key in its own field, " +
			"and what became of each is in the answer's list.",
		Parameters: append(topicParameters(), keyParameter(), &huma.Param{Name: "Prefer", In: "header",
			Description: "respond-async: don't wait for the handlers (RFC 7240).", Schema: text()}),
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {
			Schema: &huma.Schema{OneOf: []*huma.Schema{content, template,
				{Type: huma.TypeArray, Items: &huma.Schema{OneOf: []*huma.Schema{content, template}},
					MinItems: new(1), MaxItems: new(100),
					Description: "As many as the service lets through at once, 100 by default."}}},
			Example: map[string]any{"content": map[string]any{"order": 17}, "key": "customer-4", "participants": []any{
				map[string]any{"role": "sender", "address": "shop@example.com"}}}}}},
		Responses: d.responses(ofAll, ofTopic, ofPost).
			add(200, "It was there already: nothing was written. Or the answer to an array.", located(false),
				d.either(reflect.TypeFor[told](), reflect.TypeFor[toldMany]())).
			add(201, "The message was made.", located(true), d.schema(reflect.TypeFor[told]())).
			add(202, "It is parked, and handled later: the topic is queued, it was preferred, or the handlers took too long.",
				located(false), d.either(reflect.TypeFor[accepted](), reflect.TypeFor[toldMany]()))}
}

func (d *document) get() *huma.Operation {
	return &huma.Operation{OperationID: "getMessage", Method: http.MethodGet, Path: messagesPath + "/{id}",
		Summary: "What became of a message.",
		Parameters: append(topicParameters(), &huma.Param{Name: "id", In: "path", Required: true,
			Description: "The message's ID.", Schema: &huma.Schema{Type: huma.TypeString, Format: "uuid"}}),
		Responses: d.responses(ofAll, ofTopic).add(200, "The message.", nil, d.schema(reflect.TypeFor[told]()))}
}

func (d *document) openapi() *huma.Operation {
	return &huma.Operation{OperationID: "getOpenAPI", Method: http.MethodGet, Path: documentPath,
		Summary: "This document.", Responses: d.responses(ofAll).add(200, "The document.", nil, &huma.Schema{Type: huma.TypeObject})}
}

func text() *huma.Schema { return &huma.Schema{Type: huma.TypeString} }

func topicParameters() []*huma.Param {
	return []*huma.Param{{Name: "topic", In: "path", Required: true, Schema: text(),
		Description: "One of those that the service takes messages of."}}
}

// keyParameter is a key as it is, or as a String of RFC 9651.
func keyParameter() *huma.Param {
	return &huma.Param{Name: request.KeyHeader, In: "header", Example: "order-17",
		Description: "Names the message, and is the same at each try. Up to 200 characters, as they are or as a string " +
			"in quotes (RFC 9651). Not with an array.",
		Schema: &huma.Schema{Type: huma.TypeString,
			Pattern: `^([!#-~]([ -~]{0,198}[!-~])?|"([ !#-\[\]-~]|\\["\\]){0,200}")?$`}}
}

func (d *document) schema(t reflect.Type) *huma.Schema { return d.answered.Schema(t, true, "") }

func (d *document) either(types ...reflect.Type) *huma.Schema {
	var one []*huma.Schema
	for _, t := range types {
		one = append(one, d.schema(t))
	}
	return &huma.Schema{OneOf: one}
}

type responses map[string]*huma.Response

// responses are the problems, each with the codes that come with its status. Later ones replace earlier ones.
func (d *document) responses(all ...problems) responses {
	out := responses{}
	for _, of := range all {
		for status, codes := range of {
			out.add(status, http.StatusText(status)+": "+strings.Join(codes, ", ")+".", headersOf(status),
				&huma.Schema{AllOf: []*huma.Schema{d.schema(reflect.TypeFor[request.Told]()), {Type: huma.TypeObject,
					Properties: map[string]*huma.Schema{"status": {Type: huma.TypeInteger, Enum: []any{status}},
						"code": {Type: huma.TypeString, Enum: anys(codes)}}}}})
		}
	}
	return out
}

func anys(texts []string) (out []any) {
	for _, text := range texts {
		out = append(out, text)
	}
	return out
}

// add adds an answer. All have the header X-Request-Id.
func (r responses) add(status int, about string, headers map[string]*huma.Param, schema *huma.Schema) responses {
	if headers == nil {
		headers = map[string]*huma.Param{}
	}
	headers[request.IDHeader] = headerOf("By which the service's log knows the request.", true)
	kind := "application/json"
	if status >= 400 {
		kind = "application/problem+json"
	}
	content := map[string]*huma.MediaType{kind: {Schema: schema}}
	if status == http.StatusRequestHeaderFieldsTooLarge {
		content["text/plain"] = &huma.MediaType{Schema: text()} // by the server: they are larger than it reads
		headers[request.IDHeader].Required = false
	}
	r[strconv.Itoa(status)] = &huma.Response{Description: about, Headers: headers, Content: content}
	return r
}

func headerOf(about string, always bool) *huma.Param {
	return &huma.Param{Description: about, Required: always, Schema: text()}
}

// headersOf are those of a problem.
func headersOf(status int) map[string]*huma.Param {
	switch status {
	case http.StatusUnauthorized:
		return map[string]*huma.Param{"WWW-Authenticate": headerOf("What to show.", true)}
	case http.StatusServiceUnavailable, http.StatusRequestTimeout:
		return map[string]*huma.Param{
			"Retry-After": headerOf("After how many seconds to send it again, with the same key.", true)}
	}
	return nil
}

// located are the headers of an answer to one message; always: there is no other answer of the status.
func located(always bool) map[string]*huma.Param {
	return map[string]*huma.Param{"Location": headerOf("Where GET tells of the message.", always),
		"Idempotency-Replayed": headerOf("true: the message was there already.", false),
		"Preference-Applied":   headerOf("respond-async, where it was preferred.", false)}
}

// What validate wants of texts: no control characters, and of some that there is something to see.
const (
	clean   = `^[^\x00-\x1f\x7f-\x9f]*$`
	visible = `^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$`
)

// finish says what tags can't.
func (d *document) finish() {
	answered, read := d.answered.Map(), d.read.Map()
	for _, schema := range answered {
		schema.AdditionalProperties = nil // an answer may have more fields one day
	}
	template := answered["Message"].Properties["template"]
	answered["Message"].Properties["template"] = &huma.Schema{Description: template.Description,
		AnyOf: []*huma.Schema{d.schema(reflect.TypeFor[Template]()), {Type: "null"}}}
	answered["Outcome"].Properties["message"] = d.either(reflect.TypeFor[told](), reflect.TypeFor[accepted]())
	answered["Outcome"].Properties["problem"] = d.schema(reflect.TypeFor[request.Told]())
	delete(read["NewHeader"].Properties, "value_base64")
	for name, required := range map[string][]string{"NewMessage": {}, "NewHeader": {"name"}, "NewTemplate": {"key"},
		"NewParticipant": {"role", "address"}} {
		read[name].Required, read[name].AdditionalProperties = required, false
	}
	for _, of := range [][3]string{{"NewHeader", "name", visible}, {"NewParticipant", "address", visible},
		{"NewParticipant", "name", clean}, {"NewTemplate", "key", visible}, {"NewTemplate", "version", clean},
		{"NewMessage", keyField, clean}} {
		read[of[0]].Properties[of[1]].Pattern = of[2]
	}
	d.finishMessages(read)
}

// finishMessages says that a message has either content or a template, and that null stands for what is not there.
func (d *document) finishMessages(read map[string]*huma.Schema) {
	m := read["NewMessage"]
	read["NewTemplate"].Properties["version"].Nullable = true
	read["NewHeader"].Properties["value"].Nullable, read["NewParticipant"].Properties["name"].Nullable = true, true
	m.Properties["headers"].Nullable, m.Properties["participants"].Nullable = true, true
	templated := *m
	templated.Properties, templated.Required = maps.Clone(m.Properties), []string{"template"}
	delete(templated.Properties, "content")
	read["NewTemplatedMessage"] = &templated
	m.Properties["template"], m.Required = &huma.Schema{Type: "null"}, []string{"content"}
}
