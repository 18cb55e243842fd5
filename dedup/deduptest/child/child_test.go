//go:build unix

package child_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

const parentRole = "CHILD_TEST_PARENT"

// TestMain plays the parent that gets killed where the environment asks for it.
func TestMain(m *testing.M) {
	if os.Getenv(parentRole) == "" {
		os.Exit(m.Run())
	}
	p, err := child.Start(child.Spec{Path: "/bin/sleep", Args: []string{"600"}, User: child.Unprivileged()})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	<-p.Done()
}

func TestChildEndsWhenItsParentIsKilled(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentRole+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	require.NoError(t, syscall.Kill(pid, 0), "the child runs")

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()

	require.Eventually(t, func() bool { return gone(pid) }, 3*time.Minute, 10*time.Millisecond)
}

func TestStopKillsAChildThatIgnoresTheSignal(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := child.Start(child.Spec{
		Path:    "/bin/sh",
		Args:    []string{"-c", "trap '' TERM; echo ready; while :; do sleep 1; done"},
		LogFile: log,
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return child.Tail(log) == "\nready" }, 3*time.Minute, time.Millisecond)

	require.True(t, p.Stop(syscall.SIGTERM, 50*time.Millisecond))
	require.False(t, p.Stop(syscall.SIGTERM, 50*time.Millisecond), "a second stop has nothing to do")
}

func TestRunReportsTheLastWordsOfACommandThatFails(t *testing.T) {
	err := child.Run(child.Spec{
		Path:    "/bin/sh",
		Args:    []string{"-c", "echo no room >&2; exit 3"},
		LogFile: filepath.Join(t.TempDir(), "log"),
	}, time.Minute)
	require.ErrorContains(t, err, "exit status 3\nno room")
}

func TestRunEndsACommandThatTakesTooLong(t *testing.T) {
	err := child.Run(child.Spec{Path: "/bin/sleep", Args: []string{"600"}}, 10*time.Millisecond)
	require.ErrorContains(t, err, "not done after 10ms")
}

func TestMissingProgramIsAnError(t *testing.T) {
	_, err := child.Start(child.Spec{Path: "/no/such/program"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFreePortIsBelowThoseOfOutgoingConnections(t *testing.T) {
	for range 100 {
		port, err := child.FreePort()
		require.NoError(t, err)
		require.Less(t, port, 32768)
	}
}

// gone counts a zombie that nobody has waited for as gone.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
