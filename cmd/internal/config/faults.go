package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error is all that is wrong with a config. It shows no secret.
type Error struct {
	// Source is the file, or says that there was none.
	Source string
	Faults []Fault
}

// Fault is one thing that is wrong.
type Fault struct {
	// Key is the key's path, like topics[0].name, or the name of an environment variable.
	Key string
	// Line and Column, from 1, are where the file has the key or, where it lacks it, the section that it belongs in.
	// Zero where the file has neither.
	Line, Column int
	// Text says what is wrong and what to do.
	Text string
}

func (f Fault) String() string {
	switch {
	case f.Key == "" && f.Line > 0:
		return fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Text)
	case f.Key == "":
		return f.Text
	case f.Line > 0:
		return fmt.Sprintf("%s (line %d, column %d): %s", f.Key, f.Line, f.Column, f.Text)
	}
	return f.Key + ": " + f.Text
}

func (e *Error) Error() string {
	if len(e.Faults) == 1 {
		return fmt.Sprintf("config (%s): %s", e.Source, e.Faults[0])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "config (%s) has %d faults:", e.Source, len(e.Faults))
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "\n  %s", f)
	}
	return b.String()
}

func (e *Error) list() string {
	texts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

// fault notes what is wrong with the value of a key.
func (l *loader) fault(path, format string, args ...any) {
	l.faults = append(l.faults, Fault{Key: l.named(path), Text: fmt.Sprintf(format, args...)})
}

// named is the key, and the environment variable where its value comes from there.
func (l *loader) named(path string) string {
	if v, ok := l.variables[indexes.ReplaceAllString(path, "")]; ok {
		return fmt.Sprintf("%s (%s)", path, v)
	}
	return path
}

// has says whether a key or its section has been found faulty already: it needs no second fault for being missing.
func (l *loader) has(path string) bool {
	for path != "" {
		if slices.ContainsFunc(l.faults, func(f Fault) bool { return f.Key == l.named(path) }) {
			return true
		}
		section, _ := split(path)
		path = strings.TrimSuffix(section, ".")
	}
	return false
}

func (l *loader) err() error {
	if len(l.faults) == 0 {
		return nil
	}
	for i := range l.faults {
		if f := &l.faults[i]; f.Line == 0 {
			at := l.placeOf(f.Key)
			f.Line, f.Column = at.line, at.column
		}
	}
	e := &Error{Source: l.path, Faults: l.faults}
	if l.path == "" {
		e.Source = "from the environment, no " + DefaultFile + " here"
	}
	return e
}

// place is a key's or an item's place in the file.
type place struct{ line, column int }

func (l *loader) note(path string, n *yaml.Node) {
	l.places[dotted.Replace(path)] = place{n.Line, n.Column}
}

// dotted makes items and entries be named like keys.
var dotted = strings.NewReplacer("[", ".", "]", "")

// placeOf finds a fault's key in the file, or else the nearest section above it; nowhere for what comes from the
// environment.
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
