package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
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

// octal is what YAML 1.1 takes for a number to the base of 8, and the environment for one to the base of 10.
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
			l.fault(path, "begins with a zero, which YAML reads to the base of 8; write it without, or a text in quotes")
		}
	}
}

func joined(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// place is where the file has a key or an item.
type place struct{ line, column int }

func (l *loader) note(path string, n *yaml.Node) {
	l.places[dotted.Replace(path)] = place{n.Line, n.Column}
}

// dotted makes items and entries be named like keys.
var dotted = strings.NewReplacer("[", ".", "]", "")

// placeOf is where the file has a fault's key, or else the nearest section above it; nowhere for what comes from the environment.
func (l *loader) placeOf(key string) place {
	path := dotted.Replace(key)
	for from, variable := range l.variables {
		if strings.HasSuffix(key, " ("+variable+")") || path == from || strings.HasPrefix(path, from+".") {
			return place{}
		}
	}
	for path != "" {
		if at, known := l.places[path]; known {
			return at
		}
		section, _ := split(path)
		path = strings.TrimSuffix(section, ".")
	}
	return place{}
}
