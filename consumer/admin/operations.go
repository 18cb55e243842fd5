package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/firstseen/firstseen/dedup/argtext"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

const description = `Who may ask: without tokens and a CA for certificates, clients on the same host; else whoever ` +
	`shows a token or a certificate. Changes take the write token or a certificate whose common name is that of a writer, and are kept in ` +
	`the audit with who asked: the credential, and in brackets what the header X-Actor says. Errors are application/problem+json.`

// describe adds the operations to a mux, and gives their document.
func describe(mux humago.Mux, version string) *huma.OpenAPI {
	defer asWeDescribe()()
	api := overMux(mux, version)
	addOperations(api)
	return api.OpenAPI()
}

// describing is one at a time, for what it changes huma has for the whole process.
var describing sync.Mutex

// asWeDescribe has huma say of lists that they are never null, and of errors that they are problems, until put back.
func asWeDescribe() (putBack func()) {
	describing.Lock()
	nullable, newError := huma.DefaultArrayNullable, huma.NewError
	huma.DefaultArrayNullable = false
	huma.NewError = func(status int, text string, _ ...error) huma.StatusError {
		return httpjson.Errorf(status, "%s", text)
	}
	return func() {
		huma.DefaultArrayNullable, huma.NewError = nullable, newError
		describing.Unlock()
	}
}

// overMux is huma over a mux, with nothing of its own beside the operations: its page of documentation would load
// scripts from elsewhere.
func overMux(mux humago.Mux, version string) huma.API {
	json := huma.Format{Unmarshal: json.Unmarshal, Marshal: func(w io.Writer, v any) error {
		text, err := httpjson.Marshal(v, "")
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}}
	cfg := huma.Config{Formats: map[string]huma.Format{httpjson.Type: json, "json": json},
		DefaultFormat: httpjson.Type}
	cfg.AllowAdditionalPropertiesByDefault = true // an answer may have more fields one day
	cfg.OpenAPI = &huma.OpenAPI{
		Info:           &huma.Info{Title: "firstseen admin API", Version: version, Description: description},
		OnAddOperation: []huma.AddOpFunc{addLimits},
		Components: &huma.Components{SecuritySchemes: map[string]*huma.SecurityScheme{
			"token": {Type: "http", Scheme: "bearer",
				Description: "The read token or the write token: http.read_token, http.write_token."},
			"certificate": {Type: "mutualTLS", Description: "A certificate that the CA for clients has signed: http.client_ca_file."}}},
	}
	return humago.New(mux, cfg)
}

// turn has a call wait for its turn.
type turn func(*call, func() (any, error)) (any, error)

// output has huma leave the writing of an answer to its call.
type output struct {
	Body func(huma.Context)
}

// add makes an operation of a method and a path below prefix.
func add[I, O any](api huma.API, take turn, op huma.Operation, do func(*call, *I) (O, error)) {
	op.Path = prefix + op.Path
	op.Security = []map[string][]string{{}, {"token": {}}, {"certificate": {}}}
	op.Responses = map[string]*huma.Response{"200": answerOf[O](api)}
	body := bodyOf(api, reflect.TypeFor[I]())
	for _, status := range refusals(&op, body != nil) {
		op.Responses[strconv.Itoa(status)] = response[httpjson.Problem](api, http.StatusText(status)+".",
			httpjson.ProblemType)
	}
	op.Responses["431"] = &huma.Response{Description: "What the request says beside its body is more than 16 KiB in all.",
		Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}
	op.Errors = nil                                         // or huma would describe them in its own way
	op.MaxBodyBytes, op.BodyReadTimeout = maxBody<<20+1, -1 // readBody has it already: a deadline would end the call
	op.Metadata = map[string]any{bodyKey: body}
	op.Middlewares = huma.Middlewares{checkBy(api.OpenAPI().Components.Schemas)}
	huma.Register(api, op, func(ctx context.Context, in *I) (*output, error) {
		c := callOf(ctx)
		answer, err := take(c, func() (any, error) { return do(c, in) })
		return &output{func(huma.Context) { c.write(answer, err) }}, nil
	})
}

