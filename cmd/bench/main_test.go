package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

// command runs a command line in this process.
func command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), code
}

func TestBenchRefusesWrongUsageBeforeItStartsAnything(t *testing.T) {
	t.Chdir(t.TempDir())
	stdout, stderr, code := command(t, "accept", "nothing", "more", "--json", "figures.json")
	require.Equal(t, exitUsage, code)
	require.Empty(t, stdout)
	require.Regexp(t,
		`^bench: no suite is called "nothing" or "more"; there are end-to-end, .*; see bench --help\n$`, stderr)
	require.NoFileExists(t, "figures.json", "an earlier run's figures stay")
	for _, args := range []string{"--quik", "contender now"} {
		_, _, code := command(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, code, args)
	}
	_, _, code = command(t, "accept", "--chart", "no/such/directory.svg")
	require.Equal(t, exitFailure, code)
}

func TestBenchHelpNamesTheSuites(t *testing.T) {
	stdout, _, code := command(t, "--help")
	require.Equal(t, exitOK, code)
	require.Regexp(t, `\n  end-to-end +\S`, stdout)
	require.NotContains(t, stdout, "One contender of a bench")
}

// benchFigure is a line of --json, as somebody else would read it.
type benchFigure struct {
	Suite, Case, Unit, Against, Note string
	Value, Low, High, Ratio          float64
	Goal                             *float64
	Met                              *bool
}

func benchFigures(t *testing.T, path string) (figures []benchFigure) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	decoder := json.NewDecoder(f)
	decoder.DisallowUnknownFields()
	for {
		var line benchFigure
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return figures
		}
		require.NoError(t, err)
		figures = append(figures, line)
	}
}

func TestBenchPrintsFiguresAndWritesThemWithAChart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	figuresFile, chartFile := filepath.Join(dir, "figures.json"), filepath.Join(dir, "chart.svg")
	stdout, stderr, code := command(t, "accept", "--quick", "--json", figuresFile, "--chart", chartFile)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, "fsync=on")
	require.Contains(t, stdout, "\naccept: ")

	figures := benchFigures(t, figuresFile)
	require.NotEmpty(t, figures)
	for _, f := range figures {
		require.Equal(t, "accept", f.Suite)
		require.Contains(t, stdout, "\n  "+f.Case+" ")
		require.LessOrEqual(t, f.Low, f.Value)
		require.LessOrEqual(t, f.Value, f.High)
		require.Equal(t, f.Goal == nil, f.Met == nil)
		require.Equal(t, f.Against == "", f.Ratio == 0)
	}
	chart, err := os.ReadFile(chartFile)
	require.NoError(t, err)
	require.NoError(t, xml.Unmarshal(chart, new(struct{ XMLName xml.Name })))
	require.Contains(t, string(chart), "accept: "+figures[0].Case)
}

func TestBenchLeavesNothingBehindAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "test-of-bench-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755), "Postgres runs as somebody else where this is root")
	log, tmp := &deduptest.Log{}, filepath.Join(dir, "tmp")
	require.NoError(t, os.Mkdir(tmp, 0o755))
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "bench"), ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(filepath.Join(dir, "bench"), "accept", "--quick")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	require.Eventually(t, func() bool { return strings.Contains(log.String(), "accept: ") },
		3*time.Minute, 20*time.Millisecond)
	family := deduptest.Family(t, cmd.Process.Pid)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-ended:
	case <-time.After(time.Minute):
		require.FailNow(t, "it still runs", log)
	}
	require.Equal(t, exitFailure, cmd.ProcessState.ExitCode())
	require.Contains(t, log.String(), "bench: interrupted\n")
	deduptest.AwaitEnded(t, family)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left on disk")
}
