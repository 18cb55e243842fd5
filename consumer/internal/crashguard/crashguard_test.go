package crashguard

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestBatchesAreGuardedOnlyWhereAnOwnerDiedOrTheLogIsReadFromBefore(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, c := range []struct {
		fruitless     int
		from, handled int64
		guarded       bool
		apart         int
	}{
		{fruitless: 1, from: 7, handled: 7},
		{fruitless: 1, from: 7, handled: 5},
		{fruitless: 1, from: 5, handled: 7, guarded: true},
		{fruitless: 2, from: 7, handled: 7, guarded: true, apart: 100},
		{fruitless: 3, from: 5, handled: 7, guarded: true, apart: 100},
	} {
		g := AfterAcquiring(nil, &dedup.Position{Fruitless: c.fruitless}, c.from, c.handled, 100, log)
		require.Equal(t, c.guarded, g != nil, "%+v", c)
		require.Equal(t, c.apart > 0, g.Suspects(), "%+v", c)
		if g != nil {
			require.Equal(t, c.apart, g.left, "%+v", c)
		}
	}
}
