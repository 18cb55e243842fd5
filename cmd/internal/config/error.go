package config

import (
	"fmt"
	"strings"
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
	// Line and Column, from 1, are where the file has the key or, where it lacks it, the section that it belongs in. Zero
	// where the file has neither.
	Line, Column int
	// Text says what is wrong and what to do.
	Text string
}

func (f Fault) String() string {
	switch {
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

// list is the faults in one line.
func (e *Error) list() string {
	texts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}
