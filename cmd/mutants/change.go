package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// change is one way to break a file.
type change struct {
	name   string // says where and what, and outlives changes of other lines
	file   string
	broken []byte // the whole file
	at     place
	in     span // the function that it is in; none: no function, or one of SQL
	edit
	of     *function // see together
	number int
}

// place is a line and a column, both from 1.
type place struct{ line, column int }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.column, q.column))
}

func (p place) MarshalText() ([]byte, error) { //nolint:unparam // json asks for it
	return fmt.Appendf(nil, "%d.%d", p.line, p.column), nil
}

func (p *place) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%d.%d", &p.line, &p.column)
	return err
}

type span struct{ From, To place }

func (s span) has(p place) bool { return s.From.compare(p) <= 0 && p.compare(s.To) <= 0 }

func placeOf(text []byte, offset int) place {
	return place{1 + bytes.Count(text[:offset], []byte{'\n'}), offset - bytes.LastIndexByte(text[:offset], '\n')}
}

// edit replaces a part of a file.
type edit struct {
	from, to int
	text     string
}

// changesOf finds all ways to break a target.
func changesOf(path string) (changes []change, err error) {
	if filepath.Ext(path) == ".go" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return goChanges(path, text)
	}
	return sqlFunctions(path)
}

// apply makes changes of edits. Their names are the broken line before and after; equal ones are numbered.
func apply(file, where string, text []byte, edits []edit) (changes []change) {
	times := map[string]int{}
	for _, e := range edits {
		broken := bytes.Join([][]byte{text[:e.from], []byte(e.text), text[e.to:]}, nil)
		begin := bytes.LastIndexByte(text[:e.from], '\n') + 1
		name := fmt.Sprintf("%s %s: %s =>", file, where, lines(text, begin, e.to))
		if after := lines(broken, begin, e.from+len(e.text)); after != "" {
			name += " " + after
		}
		if times[name]++; times[name] > 1 {
			name += fmt.Sprintf(" #%d", times[name])
		}
		changes = append(changes, change{name: name, file: file, broken: broken, at: placeOf(text, e.from), edit: e})
	}
	return changes
}

// lines gives what lies between two places, up to the end of its last line, as one line.
func lines(text []byte, from, to int) string {
	if end := bytes.IndexByte(text[to:], '\n'); end > 0 && (to == 0 || text[to-1] != '\n') {
		to += end
	}
	return strings.Join(strings.Fields(string(text[from:max(from, to)])), " ")
}
