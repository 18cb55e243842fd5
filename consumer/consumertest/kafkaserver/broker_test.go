package kafkaserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBrokerThatRunsAndNeverAnswersIsStartedAgain(t *testing.T) {
	limit := launchLimit
	launchLimit = 20 * time.Second
	t.Cleanup(func() { launchLimit = limit })
	silent := silentAtFirst(t)

	c, err := Start(t.Context(), Config{})
	require.NoError(t, err)
	c.Close()

	require.FileExists(t, silent)
}

// silentAtFirst puts a java first in the path whose first broker does nothing; it leaves the file.
func silentAtFirst(t *testing.T) (file string) {
	t.Helper()
	java, err := exec.LookPath("java")
	require.NoError(t, err)
	dir := t.TempDir()
	file = filepath.Join(dir, "silent")
	script := fmt.Sprintf(`#!/bin/sh
case "$*" in *kafka.Kafka*) [ -e '%[1]s' ] || { touch '%[1]s'; exec sleep 600; };; esac
exec '%[2]s' "$@"
`, file, java)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "java"), []byte(script), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return file
}
