package dedup

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestScopesMadeByManyAtOnceAreTheSame(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	keys := make([]ScopeKey, 20)
	for i := range keys {
		keys[i] = ScopeKey{Handler: fmt.Sprint("h", i%4), Tenant: fmt.Sprint("t", i/2)} // some twice
	}
	const stores = 16
	var group errgroup.Group
	found := make([][]int32, stores)
	for i := range stores {
		group.Go(func() error {
			store, err := Open(t.Context(), db.Pool, Config{Inbox: "test"})
			if err != nil {
				return err
			}
			scopes, err := store.Scopes(t.Context(), keys)
			found[i] = scopes.IDs
			return err
		})
	}
	require.NoError(t, group.Wait())
	distinct := map[int32]ScopeKey{}
	for i, id := range found[0] {
		distinct[id] = keys[i]
	}
	for _, ids := range found {
		require.Equal(t, found[0], ids)
		for i, id := range ids {
			require.Equal(t, keys[i], distinct[id])
		}
	}
	other, err := Open(t.Context(), db.Pool, Config{Inbox: "other"})
	require.NoError(t, err)
	ids, err := other.Scopes(t.Context(), keys[:1])
	require.NoError(t, err)
	require.NotContains(t, distinct, ids.IDs[0], "another inbox has scopes of its own")
}

func TestKnownScopesCostNoQuery(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	store, err := Open(t.Context(), db.Pool, Config{Inbox: "test"})
	require.NoError(t, err)
	keys := []ScopeKey{{Handler: "a"}, {Handler: "a", Tenant: "b:c"}, {Handler: "a:b", Tenant: "c"}}
	want, err := store.Scopes(t.Context(), keys)
	require.NoError(t, err)
	require.NotEqual(t, want.IDs[1], want.IDs[2])
	before := db.Pool.Stat().AcquireCount()
	got, err := store.Scopes(t.Context(), keys)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, before, db.Pool.Stat().AcquireCount())
}

func TestScopeCacheIsBounded(t *testing.T) {
	var c scopeCache
	for i := range maxCachedScopes + 10 {
		c.put(map[ScopeKey]int32{{Tenant: fmt.Sprint(i)}: int32(i)}, time.Time{})
		require.LessOrEqual(t, len(c.ids), maxCachedScopes)
	}
	_, missing := c.get([]ScopeKey{{Tenant: fmt.Sprint(maxCachedScopes + 9)}})
	require.Empty(t, missing, "the newest is there")
}
