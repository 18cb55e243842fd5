package config

import (
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// Effective is a config as it takes effect, and where each value came from. What it prints shows no secret.
type Effective struct {
	config Config
	loader *loader
}

// LoadEffective is Load, to be printed.
func LoadEffective(path string, environ []string) (Effective, error) {
	l, c := load(path, environ)
	l.finish(&c)
	if len(c.Postgres.Shards) > 0 {
		c.Postgres.DSN = "" // it is one of shard_dsns, or from a file
	}
	return Effective{c, l}, l.err()
}

// YAML is the config as a file, with each value's origin beside it: the file, an environment variable, the file of a
// secret, or the default.
func (e Effective) YAML() string {
	var b strings.Builder
	writeComment(&b, "file: "+e.source(), "")
	writeYAML(&b, e.nodes(), "", "")
	return b.String()
}

// JSON is an object of the file's name, the config, and the origins by key.
func (e Effective) JSON() []byte {
	var file any
	if e.loader.path != "" {
		file = e.loader.path
	}
	origins := map[string]string{}
	each(reflect.ValueOf(e.config), "", func(path string, _ reflect.Value) { origins[path] = e.origin(path) })
	return indented(map[string]any{"file": file, "config": jsonValue(e.nodes()), "origins": origins})
}

func (e Effective) source() string {
	if e.loader.path == "" {
		return "none, there is no " + DefaultFile + " here"
	}
	return e.loader.path
}

func (e Effective) nodes() []node {
	return tree(reflect.ValueOf(e.config), "", func(path string, k key, v reflect.Value) node {
		if k.section {
			return node{}
		}
		return node{value: e.shown(path, k, v), beside: e.origin(path)}
	})
}

// shown is a key's value. What a reference brought into a text may be secret, wherever that is: the text is as it was
// written.
func (e Effective) shown(path string, k key, v reflect.Value) any {
	value := printed(v)
	_, few := choices[k.path]
	text, isText := value.(string)
	written, refers := e.loader.written[path]
	switch {
	case value == nil || k.secret:
		return value
	case strings.HasSuffix(k.path, "[].webhook.url"):
		return shownURL(text)
	case refers && !few && (v.Kind() == reflect.String || v.Kind() == reflect.Slice):
		return written
	case v.Kind() == reflect.Slice && !isText:
		return e.shownList(path, slices.Clone(value.([]string)))
	case v.Type() == reflect.TypeFor[Names]():
		return e.shownNames(path, maps.Clone(value.(map[string]string)))
	}
	return value
}

func (e Effective) shownNames(path string, names map[string]string) map[string]string {
	for name := range names {
		if written, refers := e.loader.written[path+"."+name]; refers {
			names[name] = written
		}
	}
	return names
}

func (e Effective) shownList(path string, list []string) []string {
	for i := range list {
		if written, refers := e.loader.written[path+index(i)]; refers {
			list[i] = written
		}
	}
	return list
}

// shownURL leaves out what follows the host: with some, that is all that keeps others from calling.
func shownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return hidden
	}
	if strings.Trim(u.RequestURI(), "/") == "" {
		return u.Scheme + "://" + u.Host
	}
	return u.Scheme + "://" + u.Host + "/" + hidden
}

// origin says where a key's value came from.
func (e Effective) origin(path string) string {
	if file := e.secretFile(path); file != "" {
		_, name := split(path)
		return name + "_file " + file
	}
	root, _, _ := strings.Cut(path, "[")
	if v, ok := e.loader.variables[root]; ok {
		return v
	}
	if !e.loader.given(path) {
		return "default"
	}
	return strings.Join(append([]string{"file"}, e.references(path)...), ", ")
}

// secretFile names the file that a secret was read from.
func (e Effective) secretFile(path string) (name string) {
	each(reflect.ValueOf(e.config), "", func(p string, v reflect.Value) {
		if p == path+"_file" {
			name = v.String()
		}
	})
	return name
}

// references are the ${NAME} in a key's value, in its items and its entries.
func (e Effective) references(path string) (found []string) {
	for p, written := range e.loader.written {
		if p == path || strings.HasPrefix(p, path+"[") || strings.HasPrefix(p, path+".") {
			found = append(found, reference.FindAllString(written, -1)...)
		}
	}
	slices.Sort(found)
	return slices.DeleteFunc(slices.Compact(found), func(ref string) bool { return ref == "$${" })
}
