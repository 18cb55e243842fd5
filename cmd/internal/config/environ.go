package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
)

const prefix = "FIRSTSEEN_"

// FileVariable names the config file where no flag does.
const FileVariable = prefix + "CONFIG"

// variable is the environment variable of a key, or empty: what lies in a list has none.
func (k key) variable() string {
	if k.section && k.path != "topics" || strings.Contains(k.path, "[]") {
		return ""
	}
	return prefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// foreign are variables of others that begin like ours: what Kubernetes sets for a service that is called
// firstseen or firstseen-something, and what our tests are told.
var foreign = regexp.MustCompile(`^FIRSTSEEN_((\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)|TEST_\w+|REQUIRE_\w+|CONFIG)$`)

// loadEnviron merges the environment over what is there.
func (l *loader) loadEnviron() {
	provider := env.Provider(".", env.Opt{
		Prefix:      prefix,
		EnvironFunc: func() []string { return l.environ },
		TransformFunc: func(name, value string) (string, any) {
			if value == "" || foreign.MatchString(name) {
				return "", nil
			}
			return l.fromVariable(name, value)
		},
	})
	merged := koanf.New(".")
	if err := merged.Load(provider, nil); err != nil {
		l.fault("", "environment: %v", err)
	}
	if err := l.values.Merge(merged); err != nil {
		l.fault("", "environment: %v", err)
	}
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
func (k key) inYAML() bool { return k.path == "topics" || k.of.Kind() == reflect.Map }

var yamlLikes = map[string]string{
	"topics":             "[{name: orders, handlers: [{name: book, function: book_order}]}]",
	"retention.handlers": "{book: 90d}",
}
