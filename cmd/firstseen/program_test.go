package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) {
	code := deduptest.Main(m)
	_ = os.RemoveAll(filepath.Dir(binary.path))
	os.Exit(code)
}

const testLimit = 3 * time.Minute

// binary is the program, built once for all tests.
var binary struct {
	once sync.Once
	path string
	out  []byte
	err  error
}

func built(t *testing.T) string {
	t.Helper()
	binary.once.Do(func() {
		dir, err := os.MkdirTemp("", "test-of-firstseen-")
		if err != nil {
			binary.err = err
			return
		}
		binary.path = filepath.Join(dir, "firstseen")
		binary.out, binary.err = exec.Command("go", "build", "-o", binary.path, ".").CombinedOutput()
	})
	require.NoError(t, binary.err, "%s", binary.out)
	return binary.path
}

// program is the program as a child process.
type program struct {
	t      *testing.T
	config string // the file's path
	cmd    *exec.Cmd
	log    *deduptest.Log
	done   chan struct{}
}

// start starts the program with a config, and kills it at the test's end if it still runs.
func start(t *testing.T, config string, args ...string) *program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "firstseen.yaml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	p := &program{t: t, config: path, log: &deduptest.Log{}, done: make(chan struct{})}
	p.cmd = exec.Command(built(t), append(args, "--config", path)...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Log(p.log)
		}
	})
	return p
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

func (p *program) awaitLog(text string) {
	p.t.Helper()
	eventually(p.t, func() bool { return strings.Contains(p.log.String(), text) })
}

// logged waits for a line that a pattern matches, and gives what its first group does.
func (p *program) logged(pattern *regexp.Regexp) string {
	p.t.Helper()
	var found []string
	eventually(p.t, func() bool {
		found = pattern.FindStringSubmatch(p.log.String())
		return found != nil
	})
	return found[1]
}

func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exit waits for the end and gives the code.
func (p *program) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(testLimit):
		require.FailNow(p.t, "the program still runs")
	}
	return p.cmd.ProcessState.ExitCode()
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, testLimit, 20*time.Millisecond)
}

// command runs a command line in this process.
func command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), code
}

func TestExitCodesTellUsageFromFailure(t *testing.T) {
	require.Equal(t, exitOK, exitCode(nil))
	require.Equal(t, exitFailure, exitCode(errors.New("x")))
	t.Chdir(t.TempDir())
	for _, args := range []string{"runn", "run now", "run --confg x", "migrate upp", "migrate up now", "migrate down",
		"migrate down --to -1", "migrate down --to 0", "migrate down --to x", "run", "run --config none",
		"migrate up", "version x"} {
		stdout, stderr, code := command(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, stdout, args)
		require.True(t, strings.HasPrefix(stderr, "firstseen: "), "%s: %s", args, stderr)
		require.NotContains(t, stderr, "Usage:", args)
	}
	_, stderr, _ := command(t, "runn")
	require.Equal(t, "firstseen: unknown command \"runn\", did you mean run?; see firstseen --help\n", stderr)
}

func TestFirstseenAlonePrintsHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"migrate"}, {"run", "--help"}} {
		stdout, stderr, code := command(t, args...)
		require.Equal(t, exitOK, code)
		require.Empty(t, stderr)
		require.Contains(t, stdout, "Examples:")
	}
}

func TestVersionSaysWhatTheBinaryIs(t *testing.T) {
	stdout, _, code := command(t, "version")
	require.Equal(t, exitOK, code)
	require.Regexp(t, `^firstseen \S+\nrevision  .+\ngo        go1\.\S+ \S+\nschema    [1-9]\d*\n$`, stdout)
}
