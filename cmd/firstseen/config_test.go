package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigPrintShowsWhatTakesEffectAndNoSecret(t *testing.T) {
	t.Setenv("POSTGRES_PASSWORD", "hunter2")
	t.Setenv("FIRSTSEEN_BATCH_MESSAGES", "7")
	path := filepath.Join("..", "..", "testdata", "firstseen.yaml")
	stdout, stderr, code := command(t, "config", "print", "--config", path)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, "# file: "+path)
	require.Contains(t, stdout, `dsn: "***" # file, ${POSTGRES_PASSWORD}`)
	require.Contains(t, stdout, "messages: 7 # FIRSTSEEN_BATCH_MESSAGES")
	require.NotContains(t, stdout, "hunter2")

	stdout, stderr, code = command(t, "config", "print", "--json", "--config", path)
	require.Equal(t, exitOK, code, stderr)
	require.NotContains(t, stdout, "hunter2")
	var printed struct{ Origins map[string]string }
	require.NoError(t, json.Unmarshal([]byte(stdout), &printed))
	require.Equal(t, "FIRSTSEEN_BATCH_MESSAGES", printed.Origins["batch.messages"])
	require.Equal(t, "file", printed.Origins["topics[1].id"])
}

func TestConfigPrintListsAllFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.yaml")
	require.NoError(t, os.WriteFile(path, []byte("grup: x\nhttp: {rate: 0}\n"), 0o600))
	stdout, stderr, code := command(t, "config", "print", "--config", path)
	require.Equal(t, exitUsage, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "grup (line 1, column 1): unknown key; did you mean group?")
	require.Contains(t, stderr, "http.rate (line 2, column 8): must be above 0")
}

func TestConfigExampleIsTakenByRunCheck(t *testing.T) {
	example, stderr, code := command(t, "config", "example")
	require.Equal(t, exitOK, code, stderr)
	path := filepath.Join(t.TempDir(), "example.yaml")
	require.NoError(t, os.WriteFile(path, []byte(example), 0o600))
	stdout, stderr, code := command(t, "run", "--check", "--config", path)
	require.Equal(t, exitOK, code, stderr)
	require.True(t, strings.HasPrefix(stdout, "config ok: group billing reads 1 topic (orders)"), stdout)
}

func TestConfigSchemaIsJSON(t *testing.T) {
	stdout, stderr, code := command(t, "config", "schema")
	require.Equal(t, exitOK, code, stderr)
	var schema map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &schema))
	require.Contains(t, schema["properties"], "retention")
}
