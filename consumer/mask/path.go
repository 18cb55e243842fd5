package mask

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// place is where in the values of a topic, or of all.
type place struct {
	topic string   // empty: any
	path  []string // none: the whole value
}

func (p place) of(topic string) bool { return p.topic == "" || p.topic == topic }

// parse reads [TOPIC:]/a/*/b.
func parse(text string) (p place, err error) {
	pointer := text
	if i := strings.IndexAny(text, ":/"); i > 0 && text[i] == ':' {
		p.topic, pointer = text[:i], text[i+1:]
	}
	if pointer == "" || pointer == "/" {
		return p, nil
	}
	if pointer[0] != '/' {
		return p, fmt.Errorf("%q is no place in a value; write a JSON pointer, /customer/iban, or TOPIC:/customer/iban", text)
	}
	for _, name := range strings.Split(pointer[1:], "/") {
		plain := strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if strings.Contains(strings.NewReplacer("~1", "", "~0", "").Replace(name), "~") {
			return p, fmt.Errorf("%q is no JSON pointer: ~ is written ~0 there, and / within a name ~1", text)
		}
		p.path = append(p.path, plain)
	}
	return p, nil
}

// span is a part of a value, and where it is found.
type span struct {
	from, to int
	path     string
}

// parts are what was found, by its path, without white space. At a path there are several where a name is there twice.
func parts(value []byte, found []span) map[string][]string {
	at := map[string][]string{}
	for _, s := range found {
		var out bytes.Buffer
		_ = json.Compact(&out, value[s.from:s.to]) // it is valid
		at[s.path] = append(at[s.path], out.String())
	}
	return at
}

// find looks in a value for all that lies at one of the paths; ok says that the value is JSON. A part that is found is not
// looked into.
func find(value []byte, paths [][]string) (found []span, ok bool) {
	if !json.Valid(value) {
		return nil, false
	}
	w := walk{text: value}
	w.value(w.space(0), paths, "")
	return w.found, true
}

// walk goes through JSON that is valid, byte for byte: what is not hidden stays as it came.
type walk struct {
	text  []byte
	found []span
}

func (w *walk) space(i int) int {
	for i < len(w.text) && strings.IndexByte(" \t\r\n", w.text[i]) >= 0 {
		i++
	}
	return i
}

// value looks into the value at i for what the paths lead to from there, and gives its end.
func (w *walk) value(i int, paths [][]string, path string) (end int) {
	switch {
	case len(paths) == 0:
		return w.skip(i)
	case leadsHere(paths), w.text[i] == '"', w.text[i] == '-', '0' <= w.text[i] && w.text[i] <= '9':
		end = w.skip(i)
		w.found = append(w.found, span{i, end, path})
		return end
	case w.text[i] == '{':
		return w.object(i, paths, path)
	case w.text[i] == '[':
		return w.list(i, paths, path)
	}
	return w.skip(i)
}

func leadsHere(paths [][]string) bool {
	for _, p := range paths {
		if len(p) == 0 {
			return true
		}
	}
	return false
}

func (w *walk) object(i int, paths [][]string, path string) (end int) {
	for i = w.space(i + 1); w.text[i] != '}'; i = w.next(i) {
		colon := w.skip(i)
		var name string
		_ = json.Unmarshal(w.text[i:colon], &name) // it is valid
		var further [][]string
		for _, p := range paths {
			if p[0] == "*" || strings.EqualFold(p[0], name) {
				further = append(further, p[1:])
			}
		}
		i = w.value(w.space(w.space(colon)+1), further, path+"/"+strconv.Quote(name))
	}
	return i + 1
}

// list is passed by a number, or for all of its elements where a path has a name instead: that is one of theirs, then.
func (w *walk) list(i int, paths [][]string, path string) (end int) {
	n := 0
	for i = w.space(i + 1); w.text[i] != ']'; i = w.next(i) {
		var further [][]string
		for _, p := range paths {
			_, err := strconv.ParseUint(p[0], 10, 64)
			switch {
			case p[0] == "*" || p[0] == strconv.Itoa(n):
				further = append(further, p[1:])
			case err != nil:
				further = append(further, p)
			}
		}
		i = w.value(i, further, path+"/"+strconv.Itoa(n))
		n++
	}
	return i + 1
}

// next is where the next element begins, or where the end is.
func (w *walk) next(i int) int {
	if i = w.space(i); w.text[i] == ',' {
		return w.space(i + 1)
	}
	return i
}

// skip gives the end of the value at i.
func (w *walk) skip(i int) int {
	for depth := 0; ; {
		switch w.text[i] {
		case '"':
			i = w.quoted(i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
		default:
			for i < len(w.text) && strings.IndexByte(",:]} \t\r\n", w.text[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// quoted gives the end of the text at i.
func (w *walk) quoted(i int) int {
	for i++; w.text[i] != '"'; i++ {
		if w.text[i] == '\\' {
			i++
		}
	}
	return i + 1
}
