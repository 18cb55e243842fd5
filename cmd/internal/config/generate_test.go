package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// With FIRSTSEEN_UPDATE_GOLDEN set the example and the schema are written anew from the comments of config.go.
func TestReferenceIsWrittenFromTheComments(t *testing.T) {
	for _, file := range []struct{ name, embedded, want string }{
		{"example.yaml", Example(), writtenExample()}, {"schema.json", Schema(), writtenSchema()},
	} {
		if os.Getenv("FIRSTSEEN_UPDATE_GOLDEN") != "" {
			require.NoError(t, os.WriteFile(file.name, []byte(file.want), 0o600))
			continue
		}
		require.Equal(t, file.want, file.embedded, "write %s anew: go generate ./cmd/internal/config", file.name)
	}
}

// comments are those of the structs' fields by struct and field, as Postgres.DSN, and those of the structs.
var comments = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		panic(err) // it has been compiled
	}
	for _, d := range file.Decls {
		types, ok := d.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		spec := types.Specs[0].(*ast.TypeSpec)
		found[spec.Name.Name] = flat(types.Doc)
		fieldComments(spec.Name.Name, spec.Type.(*ast.StructType), found)
	}
	return found
})

// fieldComments notes each field's comment. One without may share that of the field before, which then names it.
func fieldComments(owner string, s *ast.StructType, found map[string]string) {
	before := ""
	for _, f := range s.Fields.List {
		name, text := f.Names[0].Name, flat(f.Doc)
		if text == "" && strings.Contains(before, name) {
			text = before
		}
		if before = text; text != "" {
			found[owner+"."+name] = text
		}
	}
}

func flat(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }

// compound are fields' names that are no words of a sentence.
var compound = regexp.MustCompile(`[a-z][A-Z]|[A-Z]{2}[a-z]{2}`)

// comment is what the reference says of a key.
func (k key) comment() string { return keyComments()[k.path] }

var keyComments = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	for _, k := range keys {
		found[k.path] = k.translated(comments())
	}
	return found
})

// translated is the comment of a key's field, or of its type, in the words of the file: keys instead of fields.
func (k key) translated(comments map[string]string) string {
	text, subject := comments[k.owner.Name()+"."+k.field], k.field
	if text == "" {
		text, subject = comments[k.of.Name()], k.of.Name()
	}
	for f := range k.owner.Fields() {
		if compound.MatchString(f.Name) {
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, f.Tag.Get("key"))
		}
	}
	_, name := split(k.path)
	if rest, leads := strings.CutPrefix(text, subject+" "); leads {
		text = name + " " + rest
	}
	return text
}

var (
	literalDefault = regexp.MustCompile(`\bDefault (\[[^\]]*\]|[^\s,]*[^\s,.])`)
	unlessGiven    = regexp.MustCompile(`\bRequired, unless (\w+) is given\.`)
)

// commentDefault is the default that the comment states, as it would be written in the file; empty where none is.
func (k key) commentDefault() string {
	if found := literalDefault.FindStringSubmatch(k.comment()); found != nil {
		return found[1]
	}
	return ""
}

// required says whether a key has no default. instead is another key that makes up for it, or empty.
func (k key) required() (required bool, instead string) {
	if found := unlessGiven.FindStringSubmatch(k.comment()); found != nil {
		return true, found[1]
	}
	return strings.Contains(k.comment(), "Required"), ""
}

// always says whether no config does without the key, whatever else it has: "Required where …" is no such key.
func (k key) always() bool { return strings.Contains(k.comment(), "Required.") }

// kind says what is written as a key's value.
func (k key) kind() string {
	if allowed, few := choices[k.path]; few {
		return strings.Join(allowed, " | ")
	}
	if strings.HasSuffix(k.path, "_file") {
		return "path of a file"
	}
	switch k.of {
	case reflect.TypeFor[Secret]():
		return "text, secret"
	case reflect.TypeFor[[]Secret]():
		return "list of texts, secret"
	case reflect.TypeFor[map[string]Secret]():
		return "texts by name, secret"
	case reflect.TypeFor[Ages]():
		return "durations by name"
	case reflect.TypeFor[Names]():
		return "texts by name"
	case reflect.TypeFor[Size]():
		return "size"
	case durationType:
		return "duration"
	}
	return kinds[k.of.Kind()]
}

