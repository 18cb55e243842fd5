package config

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type key struct {
	path    string // as in postgres.dsn; topics[].name within lists
	section bool   // has keys of its own
	list    bool   // is a list of sections
	secret  bool
	of      reflect.Type // of its value, or of the items where those are sections
	owner   reflect.Type // the struct that it is in
	field   string       // and its name there
}

var durationType = reflect.TypeFor[time.Duration]()

// keys are all keys, read from the structs.
var keys = keysOf(reflect.TypeFor[Config](), "")

func keysOf(t reflect.Type, prefix string) (found []key) {
	for f := range t.Fields() {
		k := key{path: prefix + f.Tag.Get("key"), of: f.Type, owner: t, field: f.Name, secret: isSecret(f.Type)}
		within := k.path + "."
		if isSections(f.Type) {
			k.list, k.of, within = true, f.Type.Elem(), k.path+"[]."
		}
		k.section = k.of.Kind() == reflect.Struct
		found = append(found, k)
		if k.section {
			found = append(found, keysOf(k.of, within)...)
		}
	}
	return found
}

// isSecret says whether a type holds what must not be shown.
func isSecret(t reflect.Type) bool {
	if kind := t.Kind(); kind == reflect.Slice || kind == reflect.Map {
		t = t.Elem()
	}
	return t == reflect.TypeFor[Secret]()
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// pattern is the key of a path, for all items of a list.
func pattern(path string) string { return indexes.ReplaceAllString(path, "[]") }

func findKey(path string) (key, bool) {
	path = pattern(path)
	i := slices.IndexFunc(keys, func(k key) bool { return k.path == path })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// printable are paths that can be shown: anything else may be a value that was written where a key belongs.
var printable = regexp.MustCompile(`^[\w.\[\]-]+$`)

func split(path string) (section, name string) {
	i := strings.LastIndexByte(path, '.') + 1
	return path[:i], path[i:]
}

// each calls do for every key that has a value of its own, in the order of the structs.
func each(v reflect.Value, path string, do func(path string, v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Struct:
		for f, field := range v.Fields() {
			each(field, strings.TrimPrefix(path+"."+f.Tag.Get("key"), "."), do)
		}
	case isSections(v.Type()):
		for i := range v.Len() {
			each(v.Index(i), path+index(i), do)
		}
	default:
		do(path, v)
	}
}

func isSections(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// differences are the keys whose values differ; a list of sections that has grown or shrunk is one.
func differences(a, b reflect.Value, path string) (found []string) {
	switch {
	case a.Kind() == reflect.Struct:
		for f, field := range a.Fields() {
			found = append(found,
				differences(field, b.FieldByIndex(f.Index), strings.TrimPrefix(path+"."+f.Tag.Get("key"), "."))...)
		}
	case isSections(a.Type()) && a.Len() == b.Len():
		for i := range a.Len() {
			found = append(found, differences(a.Index(i), b.Index(i), path+index(i))...)
		}
	case !reflect.DeepEqual(a.Interface(), b.Interface()):
		found = append(found, path)
	}
	return found
}

// valueAt finds a path in the parsed file, nil where nothing is.
func valueAt(v any, path string) any {
	name, rest, _ := strings.Cut(path, ".")
	name, indexText, inList := strings.Cut(name, "[")
	section, _ := v.(map[string]any)
	v = section[name]
	if inList {
		list, _ := v.([]any)
		i, _ := strconv.Atoi(strings.TrimSuffix(indexText, "]"))
		if v = nil; i < len(list) {
			v = list[i]
		}
	}
	if rest == "" || v == nil {
		return v
	}
	return valueAt(v, rest)
}

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }
