package crashguard

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
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

// Whatever has taken too long: our own statements, a handler, or the answer to either.
func TestABatchThatHasTakenTooLongIsHalvedEachTime(t *testing.T) {
	failed := func(err error, batches ...int) (next []int) {
		g := AfterFailure(nil, &dedup.Position{Next: 7}, slog.New(slog.DiscardHandler))
		for _, n := range batches {
			next = append(next, g.Failed(t.Context(), fmt.Errorf("accept: %w", err), n, 1000))
		}
		return next
	}
	for _, slow := range []error{&pgconn.PgError{Code: "57014"}, handlers.ErrHandlerTimeout, dedup.ErrNoAnswer} {
		require.Equal(t, []int{100, 50, 1}, failed(slow, 200, 100, 3), slow)
		require.Equal(t, []int{1000}, failed(slow, 1), "of one message there is no half")
	}
	require.Equal(t, []int{1000}, failed(&pgconn.PgError{Code: "53100"}, 200), "it may pass")
}
