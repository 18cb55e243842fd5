package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestConfigsOfDocsLoad(t *testing.T) {
	loaded := 0
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			if b.language == "yaml" {
				loaded++
				assert.NoError(t, loadConfig(t, wholeConfig(b.text), nil), "%s:%d", d.name, b.line)
			}
		}
	}
	require.Greater(t, loaded, 3)
}

// sections is a config that lacks nothing, in parts.
var sections = map[string]string{
	"postgres": "postgres: {dsn: postgres://localhost/shop}\n",
	"kafka":    "kafka: {brokers: [localhost:9092]}\n",
	"group":    "group: billing\n",
	"topics":   "topics: [{name: orders, handlers: [{name: book, function: book}]}]\n",
}

var topLevelKey = regexp.MustCompile(`(?m)^(\w+):`)

// wholeConfig adds what a page leaves out: the sections it does not speak of, or what stands around a topic's
// handlers.
func wholeConfig(text string) string {
	if strings.HasPrefix(strings.TrimSpace(text), "handlers:") {
		return sections["postgres"] + sections["kafka"] + sections["group"] +
			"topics:\n  - name: orders\n" + indentedTo(4, text)
	}
	var keys []string
	for _, m := range topLevelKey.FindAllStringSubmatch(text, -1) {
		keys = append(keys, m[1])
	}
	for name, section := range sections {
		if !slices.Contains(keys, name) {
			text = section + text
		}
	}
	return text
}

// indentedTo moves a text right or left, until its first line has the indent.
func indentedTo(indent int, text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	have := len(lines[0]) - len(strings.TrimLeft(lines[0], " "))
	for i, l := range lines {
		lines[i] = strings.Repeat(" ", indent) + l[min(have, len(l)):]
	}
	return strings.Join(lines, "\n") + "\n"
}

var (
	secretFile  = regexp.MustCompile(`(\w+_file: *)(/[^\s,}]+)`)
	environment = regexp.MustCompile(`\$\{(\w+)\}`)
)

// loadConfig loads a config's text, with the environment that it asks for, and with the files that it names: those of
// secrets, by their base name, or made up. Certificates need not be there.
func loadConfig(t *testing.T, text string, secrets map[string]string) error {
	t.Helper()
	dir := t.TempDir()
	text = secretFile.ReplaceAllStringFunc(text, func(m string) string {
		parts := secretFile.FindStringSubmatch(m)
		path := filepath.Join(dir, filepath.Base(parts[2]))
		secret, given := secrets[filepath.Base(path)]
		if !given {
			secret = secretFor(parts[1], path)
		}
		if secret != "" {
			require.NoError(t, os.WriteFile(path, []byte(secret), 0o600))
		}
		return parts[1] + path
	})
	var environ []string
	for _, m := range environment.FindAllStringSubmatch(text, -1) {
		environ = append(environ, m[1]+"="+valueFor(m[1]))
	}
	path := filepath.Join(dir, "firstseen.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	_, err := config.Load(path, environ)
	var faults *config.Error
	if errors.As(err, &faults) &&
		!slices.ContainsFunc(faults.Faults, func(f config.Fault) bool { return !missesCertificate(f) }) {
		return nil
	}
	return err
}

// secretFor is what a file could hold: nothing for a certificate, which is not made here.
func secretFor(key, path string) string {
	switch key = strings.TrimRight(key, ": "); key {
	case "cert_file", "key_file", "ca_file", "client_ca_file":
		return ""
	case "dsn_file":
		return valueFor("POSTGRES")
	case "secret_file":
		return "whsec_" + strings.Repeat("c2VjcmV0", 4)
	}
	return fmt.Sprintf("secret-of-%x", filepath.Base(path)) + strings.Repeat("0", 16)
}

func valueFor(variable string) string {
	switch variable {
	case "POSTGRES":
		return "postgres://localhost/shop"
	case "KAFKA":
		return "localhost:9092"
	}
	return "value-of-" + strings.ToLower(variable)
}

func missesCertificate(f config.Fault) bool {
	return strings.Contains(f.Text, "no such file") && (strings.HasSuffix(f.Key, "cert_file") ||
		strings.HasSuffix(f.Key, "key_file") || strings.HasSuffix(f.Key, "ca_file"))
}

// given is what a page takes for granted: tables of the reader's, and partitions of days that have been.
var given = map[string]string{
	"README.md": `create schema billing; create table billing.payments (id uuid, account text, amount numeric)`,
	"docs/OPERATIONS.md": `create table firstseen.inbox_20260101 partition of firstseen.inbox
		for values from ('2026-01-01 00:00+00') to ('2026-01-02 00:00+00')`,
	"docs/OUTBOX.md": `create table orders (id text, shipped boolean)`,
	"docs/TABLES.md": `create table orders (id bigint, tenant text, idempotency_key text)`,
}

func TestSQLOfDocsRuns(t *testing.T) {
	ran := 0
	for _, d := range documents(t) {
		blocks := slices.DeleteFunc(slices.Clone(d.blocks), func(b block) bool { return b.language != "sql" })
		if len(blocks) == 0 {
			continue
		}
		db := deduptest.New(t)
		_, err := db.Pool.Exec(t.Context(), given[d.name])
		require.NoError(t, err, d.name)
		for _, b := range blocks {
			ran++
			_, err := db.Pool.Exec(t.Context(), b.text)
			assert.NoError(t, err, "%s:%d", d.name, b.line)
		}
	}
	require.Positive(t, ran)
}
