package memory

import (
	"runtime"
	"runtime/metrics"
)

// largeBytes is the size from which garbage may be collected before memory is allocated.
const largeBytes = 8 << 20

// Bytes allocates n bytes. Where these are many, and more than a limit to Go's memory that is set
// (debug.SetMemoryLimit) has left, garbage is collected first. Go by itself collects it beside, and has both for a
// moment: a large message that was let go of, and the next one.
func Bytes(n int) []byte {
	if n >= largeBytes && passesLimit(n) {
		runtime.GC()
	}
	return make([]byte, n)
}

func passesLimit(n int) bool {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(samples)
	objects, limit := samples[0].Value.Uint64(), samples[1].Value.Uint64()
	return objects+uint64(n) > limit
}
