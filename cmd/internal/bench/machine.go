package bench

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
)

func processors() int { return runtime.NumCPU() }

func goVersion() string { return runtime.Version() }

// peakMemory is the most that this process has had in memory, in bytes; 0 where the system does not say.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := bytes.Cut(status, []byte("VmHWM:"))
	line, _, _ := strings.Cut(string(after), "\n")
	kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "kB")), 10, 64)
	return kib << 10
}
