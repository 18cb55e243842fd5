package config

import (
	"reflect"
	"strconv"
	"strings"
)

// each calls do for every key that has a value of its own, in the order of the structs.
func each(v reflect.Value, path string, do func(path string, v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Struct:
		for f, field := range v.Fields() {
			each(field, strings.TrimPrefix(path+"."+f.Tag.Get("koanf"), "."), do)
		}
	case isSections(v.Type()):
		for i := range v.Len() {
			each(v.Index(i), path+index(i), do)
		}
	default:
		do(path, v)
	}
}

// isSections says whether a type is a list of sections.
func isSections(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// differences are the keys whose values differ; a list of sections that has grown or shrunk is one.
func differences(a, b reflect.Value, path string) (found []string) {
	switch {
	case a.Kind() == reflect.Struct:
		for f, field := range a.Fields() {
			found = append(found, differences(field, b.FieldByIndex(f.Index), strings.TrimPrefix(path+"."+f.Tag.Get("koanf"), "."))...)
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

// valueAt is what the parsed file has at a path, nil where nothing.
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
