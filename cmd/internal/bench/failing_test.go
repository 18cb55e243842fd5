package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachBatchHasItsShareOfFailures(t *testing.T) {
	for _, perMille := range []int{0, 1, 10, 100} {
		offset := int64(0)
		for _, batch := range failingBatches("orders", perMille, 3) {
			failures := 0
			for _, m := range batch {
				require.Equal(t, offset, m.Offset)
				offset++
				if len(m.Value) == 0 {
					failures++
				}
			}
			require.Equal(t, perMille, failures)
		}
		require.EqualValues(t, 3*failingBatch, offset)
	}
}
