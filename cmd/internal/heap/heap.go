// Package heap keeps the process's memory near what it was told to buffer.
package heap

import (
	"cmp"
	"os"
	"runtime/debug"

	"github.com/firstseen/firstseen/consumer"
)

// besideBuffer is what the heap may need beside the buffer: batches as they are sent, a fetch's answer, garbage. The
// program's own pages, about 20 MiB, come on top.
const besideBuffer = 40 << 20

// Limit has Go's garbage collector keep the heap within a consumer's buffer (0: the default one) and 40 MiB, where
// GOMEMLIMIT does not say otherwise. The limit is a soft one: what does not fit is still served, with up to half of the
// processor's time spent on collecting.
func Limit(bufferBytes int) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(cmp.Or(max(bufferBytes, 0), consumer.DefaultBufferBytes)) + besideBuffer)
	}
}
