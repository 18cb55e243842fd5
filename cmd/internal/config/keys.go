package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// key is one key that a config may have.
type key struct {
	path    string // as in postgres.dsn; topics[].name within lists
	section bool   // has keys of its own
	secret  bool
}

// keys are all keys, read from the structs.
var keys = keysOf(reflect.TypeFor[Config](), "")

func keysOf(t reflect.Type, prefix string) (found []key) {
	for f := range t.Fields() {
		path, of := prefix+f.Tag.Get("koanf"), f.Type
		k := key{path: path, secret: of == reflect.TypeFor[Secret]()}
		within := path + "."
		if of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct {
			of, within = of.Elem(), path+"[]."
		}
		k.section = of.Kind() == reflect.Struct
		found = append(found, k)
		if k.section {
			found = append(found, keysOf(of, within)...)
		}
	}
	return found
}

var indexes = regexp.MustCompile(`\[\d+\]`)

func findKey(path string) (key, bool) {
	path = indexes.ReplaceAllString(path, "[]")
	i := slices.IndexFunc(keys, func(k key) bool { return k.path == path })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// printable are paths that can be shown: anything else may be a value that was written where a key belongs.
var printable = regexp.MustCompile(`^[\w.\[\]-]+$`)

// unknownKey says what the writer of an unknown key may have meant.
func unknownKey(path string) Fault {
	section, name := split(indexes.ReplaceAllString(path, "[]"))
	text := "unknown key; "
	if near := nearestKey(section, name); near != "" {
		text += fmt.Sprintf("did you mean %s?", near)
	} else {
		text += "the keys here are " + strings.Join(namesIn(section), ", ")
	}
	if !printable.MatchString(path) {
		path = strings.TrimSuffix(section, ".")
		text = "has an " + text
	}
	return Fault{Key: path, Text: text}
}

func split(path string) (section, name string) {
	i := strings.LastIndexByte(path, '.') + 1
	return path[:i], path[i:]
}

func namesIn(section string) (names []string) {
	for _, k := range keys {
		if s, name := split(k.path); s == section {
			names = append(names, name)
		}
	}
	return names
}

// nearestKey is the key that is most like name: the path of one in another section only where its name is the same.
func nearestKey(section, name string) string {
	best, bestDistance := "", 0
	for _, k := range keys {
		s, known := split(k.path)
		d := distance(bare(name), bare(known))
		close := s == section && alike(bare(name), bare(known), d) || d == 0
		if s != section {
			d++
		}
		if close && (best == "" || d < bestDistance) {
			best, bestDistance = k.path, d
		}
	}
	return best
}

// alike says whether one name may have been meant by another: a part of it, or half its letters.
func alike(name, known string, distance int) bool {
	return 2*distance <= max(len(name), len(known)) || len(known) > 3 && strings.Contains(name, known)
}

// bare drops what people spell in different ways.
func bare(name string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
