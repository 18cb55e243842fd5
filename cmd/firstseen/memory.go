package main

import (
	"os"
	"runtime/debug"

	"github.com/firstseen/firstseen/consumer"
)

// boundMemory keeps Go's heap within what a consumer with such a buffer needs, where the environment does not say otherwise.
func boundMemory(buffer int) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(buffer) + consumer.HeapBeside)
	}
}
