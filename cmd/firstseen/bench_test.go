package main

import (
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

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestBenchRefusesWrongUsageBeforeItStartsAnything(t *testing.T) {
	t.Chdir(t.TempDir())
	stdout, stderr, code := command(t, "bench", "accept", "nothing", "more", "--json", "figures.json")
	require.Equal(t, exitUsage, code)
	require.Empty(t, stdout)
	require.Regexp(t, `^firstseen: no suite is called "nothing" or "more"; there are end-to-end, .*; see firstseen bench --help\n$`, stderr)
	require.NoFileExists(t, "figures.json", "an earlier run's figures stay")
	for _, args := range []string{"bench --quik", "bench contender now"} {
		_, _, code := command(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, code, args)
	}
	_, _, code = command(t, "bench", "accept", "--chart", "no/such/directory.svg")
	require.Equal(t, exitFailure, code)
}

func TestBenchHelpNamesTheSuites(t *testing.T) {
	stdout, _, code := command(t, "bench", "--help")
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
	stdout, stderr, code := command(t, "bench", "accept", "--quick", "--json", figuresFile, "--chart", chartFile)
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
	b := startBench(t, "accept", "--quick")
	b.awaitLog("accept: ")
	family := b.family()
	b.signal(syscall.SIGINT)
	require.Equal(t, exitFailure, b.exit())
	require.Contains(t, b.log.String(), "firstseen: bench: interrupted\n")
	requireEnded(t, family)
	left, err := os.ReadDir(b.tmp)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left on disk")
}

// startBench starts a bench as a child process, with a temporary directory of its own.
func startBench(t *testing.T, args ...string) *demo {
	t.Helper()
	dir, err := os.MkdirTemp("", "test-of-bench-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755), "Postgres runs as somebody else where this is root")
	b := &demo{program: &program{t: t, log: &deduptest.Log{}, done: make(chan struct{})}, tmp: dir}
	b.cmd = exec.Command(built(t), append([]string{"bench"}, args...)...)
	b.cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	require.NoError(t, b.cmd.Start())
	go func() {
		defer close(b.done)
		_ = b.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		<-b.done
		if t.Failed() {
			t.Log(b.log)
		}
	})
	return b
}
