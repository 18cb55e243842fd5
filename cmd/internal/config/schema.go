package config

import (
	"reflect"
	"slices"
	"strings"
)

// object is a JSON Schema, or a part of one.
type object = map[string]any

const schemaHead = "The file alone is held against this schema: a key that the environment gives is missing in it."

// Schema is the JSON Schema (2020-12) of the file, for editors and checks.
func Schema() []byte {
	values := map[string]any{}
	tree(reflect.ValueOf(sample()), "", func(path string, k key, v reflect.Value) node {
		if k.commentDefault() != "" && values[k.path] == nil {
			values[k.path] = printed(v)
		}
		return node{}
	})
	root := section("", values)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "firstseen's config"
	root["description"] = schemaHead
	return indented(root)
}

// section is the schema of the keys below a prefix.
func section(prefix string, values map[string]any) object {
	properties := object{}
	var required []string
	var alternatives []object
	for _, k := range keys {
		s, name := split(k.path)
		if s != prefix {
			continue
		}
		properties[name] = k.schema(values)
		switch must, instead := k.required(); {
		case instead != "":
			alternatives = []object{{"required": []string{name}}, {"required": []string{instead}}}
		case must || k.hasRequired():
			required = append(required, name)
		}
	}
	out := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	if alternatives != nil {
		out["anyOf"] = alternatives
	}
	return out
}

// hasRequired says whether a section can't be left out, for a key in it.
func (k key) hasRequired() bool {
	return k.section && !strings.Contains(k.path, "[]") && slices.ContainsFunc(keys, func(below key) bool {
		s, _ := split(below.path)
		must, _ := below.required()
		return s == k.path+"." && must
	})
}

func (k key) schema(values map[string]any) object {
	var out object
	types := []string{"object"}
	switch {
	case k.list:
		out, types = object{"minItems": 1, "items": section(k.path+"[].", values)}, []string{"array"}
	case k.section:
		out = section(k.path+".", values)
	default:
		out, types = valueSchema(k.of, slices.Contains(mayBeZero, k.path))
	}
	if must, instead := k.required(); (!must || instead != "") && !k.hasRequired() {
		types = append(types, "null") // as good as left out
	}
	out["type"] = types
	if allowed, few := choices[k.path]; few {
		out["anyOf"] = []object{{"enum": allowed}, {"pattern": `\$\{`}}
	}
	out["description"] = k.comment()
	if v, has := values[k.path]; has {
		out["default"] = v
	}
	if k.secret {
		out["writeOnly"] = true
	}
	return out
}

const (
	durationPattern = `[0-9]+d([0-9.]+(ns|us|µs|ms|s|m|h))*|([0-9.]+(ns|us|µs|ms|s|m|h))+`
	sizePattern     = `[0-9]+ *(KiB|MiB|GiB|kB|MB|GB|B)?`
)

// valueSchema is the schema of a type's values, and the types of JSON that they may have.
func valueSchema(t reflect.Type, mayBeZero bool) (object, []string) {
	text := object{"type": "string"}
	switch t {
	case durationType:
		if mayBeZero {
			return object{"pattern": orReference("0|" + durationPattern), "minimum": 0, "maximum": 0}, []string{"string", "integer"}
		}
		return object{"pattern": orReference(durationPattern)}, []string{"string"}
	case reflect.TypeFor[Size]():
		return object{"pattern": orReference(sizePattern), "minimum": 1}, []string{"string", "integer"}
	case reflect.TypeFor[Ages]():
		age, types := valueSchema(durationType, true)
		age["type"] = types
		return object{"additionalProperties": age}, []string{"object"}
	case reflect.TypeFor[[]Secret]():
		return object{"items": text}, []string{"array"}
	}
	switch t.Kind() {
	case reflect.Slice:
		return object{"items": text}, []string{"array", "string"}
	case reflect.Map:
		return object{"additionalProperties": text}, []string{"object"}
	case reflect.Int:
		return object{"pattern": orReference(`[0-9]+`), "minimum": 1}, []string{"integer", "string"}
	case reflect.Float64:
		return object{"pattern": orReference(`[0-9.]+(e-?[0-9]+)?`), "minimum": 0, "maximum": 1}, []string{"number", "string"}
	case reflect.Bool:
		return object{"pattern": orReference(`true|false`)}, []string{"boolean", "string"}
	}
	return object{}, []string{"string"}
}

// orReference also lets a text pass that the environment completes.
func orReference(pattern string) string { return "^(" + pattern + `)$|\$\{` }
