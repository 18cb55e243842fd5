package dedup_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestHeaderIsTheFirstOfItsNameAsItCame(t *testing.T) {
	m := dedup.Message{Headers: []dedup.Header{{Key: "A", Value: []byte("x")}, {Key: "a", Value: []byte{}},
		{Key: "a", Value: []byte("second")}, {Key: "null"}}}
	require.Equal(t, []byte{}, m.Header("a"))
	require.Equal(t, "x", string(m.Header("A")))
	require.Nil(t, m.Header("null"))
	require.Nil(t, m.Header("none"))
}
