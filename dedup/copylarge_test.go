package dedup

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLargeValuesAreNotCopiedIntoTheRows(t *testing.T) {
	large, small := bytes.Repeat([]byte{7}, 3*largeBytes), []byte("small")
	var rows copyRows
	rows.reset()
	for _, m := range []Message{{Value: large, Key: large}, {Value: small}, {Value: large[1:]}} {
		rows.add(&Entry{Message: &m}, 1)
	}
	require.Less(t, cap(rows.buf), largeBytes)
	sent, err := io.ReadAll(rows.reader())
	require.NoError(t, err)
	for _, m := range []Message{{Value: large, Key: large}, {Value: small}, {Value: large[1:]}} {
		at := bytes.Index(sent, m.Value)
		require.GreaterOrEqual(t, at, 0)
	}
	require.Equal(t, 9*largeBytes-1, bytes.Count(sent, []byte{7}))
	rows.reset()
	require.Nil(t, rows.large)
}
