package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

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
	l.checkOctal(path, &root)
	return values, root.Decode(&values)
}

// octal is what YAML 1.1 takes for a number to the base of 8, and the environment for one to the base of 10.
var octal = regexp.MustCompile(`^[-+]?0[0-9_]+$`)

func (l *loader) checkOctal(path string, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			l.checkOctal(joined(path, n.Content[i].Value), n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			l.checkOctal(fmt.Sprintf("%s[%d]", path, i), item)
		}
	case yaml.DocumentNode:
		for _, part := range n.Content {
			l.checkOctal(path, part)
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
