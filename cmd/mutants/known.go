package main

import (
	"fmt"
	"os"
	"strings"
)

// reasons are why survivors need no test, by name.
type reasons map[string]string

// readKnown reads the list: a survivor's name on a line, its reason on the indented lines behind.
func readKnown(file string) (reasons, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	known, name := reasons{}, ""
	for line := range strings.Lines(string(text)) {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "", strings.HasPrefix(line, "#"):
		case line[0] != ' ' && line[0] != '\t':
			name = trimmed
			known[name] = ""
		default:
			known[name] = strings.TrimSpace(known[name] + " " + trimmed)
		}
	}
	for name, reason := range known {
		if reason == "" {
			return nil, fmt.Errorf("%s: no reason for %s", file, name)
		}
	}
	return known, nil
}

// unknown are the survivors that have no reason.
func (r reasons) unknown(survivors []string) (names []string) {
	for _, name := range survivors {
		if r[name] == "" {
			names = append(names, name)
		}
	}
	return names
}

// needless are the reasons of changes that a test noticed after all.
func (r reasons) needless(noticed []string) (names []string) {
	for _, name := range noticed {
		if r[name] != "" {
			names = append(names, name)
		}
	}
	return names
}
