package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

var errDocuments = errors.New("holds more than one YAML document: what follows --- would not be read; make it one")

// document reads the one document of a YAML text; faults are what YAML takes otherwise than it looks.
func (l *loader) document(path string, text []byte) (values any, err error) {
	in := yaml.NewDecoder(bytes.NewReader(text))
	var root, more yaml.Node
	switch err := in.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errDocuments
	}
	l.look(path, &root)
	return values, root.Decode(&values)
}

// octal is a number to the base of 8 by YAML 1.1, and to the base of 10 by all else: nobody may write it.
var octal = regexp.MustCompile(`^[-+]?0[0-9_]+$`)

// look finds octal numbers, and notes where each key is.
func (l *loader) look(path string, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			within := joined(path, n.Content[i].Value)
			l.note(within, n.Content[i])
			l.look(within, n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			l.note(path+index(i), item)
			l.look(path+index(i), item)
		}
	case yaml.DocumentNode:
		for _, part := range n.Content {
			l.look(path, part)
		}
	case yaml.ScalarNode:
		if n.ShortTag() == "!!int" && octal.MatchString(n.Value) {
			l.fault(path,
				"begins with a zero, which YAML reads to the base of 8; write it without, or a text in quotes")
		}
	}
}

func joined(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// reference is ${NAME}, or $${, which is ${ itself.
var reference = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// substitute replaces the references in all values from the file, and remembers the keys that have one: what
// comes from the environment may be secret wherever it stands.
func (l *loader) substitute(path string, v any) any {
	switch v := v.(type) {
	case string:
		return l.substituteText(path, v)
	case []any:
		for i := range v {
			v[i] = l.substitute(fmt.Sprintf("%s[%d]", path, i), v[i])
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			within := strings.TrimPrefix(path+"."+name, ".")
			v[name] = l.substitute(within, v[name])
			if k, known := findKey(within); known && !k.section && v[name] == nil {
				delete(v, name) // written without a value: the default
			}
		}
	}
	return v
}

func (l *loader) substituteText(path, text string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		if ref == "$${" {
			return "${"
		}
		l.unshown[path] = true
		l.written[path] = text
		name, closed := strings.CutSuffix(ref[len("${"):], "}")
		if !closed || !variableName.MatchString(name) {
			l.fault(path, "has a ${ that is no ${NAME}; write $${ where a plain ${ is meant")
			return ""
		}
		value, set := l.lookup(name)
		if !set {
			l.fault(path,
				"${%s} is not set in the environment; set it, or write $${%s} for the text itself", name, name)
			l.unset = append(l.unset, path)
		}
		return value
	})
}

func (l *loader) lookup(name string) (string, bool) {
	for _, pair := range slices.Backward(l.environ) {
		if n, value, _ := strings.Cut(pair, "="); n == name {
			return value, true
		}
	}
	return "", false
}
