package dedup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestLanesOfAStoppedProcessAreFreeAfterAWhile(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	s := stageOn(t, db, db.Pool, dedup.Config{IdleAfter: 200 * time.Millisecond})
	b := s.batch(nil, newIDs(1)...)
	tx, err := s.store.Accept(t.Context(), b)
	require.NoError(t, err)
	b.Entries[0].Lane = b.Entries[0].Message.ID
	b.Entries[0].Park(0)
	require.NoError(t, tx.Commit(t.Context()))

	claim := func() []dedup.Claim {
		claims, err := s.store.ClaimLanes(t.Context(), "h", 10, 0)
		require.NoError(t, err)
		return claims
	}
	stopped, _, err := s.store.LoadLanes(t.Context(), claim(), 1, 0)
	require.NoError(t, err)
	require.Empty(t, claim(), "while the transaction is open")

	require.Eventually(t, func() bool { return len(claim()) == 1 }, 60*time.Second, 20*time.Millisecond)
	require.Error(t, stopped.Commit(t.Context()), "the stopped process comes back")
}
