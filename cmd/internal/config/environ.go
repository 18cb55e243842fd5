package config

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

const prefix = "FIRSTSEEN_"

// FileVariable names the config file where no flag does.
const FileVariable = prefix + "CONFIG"

// variable is the environment variable of a key, or empty: what lies in a list has none.
func (k key) variable() string {
	if k.section && !k.list || strings.Contains(k.path, "[]") {
		return ""
	}
	return prefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// foreign are variables of others that begin like ours: what Kubernetes sets for a service that is called
// firstseen or firstseen-something, and what our tests are told.
var foreign = regexp.MustCompile(`^FIRSTSEEN_((\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)|TEST_\w+|REQUIRE_\w+|CONFIG)$`)

// loadEnviron merges the environment over what is there.
func (l *loader) loadEnviron() {
	for _, pair := range l.environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, prefix) || value == "" || foreign.MatchString(name) {
			continue
		}
		if path, v := l.fromVariable(name, value); path != "" {
			merge(l.raw, path, v)
		}
	}
}

// merge sets a value in the sections of its path. Entries by name are added to those that are there.
func merge(into map[string]any, path string, v any) {
	name, rest, below := strings.Cut(path, ".")
	there, isMap := into[name].(map[string]any)
	if below {
		if !isMap {
			there = map[string]any{}
			into[name] = there
		}
		merge(there, rest, v)
		return
	}
	if entries, named := v.(map[string]any); named && isMap {
		maps.Copy(there, entries)
		return
	}
	into[name] = v
}

func (l *loader) fromVariable(name, value string) (path string, v any) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.variable() == name })
	if i < 0 {
		l.faults = append(l.faults, unknownVariable(name))
		return "", nil
	}
	path = keys[i].path
	l.variables[path] = name
	if !keys[i].inYAML() {
		return path, value
	}
	parsed, err := l.document(path, []byte(value))
	if err != nil {
		l.fault(path, "is not YAML; write it like %s", yamlLikes[path])
		return "", nil
	}
	return path, parsed
}

// inYAML says whether a key's variable holds YAML: texts alone don't do.
func (k key) inYAML() bool { return k.list || k.of.Kind() == reflect.Map }

var yamlLikes = map[string]string{ //nolint:gosec // examples, no secrets
	"topics":             "[{name: orders, handlers: [{name: book, function: book_order}]}]",
	"retention.handlers": "{book: 90d}",

	"postgres.shards":          "{a: 0-7, b: 8-}",
	"postgres.shard_dsns":      "{a: 'postgres://firstseen@a/app', b: 'postgres://firstseen@b/app'}",
	"postgres.shard_dsn_files": "{a: /run/secrets/a, b: /run/secrets/b}",
}
