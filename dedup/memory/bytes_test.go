package memory_test

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/memory"
)

// Not in parallel: the limit is the process'.
func TestWhatWasLetGoOfIsCollectedBeforeMuchIsAllocated(t *testing.T) {
	const large = 64 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(large + large/2))
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // Go collects at the limit only
	for range 5 {
		b := memory.Bytes(large)
		b[large-1] = 1 // kept until here
		objects := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(objects)
		require.Less(t, objects[0].Value.Uint64(), uint64(large+large/2), "the one before is there too")
	}
}

func TestGarbageStaysWhereThereIsNoLimit(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after debug.GCStats
	debug.ReadGCStats(&before)
	for range 3 {
		require.Len(t, memory.Bytes(16<<20), 16<<20)
	}
	debug.ReadGCStats(&after)
	require.Equal(t, before.NumGC, after.NumGC, "a heap may be large, and each collection long")
}
