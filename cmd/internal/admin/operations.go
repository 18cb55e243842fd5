package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/httpjson"
)

const description = `Who may ask: without http.write_token, http.read_token and http.client_ca_file, clients on the same host; else whoever ` +
	`shows a token or a certificate. Changes take the write token or a certificate whose common name is in http.writers, and are kept in ` +
	`the audit with who asked: the credential, and in brackets what the header X-Actor says. Errors are application/problem+json.`

// newAPI is huma over a mux, with nothing of its own beside the operations: its page of documentation would load
// scripts from elsewhere.
func newAPI(mux humago.Mux, version string) huma.API {
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
				Description: "http.read_token or http.write_token of the config."},
			"certificate": {Type: "mutualTLS", Description: "A certificate that http.client_ca_file has signed."}}},
	}
	return humago.New(mux, cfg)
}

// turn is how a call waits for its turn.
type turn func(*call, func() (any, error)) (any, error)

// output has huma leave the writing of an answer to its call.
type output struct {
	Body func(huma.Context)
}

// add makes an operation of a method and a path below prefix.
func add[I, O any](api huma.API, take turn, op huma.Operation, do func(*call, *I) (O, error)) {
	op.Path = prefix + op.Path
	op.Security = []map[string][]string{{}, {"token": {}}, {"certificate": {}}}
	op.Responses = map[string]*huma.Response{"200": response[O](api, "Done.", httpjson.Type),
		"default": response[httpjson.Problem](api, "Not done.", httpjson.ProblemType)}
	op.MaxBodyBytes, op.BodyReadTimeout = maxBody<<20+1, -1 // readBody has it already: a deadline would end the call
	op.Metadata = map[string]any{"body": bodyOf(api, reflect.TypeFor[I]())}
	op.Middlewares = huma.Middlewares{check}
	huma.Register(api, op, func(ctx context.Context, in *I) (*output, error) {
		c := callOf(ctx)
		answer, err := take(c, func() (any, error) { return do(c, in) })
		return &output{func(huma.Context) { c.write(answer, err) }}, nil
	})
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
			"503":     response[T](api, "No.", httpjson.Type),
			"default": response[httpjson.Problem](api, "It failed.", httpjson.ProblemType)}})
}

// addLimits says how long the texts of an operation's parameters may be.
func addLimits(_ *huma.OpenAPI, op *huma.Operation) {
	longest := httpjson.MaxText
	for _, p := range op.Parameters {
		s := p.Schema
		if s.Items != nil {
			s = s.Items
		}
		if s.Type == huma.TypeString && s.MaxLength == nil && s.Enum == nil {
			s.MaxLength = &longest
		}
	}
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

// huma has these for the whole process. No other package may import huma, which a test holds.
func init() {
	huma.DefaultArrayNullable = false
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, text string, _ ...error) huma.StatusError {
		return httpjson.Errorf(status, "%s", text)
	}
	huma.NewErrorWithContext = problemOfInput
}

// problemOfInput tells one thing that huma has found wrong in a request: a field that is not known before one that is
// missing, for it may be meant.
func problemOfInput(ctx huma.Context, _ int, _ string, errs ...error) huma.StatusError {
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
	return problemOfBody(ctx.Operation().Metadata[in].(*huma.Schema), name, found)
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
		return httpjson.Wrong(httpjson.Brief(name), "is no field; see %s/openapi.json", prefix)
	case name == "":
		return httpjson.Errorf(http.StatusBadRequest, "the body is not one JSON object")
	case isText && field != nil && len(field.Enum) > 0:
		return httpjson.Wrong(name, "%s is none of %s", httpjson.Brief(given), choices(field))
	default:
		return httpjson.Wrong(name, "has to be of type %s; see %s/openapi.json", text, prefix)
	}
}

// bodyOf is the schema of an input's body, nil where it has none.
func bodyOf(api huma.API, input reflect.Type) *huma.Schema {
	body, ok := input.FieldByName("Body")
	if !ok {
		return nil
	}
	schemas := api.OpenAPI().Components.Schemas
	return schemas.SchemaFromRef(schemas.Schema(body.Type, true, "").Ref)
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
	switch near := config.Nearest(name, names); {
	case near != "":
		return httpjson.Wrong(name, "is no parameter here; did you mean %s?", near)
	case len(names) == 0:
		return httpjson.Wrong(name, "is no parameter here; there are none")
	}
	return httpjson.Wrong(name, "is no parameter here; there are %s", strings.Join(names, ", "))
}

// readBody takes a body whole, before huma does.
func readBody(w http.ResponseWriter, r *http.Request) error {
	content, fault := httpjson.Body(w, r, maxBody)
	if fault != nil {
		return fault
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
	r.Header.Set("Content-Type", httpjson.Type) // huma knows it by no other case
	return nil
}