var kinds = map[reflect.Kind]string{reflect.String: "text", reflect.Slice: "list of texts", reflect.Int: "number",
	reflect.Float64: "0 to 1", reflect.Bool: "true | false"}

const exampleHead = "Every key of firstseen's config, as it is where nothing is said. A key without a value has " +
	"none, or what its comment says. What is required has a sample. `firstseen config schema` prints the same for " +
	"editors; ${NAME} is a variable of the environment; beside each key is what it takes, the variable that wins " +
	"over it, and whether it can change while the program runs."

// writtenExample is a complete file: every key with its default, its unit and its comment.
func writtenExample() string {
	var b strings.Builder
	writeComment(&b, exampleHead, "")
	shown, before := map[string]bool{}, ""
	nodes := tree(reflect.ValueOf(sample()), "", func(_ string, k key, v reflect.Value) node {
		n := node{value: printed(v)}
		if s, is := v.Interface().(Secret); is && s != "" {
			n.value = s.Reveal()
		}
		if shown[k.path] {
			return n
		}
		shown[k.path] = true
		n.beside = k.facts()
		if text := k.comment(); text != before { // two keys may share one
			n.above, before = text, text
		}
		return n
	})
	for _, n := range nodes {
		b.WriteString("\n")
		writeYAML(&b, []node{n}, "", "")
	}
	return b.String()
}

// sample has a value for each key that is required, and the defaults.
func sample() Config {
	c := defaults()
	c.Postgres.DSN = "postgres://firstseen@localhost:5432/app"
	c.Kafka.Brokers = List{"localhost:9092"}
	c.Group = "billing"
	c.Topics = []Topic{{Name: "orders", Handlers: []Handler{
		{Name: "book", Function: "billing.book_order"},
		{Name: "notify", Webhook: Webhook{URL: "https://example.com/orders"}},
	}}}
	c.Outbox.Destinations = []Destination{{Name: "events", Topics: List{"billing.events"}},
		{Name: "crm", Topics: List{"crm"}, Webhook: Webhook{URL: "https://example.com/crm"}}}
	c.fillIn()
	return c
}

// facts are what a key takes, its variable, and whether it can change while the program runs.
func (k key) facts() string {
	if k.section {
		return ""
	}
	facts := []string{k.kind()}
	if v := k.variable(); v != "" {
		facts = append(facts, v)
	}
	if isLive(k.path) {
		facts = append(facts, "no restart needed")
	}
	return strings.Join(facts, "; ")
}

// isLive says whether a key takes effect while the program runs.
func isLive(path string) bool {
	return slices.ContainsFunc(liveKeys, func(k string) bool { return path == k || strings.HasPrefix(path, k+".") })
}

// object is a JSON Schema, or a part of one.
type object = map[string]any

const schemaHead = "The file alone is held against this schema: a key that the environment gives is missing in it."

// writtenSchema is the JSON Schema (2020-12) of the file.
func writtenSchema() string {
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
	return string(indented(root)) + "\n"
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
		case must && k.always() || k.hasRequired():
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
		_, instead := below.required()
		return s == k.path+"." && (below.always() || instead != "")
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
	sizePattern     = `[0-9]+ *(KiB|MiB|GiB|kB|MB|GB|B)`
)

// valueSchema is the schema of a type's values, and the types of JSON that they may have.
func valueSchema(t reflect.Type, mayBeZero bool) (object, []string) {
	text := object{"type": "string"}
	switch t {
	case durationType:
		if mayBeZero {
			return object{"pattern": orReference("0|" + durationPattern), "minimum": 0, "maximum": 0},
				[]string{"string", "integer"}
		}
		return object{"pattern": orReference(durationPattern)}, []string{"string"}
	case reflect.TypeFor[Size]():
		return object{"pattern": orReference(sizePattern)}, []string{"string"}
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
		return object{"pattern": orReference(`[0-9.]+(e-?[0-9]+)?`), "minimum": 0, "maximum": 1},
			[]string{"number", "string"}
	case reflect.Bool:
		return object{"pattern": orReference(`true|false`)}, []string{"boolean", "string"}
	}
	return object{}, []string{"string"}
}

// orReference also lets a text pass that the environment completes.
func orReference(pattern string) string { return "^(" + pattern + `)$|\$\{` }
