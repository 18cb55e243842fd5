//go:build unix

package deduptest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/firstseen/firstseen/dedup/wait"
)

// Family gives the processes that one has started, and those that these have. Where there is no /proc the test is
// skipped.
func Family(t testing.TB, of int) (pids []int) {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are found through /proc")
	}
	parents := map[int]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path) //nolint:gosec // of /proc
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		parents[pid], _ = strconv.Atoi(fields[1])
	}
	for pid := range parents {
		for p := parents[pid]; p != 0; p = parents[p] {
			if p == of {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// AwaitEnded waits until a family has ended, of which there must have been one. A zombie counts as gone.
func AwaitEnded(t testing.TB, pids []int) {
	t.Helper()
	if len(pids) == 0 {
		t.Fatal("deduptest: no process was there to end")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for slices.ContainsFunc(pids, runs) {
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			t.Fatalf("deduptest: of the processes %v some still run", pids)
		}
	}
}

func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return syscall.Kill(pid, 0) == nil && (err != nil || !bytes.Contains(text, []byte(") Z ")))
}
