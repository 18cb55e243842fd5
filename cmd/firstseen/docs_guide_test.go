package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The guide is followed as its reader would: its files are written, its shell blocks are run from the first to the
// last in one shell, and what it says that comes out has to come out.
func TestGuideCanBeFollowed(t *testing.T) {
	t.Parallel()
	guide := findDocument(t, "docs/GUIDE.md")
	dir := t.TempDir()
	for _, b := range guide.blocks {
		if b.file != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, b.file), []byte(b.text), 0o600))
		}
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n")
	for i, b := range guide.blocks {
		if b.language != "sh" {
			continue
		}
		script.WriteString("{\n" + b.text + "} > out\n")
		if i+1 < len(guide.blocks) && guide.blocks[i+1].language == "text" {
			script.WriteString(expect(guide.blocks[i+1].text))
		}
	}
	runGuide(t, dir, script.String())
}

// expect fails the script unless the lines are among what the block before has printed.
func expect(lines string) string {
	var script strings.Builder
	for line := range strings.Lines(lines) {
		quoted := "'" + strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "'", `'\''`) + "'"
		script.WriteString("grep -qxF -- " + quoted + " out || { echo missing: " + quoted +
			"; cat out; exit 1; } >&2\n")
	}
	return script.String()
}

func runGuide(t *testing.T, dir, script string) {
	t.Helper()
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "guide"), "../guide").CombinedOutput()
	require.NoError(t, err, "%s", out)
	servers := startServers(t)
	shell := exec.CommandContext(t.Context(), "bash", "-c", servers+script)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "PATH="+dir+":"+filepath.Dir(built(t))+":"+os.Getenv("PATH"))
	out, err = shell.CombinedOutput()
	if err != nil {
		for _, name := range []string{"out", "consume.log", "run.log"} {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			t.Logf("%s:\n%s", name, text)
		}
	}
	require.NoError(t, err, "%s", out)
}

// startServers starts the guide's servers for the test, and gives the lines that they print for a shell.
func startServers(t *testing.T) string {
	t.Helper()
	servers := exec.Command(built(t), "dev", "servers")
	stdout, err := servers.StdoutPipe()
	require.NoError(t, err)
	servers.Stderr = os.Stderr
	require.NoError(t, servers.Start())
	t.Cleanup(func() {
		_ = servers.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, stdout)
		require.NoError(t, servers.Wait(), "ended by SIGTERM, cleanly")
	})
	lines := bufio.NewScanner(stdout)
	var text strings.Builder
	for range 2 {
		require.True(t, lines.Scan(), "servers did not start")
		text.WriteString(lines.Text() + "\n")
	}
	return text.String()
}
