package config

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const framedTopic = `
postgres: {dsn: "postgres://app@db/shop"}
kafka: {brokers: [kafka:9092]}
group: billing
topics:
  - {name: orders, format: confluent, handlers: [{name: book, function: app.book}]}
  - {name: plain, format: raw, handlers: [{name: book, function: app.book}]}
  - {name: other, handlers: [{name: book, function: app.book}]}
  - {pattern: 'many\..*', handlers: [{name: book, function: app.book}]}
`

func TestTopicsHaveTheirFormatsByTheRegistry(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	c, err := loadText(t, framedTopic+"registry: {url: 'http://registry:8081', username: app, password_file: "+password+"}\n")
	require.NoError(t, err)
	require.Equal(t, Secret("secret"), c.Registry.Password)
	settings, err := c.Consumer(slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.NoError(t, err)
	formats := settings.Formats()
	require.NotNil(t, formats.Of("orders"))
	require.Nil(t, formats.Of("plain"))
	require.NotNil(t, formats.Of("other"), "auto is the default")
	require.NotNil(t, formats.Of("many.of"), "by the pattern")
	require.Nil(t, formats.Of("nobody's"))
}

func TestFaultsOfTheRegistry(t *testing.T) {
	for rest, want := range map[string]string{
		"":                                   "registry.url: is required; topics[0].format is confluent",
		"registry: {token: abc}\n":           "registry.url: is required; ",
		"registry: {url: 'registry:8081'}\n": "the URL is none of http or https",
		"registry: {url: 'http://app:secret@registry'}\n":               "the URL has credentials in it",
		"registry: {url: 'http://registry', tls: {ca_file: a}}\n":       "registry.tls: has no effect",
		"registry: {url: 'https://registry', tls: {cert_file: a}}\n":    "registry.tls.key_file: is required beside cert_file",
		"registry: {url: 'http://registry', username: a, token: abc}\n": "a token and a username are two ways to log in",
	} {
		_, err := loadText(t, framedTopic+rest)
		require.Contains(t, strings.Join(faults(t, err), "\n"), want, rest)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := loadText(t, minimal+"registry: {url: 'http://registry'}\n")
	require.NoError(t, err)
}
