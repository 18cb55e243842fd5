package replay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrderOfHandlersMakesNoOtherReplay(t *testing.T) {
	for now, same := range map[string]bool{
		"from earliest to latest, all partitions, handlers a,b":   true,
		"from earliest to latest, all partitions, handlers b,a":   true,
		"from earliest to latest, all partitions, handlers b":     false,
		"from earliest to latest, all partitions, handlers a,b,c": false,
		"from earliest to 7, all partitions, handlers a,b":        false,
	} {
		require.Equal(t, same, sameAsked("from earliest to latest, all partitions, handlers a,b", now), now)
	}
}
