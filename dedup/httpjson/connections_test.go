package httpjson

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAConnectionWhoseRequestIsBeingAnsweredDoesNotGiveWay(t *testing.T) {
	c := NewConnections(3)
	all := make([]*connection, 5)
	for i := range all {
		all[i] = &connection{of: c}
	}
	require.Nil(t, c.add(all[0]))
	all[0].answer(1)
	require.Nil(t, c.add(all[1]))
	require.Nil(t, c.add(all[2]))
	require.Same(t, all[1], c.add(all[3]), "the oldest that answers nothing")
	all[2].answer(1)
	all[3].answer(1)
	require.Same(t, all[0], c.add(all[4]), "the oldest, where all do")
	require.Equal(t, 3, len(c.open))
	require.True(t, slices.Contains(c.open, all[4]))
}
