package dedup_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/shards"
)

// spread is a map of shards a, b and so on.
func spread(t *testing.T, partitions ...string) (m shards.Map) {
	for i, text := range partitions {
		p, err := shards.ParsePartitions(text)
		require.NoError(t, err)
		m = append(m, shards.Shard{Name: string(rune('a' + i)), Partitions: p})
	}
	return m
}

func openAt(t *testing.T, db *deduptest.DB) *dedup.Store {
	store, err := dedup.Open(t.Context(), db.Pool, dedup.Config{Inbox: "billing"})
	require.NoError(t, err)
	return store
}

func TestADatabaseRemembersWhichShardItIs(t *testing.T) {
	t.Parallel()
	ctx, db, m := t.Context(), deduptest.New(t), spread(t, "0-7", "8-")
	store, a := openAt(t, db), shards.Home{Shard: "a", Map: m}
	require.NoError(t, store.CheckHome(ctx, "billing", shards.Home{}))
	require.ErrorIs(t, store.CheckHome(ctx, "billing", a), dedup.ErrNotHome)
	require.ErrorContains(t, store.CheckHome(ctx, "billing", a), "run `firstseen migrate up`")

	for range 2 {
		require.NoError(t, dedup.DeclareHomes(ctx, "", "billing", m, map[string]*pgxpool.Pool{"a": db.Pool}))
	}
	require.NoError(t, store.CheckHome(ctx, "billing", a))
	require.NoError(t, store.CheckHome(ctx, "shop", shards.Home{}))
	for want, home := range map[string]shards.Home{
		"the config has no postgres.shards":           {},
		"it is shard a of billing, and the config":    {Shard: "b", Map: m},
		"a: 0-7; b: 8-, and the config has a: 0-5; b": {Shard: "a", Map: spread(t, "0-5", "6-")},
	} {
		err := store.CheckHome(ctx, "billing", home)
		require.ErrorIs(t, err, dedup.ErrNotHome)
		require.ErrorContains(t, err, want)
	}
	err := dedup.DeclareHomes(ctx, "", "billing", m, map[string]*pgxpool.Pool{"b": db.Pool})
	require.ErrorIs(t, err, dedup.ErrNotHome)
	require.ErrorContains(t, err, "this database is shard a of billing, and not b")
}

func TestAPartitionHasNoSecondHome(t *testing.T) {
	t.Parallel()
	ctx, db, m := t.Context(), deduptest.New(t), spread(t, "0-7", "8-")
	store := openAt(t, db)
	require.NoError(t, dedup.DeclareHomes(ctx, "", "billing", m, map[string]*pgxpool.Pool{"a": db.Pool}))

	_, err := store.Acquire(ctx, "billing", "orders", 7, "me")
	require.NoError(t, err)
	for _, consumer := range []string{"billing", "replay/billing/orders"} {
		_, err = store.Acquire(ctx, consumer, "orders", 8, "me")
		require.ErrorIs(t, err, dedup.ErrNotHome, consumer)
		require.ErrorContains(t, err, "partition orders/8 of "+consumer+" is not at home in this database, which is shard "+
			"a of a: 0-7; b: 8-")
	}
	_, err = store.Begin(ctx, "billing", "refunds", uuid.Nil, map[int32]int64{1: 0, 9: 0}, nil)
	require.ErrorIs(t, err, dedup.ErrNotHome)
	known, err := store.KnowsTopic(ctx, "billing", "refunds")
	require.NoError(t, err)
	require.False(t, known)
	for _, other := range []string{"shop", "replay/shop/orders", "relay/outbox", "billing2"} {
		_, err = store.Acquire(ctx, other, "orders", 8, "me")
		require.NoError(t, err, other)
	}
}

func TestAMapChangesForAllOfItsDatabasesAndMovesNoPartition(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first, second, third := deduptest.New(t), deduptest.New(t), deduptest.New(t)
	of := func(names string) map[string]*pgxpool.Pool {
		all := map[string]*pgxpool.Pool{}
		for _, r := range names {
			all[string(r)] = map[rune]*deduptest.DB{'a': first, 'b': second, 'c': third}[r].Pool
		}
		return all
	}
	store := openAt(t, first)
	_, err := store.Begin(ctx, "billing", "orders", uuid.Nil, map[int32]int64{0: 0, 7: 0}, nil)
	require.NoError(t, err)

	err = dedup.DeclareHomes(ctx, "", "billing", spread(t, "0-3", "4-"), of("ab"))
	require.ErrorIs(t, err, dedup.ErrNotHome)
	require.ErrorContains(t, err, "must stay at home in its shard a: orders/7")
	require.NoError(t, openAt(t, second).CheckHome(ctx, "billing", shards.Home{}), "and neither is the other one declared")

	two := spread(t, "0-7", "8-")
	require.NoError(t, dedup.DeclareHomes(ctx, "", "billing", two, of("ab")))
	_, err = openAt(t, second).Begin(ctx, "billing", "orders", uuid.Nil, map[int32]int64{8: 0, 15: 0}, nil)
	require.NoError(t, err)

	three := spread(t, "0-7", "8-15", "16-")
	require.ErrorContains(t, dedup.DeclareHomes(ctx, "", "billing", three, of("ac")), "and without --shard")
	require.NoError(t, openAt(t, third).CheckHome(ctx, "billing", shards.Home{}))
	require.ErrorContains(t, dedup.DeclareHomes(ctx, "", "billing", spread(t, "0-7", "8-14", "15-"), of("abc")),
		"must stay at home in its shard b: orders/15")
	require.NoError(t, dedup.DeclareHomes(ctx, "", "billing", three, of("abc")))
	require.NoError(t, store.CheckHome(ctx, "billing", shards.Home{Shard: "a", Map: three}))
	require.NoError(t, openAt(t, third).CheckHome(ctx, "billing", shards.Home{Shard: "c", Map: three}))
	_, err = openAt(t, second).Acquire(ctx, "billing", "orders", 16, "me")
	require.ErrorIs(t, err, dedup.ErrNotHome, "a process of before the change")
}
