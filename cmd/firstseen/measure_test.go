package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunRefusesAFaultInOpenTelemetrysEnvironmentAndShowsNoValue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "firstseen.yaml")
	require.NoError(t, os.WriteFile(file, []byte("postgres: {dsn: 'postgres://127.0.0.1:1/app'}\nkafka: {brokers: ['127.0.0.1:1']}\ngroup: g\n"+
		"topics: [{name: orders, handlers: [{name: book, function: book}]}]\n"), 0o600))
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://ann:hush%zz@collector:4318")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Authorization hush")
	_, stderr, code := command(t, "run", "--config", file)
	require.Equal(t, exitUsage, code, stderr)
	require.Contains(t, stderr, "OTEL_EXPORTER_OTLP_ENDPOINT: is no URL of a collector")
	require.Contains(t, stderr, "OTEL_EXPORTER_OTLP_TRACES_HEADERS: header 1 is not NAME=VALUE")
	require.NotContains(t, stderr, "hush")
}
