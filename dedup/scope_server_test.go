package dedup_test

import (
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// After a failover that has lost transactions, or a restore, a scope's number may be another one's.
func TestScopesThatPostgresHasLostAreFoundAgain(t *testing.T) {
	t.Parallel()
	server := deduptest.StartServer(t, pgserver.Config{})
	db := deduptest.Migrated(t, server.DSN("postgres"))
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, server.Backup(t.Context(), backup))
	store, other := openStore(t, db), openStore(t, db)
	red, blue := []dedup.ScopeKey{{Handler: "h", Tenant: "red"}}, []dedup.ScopeKey{{Handler: "h", Tenant: "blue"}}
	lost, err := store.Scopes(t.Context(), red)
	require.NoError(t, err)
	require.NoError(t, server.Restore(t.Context(), backup))
	store.Pool().Reset()
	other.Pool().Reset()
	blues, err := other.Scopes(t.Context(), blue)
	require.NoError(t, err)
	require.Equal(t, lost.IDs, blues.IDs, "the number is given again")

	m := &dedup.Message{ID: uuid.New(), Topic: "t"}
	cached, err := store.Scopes(t.Context(), red)
	require.NoError(t, err)
	accept := func(s dedup.Scopes) error {
		tx, err := store.Accept(t.Context(),
			&dedup.Batch{Entries: []dedup.Entry{{Scope: s.IDs[0], Message: m}}, Server: s.Server})
		if err == nil {
			err = tx.Commit(t.Context())
		}
		return err
	}
	require.ErrorIs(t, accept(cached), dedup.ErrOtherServer)

	found, err := store.Scopes(t.Context(), red)
	require.NoError(t, err)
	require.NotEqual(t, lost.IDs, found.IDs)
	require.NoError(t, accept(found))
	require.ErrorIs(t, accept(cached), dedup.ErrOtherServer, "whatever others have found out meanwhile")
	again, err := store.Scopes(t.Context(), red)
	require.NoError(t, err)
	require.Equal(t, found, again, "and that costs those nothing")
}

// So may a position's.
func TestPositionThatPostgresHasLostIsFenced(t *testing.T) {
	t.Parallel()
	server := deduptest.StartServer(t, pgserver.Config{})
	db := deduptest.Migrated(t, server.DSN("postgres"))
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, server.Backup(t.Context(), backup))
	store, other := openStore(t, db), openStore(t, db)
	acquire := func(s *dedup.Store, partition int32, next int64) *dedup.Position {
		p, err := s.Acquire(t.Context(), "c", "t", partition, "owner")
		require.NoError(t, err)
		require.NoError(t, s.Reposition(t.Context(), p, next, uuid.Nil, nil))
		return p
	}
	accept := func(p *dedup.Position, next int64) error {
		tx, err := store.Accept(t.Context(), &dedup.Batch{Position: p, Next: next})
		if err == nil {
			err = tx.Commit(t.Context())
		}
		return err
	}
	for _, next := range []int64{0, 5} { // where the other stands, which is beyond ours in the second case
		lost := acquire(store, 0, 0)
		require.NoError(t, server.Restore(t.Context(), backup))
		store.Pool().Reset()
		other.Pool().Reset()
		others := acquire(other, 1, next)
		require.ErrorIs(t, accept(lost, 10), dedup.ErrFenced)

		own := acquire(store, 0, 0)
		require.NoError(t, accept(own, 10))
		require.NoError(t, server.Restart(t.Context(), pgserver.Fast))
		store.Pool().Reset()
		require.ErrorIs(t, accept(own, 20), dedup.ErrOtherServer)
		require.NoError(t, accept(own, 20), "it is still ours")
		require.ErrorIs(t, accept(others, next+1), dedup.ErrOtherServer)
		require.NoError(t, accept(others, next+1), "and that is where it was")
		require.NoError(t, server.Restore(t.Context(), backup))
		store.Pool().Reset()
		other.Pool().Reset()
	}
}

func openStore(t *testing.T, db *deduptest.DB) *dedup.Store {
	t.Helper()
	store, err := dedup.Open(t.Context(), deduptest.OpenPool(t, db.DSN, nil), dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	return store
}
