package config

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strings"
	"sync"
)

// source is the reference of the keys: the comments of its structs, as they were when the program was built.
//
//go:embed config.go
var source string

// comments are those of the structs' fields by struct and field, as Postgres.DSN, and those of the structs.
var comments = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", source, parser.ParseComments)
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
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, f.Tag.Get("koanf"))
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
	return strings.Contains(k.comment(), "Required."), ""
}

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
	case reflect.TypeFor[Size]():
		return "size"
	case durationType:
		return "duration"
	}
	return kinds[k.of.Kind()]
}

var kinds = map[reflect.Kind]string{reflect.String: "text", reflect.Slice: "list of texts", reflect.Int: "number",
	reflect.Float64: "0 to 1", reflect.Bool: "true | false"}
