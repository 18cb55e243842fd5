package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

// demo is a `firstseen dev` as a child process, with a temporary directory of its own.
type demo struct {
	*program
	stdout bytes.Buffer // read it after exit
	tmp    string
}

func startDemo(t *testing.T, args ...string) *demo {
	t.Helper()
	dir, err := os.MkdirTemp("", "test-of-dev-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755), "Postgres runs as somebody else where this is root")
	d := &demo{program: &program{t: t, log: &deduptest.Log{}, done: make(chan struct{})}, tmp: dir}
	d.cmd = exec.Command(built(t), append([]string{"dev", "--summary", "json"}, args...)...)
	d.cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	d.cmd.Stdout, d.cmd.Stderr = &d.stdout, d.log
	require.NoError(t, d.cmd.Start())
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.done
		if t.Failed() {
			t.Log(d.log)
		}
	})
	return d
}

// devSummary is the last line, as somebody else would read it.
type devSummary struct {
	Produced, Unique, Received, New, Duplicates, Effects, Crashes, Lag, Balance int64
	ExpectedBalance                                                             int64 `json:"expected_balance"`
	OK                                                                          bool
}

func (d *demo) summary() (s devSummary) {
	d.t.Helper()
	require.Equal(d.t, 1, strings.Count(d.stdout.String(), "\n"), "one line on standard output: %s", &d.stdout)
	decoder := json.NewDecoder(&d.stdout)
	decoder.DisallowUnknownFields()
	require.NoError(d.t, decoder.Decode(&s))
	return s
}

// family are the processes that the demo started and theirs.
func (d *demo) family() []int {
	d.t.Helper()
	return deduptest.Family(d.t, d.cmd.Process.Pid)
}

func TestDemoWithCrashesIsOKAndSaysSoInOneLine(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	d := startDemo(t, "--for", "8s", "--crash-every", "3s")
	d.awaitLog("produced")
	t.Log("first line of movement after", time.Since(begun))
	require.Zero(t, d.exit())
	s := d.summary()
	require.True(t, s.OK, "%+v", s)
	require.Positive(t, s.Crashes)
	require.Positive(t, s.Duplicates)
	require.Equal(t, s.Unique, s.Effects)
	require.Equal(t, s.Unique, s.New)
	require.Equal(t, s.ExpectedBalance, s.Balance)
	require.Equal(t, s.Received, s.New+s.Duplicates)
	require.GreaterOrEqual(t, s.Received, s.Produced)
	require.Zero(t, s.Lag)
	left, err := os.ReadDir(d.tmp)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left on disk")
}

func TestDemoLeavesNothingRunningAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"while it starts": "", "at work": "00:01  produced"} {
		t.Run(name, func(t *testing.T) {
			d := startDemo(t)
			if text == "" {
				eventually(t, func() bool { return len(d.family()) > 0 }) // initdb, at the earliest
			} else {
				d.awaitLog(text)
			}
			family := d.family()
			d.signal(syscall.SIGINT)
			if code := d.exit(); text == "" {
				require.Equal(t, exitFailure, code)
				require.Contains(t, d.log.String(), "interrupted")
			} else {
				require.Zero(t, code, "it caught up, and all was right")
				require.Contains(t, d.log.String(), "its data, in "+d.tmp)
				require.True(t, d.summary().OK)
			}
			deduptest.AwaitEnded(t, family)
		})
	}
}

func TestDemoTakesItsProcessesAlongWhenItIsKilled(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	d.awaitLog("00:01  produced")
	family := d.family()
	d.signal(syscall.SIGKILL)
	d.exit()
	deduptest.AwaitEnded(t, family)
}

func TestDemoRefusesWrongOptions(t *testing.T) {
	for _, args := range [][]string{{"--duplicates", "1"}, {"--rate", "-5"}, {"extra"}, {"--for", "soon"}} {
		d := startDemo(t, args...)
		require.Equal(t, exitUsage, d.exit(), "%v", args)
		require.Equal(t, 1, strings.Count(d.log.String(), "\n"), "%s", d.log)
		require.Empty(t, d.stdout.String())
	}
}
