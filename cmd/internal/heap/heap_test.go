package heap

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimitFollowsTheBufferUnlessTheEnvironmentSaysOtherwise(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "")
	Limit(0)
	require.EqualValues(t, 104<<20, debug.SetMemoryLimit(-1))
	Limit(16 << 20)
	require.EqualValues(t, 56<<20, debug.SetMemoryLimit(-1))
	debug.SetMemoryLimit(math.MaxInt64)
	t.Setenv("GOMEMLIMIT", "off")
	Limit(16 << 20)
	require.EqualValues(t, math.MaxInt64, debug.SetMemoryLimit(-1))
}
