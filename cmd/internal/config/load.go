package config

import (
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// DefaultFile is read where no file is named, if it is there.
const DefaultFile = "firstseen.yaml"

// loader is one reading of a config; it gathers the faults.
type loader struct {
	path      string
	environ   []string
	raw       map[string]any    // the values in their sections
	variables map[string]string // key -> the environment variable that it came from
	unshown   map[string]bool   // keys whose value is not to be shown
	written   map[string]string // and what the file has there
	unset     []string          // keys whose environment variable is not set
	faults    []Fault
	places    map[string]place
	files     map[string]sum // what was read, the config and secrets
	// unreadable is a file without any key to check.
	unreadable bool
	// elsewhere says that the handlers are a program's own.
	elsewhere bool
}

// Load reads a config from the file at path and from the environment, written NAME=value as os.Environ gives it, and
// checks it without connecting anywhere. An empty path is the file that FIRSTSEEN_CONFIG names, or firstseen.yaml
// in the working directory, or none where that is missing. The error is an *Error with every fault.
func Load(path string, environ []string) (Config, error) {
	l, c := load(path, environ)
	l.finish(&c)
	return c, l.err()
}

// finish reads the files of secrets and checks the whole.
func (l *loader) finish(c *Config) {
	if l.unreadable {
		return
	}
	l.readSecrets(c)
	c.fillIn()
	l.validate(c)
}

// LoadPostgres is Load for a command that needs the database only: the other sections may be unfinished, and their
// secrets not at hand, but nothing may be misspelt. What is set in override wins over file and environment; withDSN
// says that a connection string is required.
func LoadPostgres(path string, environ []string, override Postgres, withDSN bool) (Postgres, error) {
	l, c := load(path, environ)
	if override.Schema != "" {
		c.Postgres.Schema = override.Schema
	}
	c.Postgres.override(override.DSN)
	if withDSN && !l.unreadable {
		l.readDSN(&c.Postgres)
		l.checkDSN(c.Postgres)
	}
	l.checkSchema(c.Postgres)
	l.faults = slices.DeleteFunc(l.faults, func(f Fault) bool { return l.lacksSecret(f.Key) })
	return c.Postgres, l.err()
}

// lacksSecret says of a key outside of Postgres' that it is a secret whose environment variable is not set.
func (l *loader) lacksSecret(path string) bool {
	if !slices.Contains(l.unset, path) || strings.HasPrefix(path, "postgres.") {
		return false
	}
	section, _ := split(path) // of a secret by name
	k, _ := findKey(path)
	all, _ := findKey(strings.TrimSuffix(section, "."))
	return k.secret || all.secret
}

func load(path string, environ []string) (*loader, Config) {
	l := &loader{
		path: path, environ: environ, raw: map[string]any{},
		variables: map[string]string{}, unshown: map[string]bool{}, written: map[string]string{},
		places: map[string]place{},
		files:  map[string]sum{},
	}
	l.loadFile()
	l.loadEnviron()
	c := defaults()
	l.decode(&c)
	return l, c
}

func (l *loader) loadFile() {
	if l.path == "" {
		l.path, _ = l.lookup(FileVariable)
	}
	optional := l.path == ""
	if optional {
		l.path = DefaultFile
	}
	text, err := l.read(l.path)
	var parsed any
	if err == nil {
		parsed, err = l.document("", text)
	}
	if _, keyed := parsed.(map[string]any); err == nil && parsed != nil && !keyed {
		err = errors.New("no keys")
	}
	switch {
	case optional && errors.Is(err, fs.ErrNotExist):
		l.path = ""
		return
	case text == nil:
		l.unreadable = true
		l.fault("", "%v", err)
		return
	case err != nil:
		l.unreadable = true
		l.fault("", "%s", yamlFault(err))
		return
	}
	if values, keyed := l.substitute("", parsed).(map[string]any); keyed {
		l.raw = values
	}
}

var yamlLine = regexp.MustCompile(`line \d+: [a-z ]+$|line \d+: mapping key .* already defined at line \d+`)

// yamlFault is the parser's message where it quotes none of the file's values.
func yamlFault(err error) string {
	text := err.Error()
	switch {
	case errors.Is(err, errDocuments):
		return text
	case strings.Contains(text, "unknown anchor"):
		return "not valid YAML: a value that begins with * must be in quotes"
	case strings.Contains(text, "unknown escape character"):
		return "not valid YAML: in double quotes \\ begins an escape; write a regular expression in single quotes"
	case yamlLine.MatchString(text):
		return "not valid YAML: " + strings.Join(yamlLine.FindAllString(text, -1), "; ")
	}
	return "not valid YAML: the file must hold keys and their values, one `key: value` a line"
}
