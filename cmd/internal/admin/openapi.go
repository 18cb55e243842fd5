package admin

import (
	"github.com/firstseen/firstseen/cmd/internal/httpjson"

	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
)

type object = map[string]any

// openAPI is the document of the routes, in OpenAPI 3.1. Its schemas are those of the types that are answered.
func openAPI(version string) ([]byte, error) {
	schemas := schemaSet{}
	paths := map[string]object{}
	for i := range routes {
		r := &routes[i]
		if paths[prefix+r.path] == nil {
			paths[prefix+r.path] = object{}
		}
		paths[prefix+r.path][strings.ToLower(r.method)] = r.operation(schemas)
	}
	for path, answer := range map[string]any{"/livez": Probe{}, "/readyz": Probe{}, "/healthz": Health{}} {
		paths[path] = object{"get": probeOperation(path, answer, schemas)}
	}
	return json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info":    object{"title": "firstseen admin API", "version": version, "description": description},
		"paths":   paths,
		"components": object{
			"schemas": schemas,
			"securitySchemes": object{
				"token": object{"type": "http", "scheme": "bearer",
					"description": "http.read_token or http.write_token of the config."},
				"certificate": object{"type": "mutualTLS", "description": "A certificate that http.client_ca_file has signed."},
			},
		},
	}, "", "  ")
}

const description = `Who may ask: without http.write_token, http.read_token and http.client_ca_file, clients on the same host; else whoever ` +
	`shows a token or a certificate. Changes take the write token or a certificate whose common name is in http.writers, and are kept in ` +
	`the audit with who asked: the credential, and in brackets what the header X-Actor says. Errors are application/problem+json.`

func (r *route) operation(schemas schemaSet) object {
	op := object{
		"operationId": r.name, "summary": r.summary,
		"security": []object{{}, {"token": []string{}}, {"certificate": []string{}}},
		"responses": object{
			"200": object{"description": "Done.",
				"content": object{httpjson.Type: object{"schema": schemas.of(reflect.TypeOf(r.answer))}}},
			"default": object{"description": "Not done.", "content": problems(schemas)},
		},
	}
	parameters := []object{}
	for _, p := range r.parameters {
		parameters = append(parameters, p.object())
	}
	if r.changes {
		parameters = append(parameters, object{"name": "X-Actor", "in": "header",
			"description": "Who asks; kept in the audit beside what the credential proves.",
			"schema":      object{"type": "string", "maxLength": maxActor}})
	}
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	if r.body != nil {
		op["requestBody"] = object{"required": true,
			"content": object{httpjson.Type: object{"schema": schemas.of(reflect.TypeOf(r.body).Elem())}}}
	}
	return op
}

func problems(schemas schemaSet) object {
	return object{"application/problem+json": object{"schema": schemas.of(reflect.TypeFor[httpjson.Problem]())}}
}

func probeOperation(path string, answer any, schemas schemaSet) object {
	content := object{httpjson.Type: object{"schema": schemas.of(reflect.TypeOf(answer))}}
	return object{"operationId": strings.TrimPrefix(path, "/"),
		"summary": "For whoever watches the program; open to all.", "security": []object{{}},
		"responses": object{
			strconv.Itoa(http.StatusOK):                 object{"description": "Yes.", "content": content},
			strconv.Itoa(http.StatusServiceUnavailable): object{"description": "No.", "content": content},
			"default": object{"description": "It failed.", "content": problems(schemas)},
		}}
}

func (p parameter) object() object {
	schema := object{"type": "string", "maxLength": httpjson.MaxText}
	switch p.kind {
	case number:
		schema = object{"type": "integer", "minimum": 0}
	case boolean:
		schema = object{"type": "boolean"}
	case ids:
		if !p.inPath {
			schema = object{"type": "array", "items": schema, "maxItems": maxIDs}
		}
	}
	if p.enum != nil {
		schema["enum"] = p.enum
	}
	out := object{"name": p.name, "in": "query", "description": p.doc, "schema": schema, "required": p.required}
	if p.inPath {
		out["in"] = "path"
	}
	return out
}

// schemaSet are the schemas of structs, by the names of their types.
type schemaSet map[string]object

// of gives the schema of a type, by reference where it is a struct's.
func (s schemaSet) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return nullable(s.of(t.Elem()))
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case t.Kind() == reflect.Struct:
		if _, ok := s[t.Name()]; !ok {
			s[t.Name()] = nil // it may hold itself
			s[t.Name()] = s.structOf(t)
		}
		return object{"$ref": "#/components/schemas/" + t.Name()}
	}
	return object{"type": jsonTypes[t.Kind()]}
}

var jsonTypes = map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Map: "object",
	reflect.Float64: "number",
	reflect.Int:     "integer", reflect.Int32: "integer", reflect.Int64: "integer"}

func nullable(schema object) object {
	if name, ok := schema["type"].(string); ok {
		schema["type"] = []string{name, "null"}
		return schema
	}
	return object{"anyOf": []object{schema, {"type": "null"}}}
}

func (s schemaSet) structOf(t reflect.Type) object {
	properties, required := object{}, []string{}
	s.fields(t, properties, &required)
	return object{"type": "object", "properties": properties, "required": required}
}

func (s schemaSet) fields(t reflect.Type, properties object, required *[]string) {
	for f := range t.Fields() {
		if f.Anonymous {
			s.fields(f.Type, properties, required)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" {
			continue
		}
		schema := s.of(f.Type)
		if doc := f.Tag.Get("doc"); doc != "" {
			schema["description"] = doc
		}
		if enum, ok := f.Tag.Lookup("enum"); ok {
			schema["enum"] = strings.Split(enum, ",")
		}
		if options == "omitempty" {
			if f.Type.Kind() == reflect.Pointer { // left out, never null
				schema = s.of(f.Type.Elem())
				schema["description"] = f.Tag.Get("doc")
			}
		} else {
			*required = append(*required, name)
		}
		properties[name] = schema
	}
}
