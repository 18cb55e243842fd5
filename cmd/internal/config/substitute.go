package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// reference is ${NAME}, or $${, which is ${ itself.
var reference = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// substitute replaces the references in all values from the file, and remembers the keys that have one: what
// comes from the environment may be secret wherever it stands.
func (l *loader) substitute(path string, v any) any {
	switch v := v.(type) {
	case string:
		return l.substituteText(path, v)
	case []any:
		for i := range v {
			v[i] = l.substitute(fmt.Sprintf("%s[%d]", path, i), v[i])
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			within := strings.TrimPrefix(path+"."+name, ".")
			v[name] = l.substitute(within, v[name])
			if k, known := findKey(within); known && !k.section && v[name] == nil {
				delete(v, name) // written without a value: the default
			}
		}
	}
	return v
}

func (l *loader) substituteText(path, text string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		if ref == "$${" {
			return "${"
		}
		l.unshown[path] = true
		l.written[path] = text
		name, closed := strings.CutSuffix(ref[len("${"):], "}")
		if !closed || !variableName.MatchString(name) {
			l.fault(path, "has a ${ that is no ${NAME}; write $${ where a plain ${ is meant")
			return ""
		}
		value, set := l.lookup(name)
		if !set {
			l.fault(path, "${%s} is not set in the environment; set it, or write $${%s} for the text itself", name, name)
		}
		return value
	})
}

func (l *loader) lookup(name string) (string, bool) {
	for _, pair := range slices.Backward(l.environ) {
		if n, value, _ := strings.Cut(pair, "="); n == name {
			return value, true
		}
	}
	return "", false
}