// refusals are the statuses of problems that an operation may answer: those of all, those of a body, and its own.
func refusals(op *huma.Operation, hasBody bool) []int {
	all := []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	if hasBody {
		all = append(all, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	return append(all, op.Errors...)
}

// answerOf describes what an operation answers: JSON, or a file.
func answerOf[O any](api huma.API) *huma.Response {
	if reflect.TypeFor[O]() == reflect.TypeFor[*download]() {
		return fileResponse()
	}
	return response[O](api, "Done.", httpjson.Type)
}

func response[T any](api huma.API, text, kind string) *huma.Response {
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	return &huma.Response{Description: text, Content: map[string]*huma.MediaType{kind: {Schema: schema}}}
}

// addProbe describes what is served beside the API.
func addProbe[T any](api huma.API, path string) {
	api.OpenAPI().AddOperation(&huma.Operation{OperationID: strings.TrimPrefix(path, "/"), Method: http.MethodGet,
		Path: path, Summary: "For whoever watches the program; open to all.", Security: []map[string][]string{{}},
		Responses: map[string]*huma.Response{"200": response[T](api, "Yes.", httpjson.Type),
			"503": response[T](api, "No.", httpjson.Type),
			"500": response[httpjson.Problem](api, "It failed.", httpjson.ProblemType)}})
}

// addLimits says what the texts of an operation's parameters, and of its body, may be.
func addLimits(api *huma.OpenAPI, op *huma.Operation) {
	for _, p := range op.Parameters {
		limitText(p.Schema)
	}
	if op.RequestBody != nil {
		body := op.RequestBody.Content[httpjson.Type].Schema
		for _, s := range api.Components.Schemas.SchemaFromRef(body.Ref).Properties {
			limitText(s)
		}
	}
}

// limitText bounds a text, or a list of texts, that nothing else is said of.
func limitText(s *huma.Schema) {
	s = cmp.Or(s.Items, s)
	if s.Type != huma.TypeString || s.Enum != nil || s.Format != "" {
		return
	}
	if s.MaxLength == nil {
		s.MaxLength = new(httpjson.MaxText)
	}
	if s.Pattern == "" && s.AnyOf == nil {
		s.Pattern, s.PatternDescription = textPattern, "a text without NUL"
	}
	s.PrecomputeMessages()
}

// addNulls says which objects of answers may be null: huma says it of numbers and texts only.
func addNulls(schemas huma.Registry) {
	for name, s := range schemas.Map() {
		for _, f := range reflect.VisibleFields(schemas.TypeFromRef("#/components/schemas/" + name)) {
			field, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if p := s.Properties[field]; p != nil && p.Ref != "" && f.Type.Kind() == reflect.Pointer && options == "" {
				s.Properties[field] = &huma.Schema{Description: f.Tag.Get("doc"),
					AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}}
			}
		}
	}
}

// bodyKey marks an operation as ours in its metadata, with the schema of its body.
const bodyKey = "github.com/firstseen/firstseen/consumer/admin.body"

// huma has this for the whole process: what others have in the program keeps its own.
func init() {
	others := huma.NewErrorWithContext
	huma.NewErrorWithContext = func(ctx huma.Context, status int, text string, errs ...error) huma.StatusError {
		if ctx != nil && ctx.Operation() != nil {
			if body, ours := ctx.Operation().Metadata[bodyKey]; ours {
				return problemOfInput(ctx, body.(*huma.Schema), errs)
			}
		}
		return others(ctx, status, text, errs...)
	}
}

// problemOfInput tells one thing that huma has found wrong in a request: a field that is not known before one that is
// missing, for it may be meant.
func problemOfInput(ctx huma.Context, body *huma.Schema, errs []error) huma.StatusError {
	httpjson.Guard(ctx.SetHeader)
	if known, ok := errors.AsType[*httpjson.Problem](errors.Join(errs...)); ok {
		return known
	}
	var found *huma.ErrorDetail
	for _, err := range errs {
		detail, ok := errors.AsType[*huma.ErrorDetail](err)
		if ok && (found == nil || detail.Message == validation.MsgUnexpectedProperty) {
			found = detail
		}
	}
	if found == nil {
		return httpjson.Errorf(http.StatusBadRequest, "the body is not one JSON object")
	}
	in, name, _ := strings.Cut(found.Location, ".")
	if in != "body" {
		return httpjson.Wrong(name, "%s", strings.TrimPrefix(found.Message, "invalid value: "))
	}
	return problemOfBody(body, name, found)
}

// problemOfBody says in our words what is wrong with a field of a body; no name is the body itself.
func problemOfBody(body *huma.Schema, name string, found *huma.ErrorDetail) *httpjson.Problem {
	outer, _, _ := strings.Cut(name, ".")
	_, missing := fmt.Sscanf(found.Message, validation.MsgExpectedRequiredProperty, &name)
	field := body.Properties[name]
	given, isText := found.Value.(string)
	switch text := strings.TrimPrefix(found.Message, "expected "); {
	case missing == nil && field != nil:
		return required(name, field)
	case text == validation.MsgUnexpectedProperty && body.Properties[outer] == nil:
		return unknown(httpjson.Brief(name), slices.Sorted(maps.Keys(body.Properties)))
	case text == validation.MsgUnexpectedProperty:
		return noField(name)
	case name == "":
		return httpjson.Errorf(http.StatusBadRequest, "the body is not one JSON object")
	case isText && field != nil && len(field.Enum) > 0:
		return httpjson.Wrong(name, "%s is none of %s", httpjson.Brief(given), choices(field))
	case found.Message == validation.MsgExpectedMatchAtLeastOneSchema:
		return httpjson.Wrong(name, "%s is neither a duration like 2h nor a time like 2026-03-01T04:05:06Z",
			httpjson.Brief(given))
	case strings.HasSuffix(text, "properties"):
		return httpjson.Wrong(name, "has to have one of text and base64")
	case strings.HasPrefix(text, "string to be "):
		return httpjson.Wrong(name, "has to be %s", strings.TrimPrefix(text, "string to be "))
	case slices.Contains(jsonTypes, text):
		return httpjson.Wrong(name, "has to be of type %s; see %s/openapi.json", text, prefix)
	default:
		return httpjson.Wrong(name, "is not what it has to be, %s; see %s/openapi.json", text, prefix)
	}
}

// jsonTypes are named by huma where a value is of another one.
var jsonTypes = []string{huma.TypeString, huma.TypeBoolean, huma.TypeInteger, huma.TypeNumber, huma.TypeArray,
	huma.TypeObject}

// bodyOf is the schema of an input's body, nil where it has none.
func bodyOf(api huma.API, input reflect.Type) *huma.Schema {
	body, ok := input.FieldByName("Body")
	if !ok {
		return nil
	}
	schemas := api.OpenAPI().Components.Schemas
	return schemas.SchemaFromRef(schemas.Schema(body.Type, true, "").Ref)
}

// noField is of a field within another.
func noField(path string) *httpjson.Problem {
	return httpjson.Wrong(httpjson.Brief(path), "is no field; see %s/openapi.json", prefix)
}

func required(name string, s *huma.Schema) *httpjson.Problem {
	if len(s.Enum) > 0 {
		return httpjson.Wrong(name, "is required: one of %s", choices(s))
	}
	doc := s.Description
	return httpjson.Wrong(name, "is required: %s", strings.ToLower(doc[:1])+strings.TrimSuffix(doc[1:], "."))
}

func choices(s *huma.Schema) string {
	var names []string
	for _, name := range s.Enum {
		names = append(names, fmt.Sprint(name))
	}
	return strings.Join(names, ", ")
}

func unknown(name string, names []string) *httpjson.Problem {
	switch near := argtext.Nearest(name, names); {
	case near != "":
		return httpjson.Wrong(name, "is no parameter here; did you mean %s?", near)
	case len(names) == 0:
		return httpjson.Wrong(name, "is no parameter here; there are none")
	}
	return httpjson.Wrong(name, "is no parameter here; there are %s", strings.Join(names, ", "))
}

// readBody takes a body whole, before huma does, and refuses what huma would take.
func readBody(w http.ResponseWriter, r *http.Request, is *huma.Schema, schemas huma.Registry) error {
	content, fault := httpjson.Body(w, r, maxBody)
	if fault == nil {
		fault = checkFields(content, is, schemas, "")
	}
	if fault != nil {
		return fault
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
	r.Header.Set("Content-Type", httpjson.Type) // huma knows it by no other case
	return nil
}
