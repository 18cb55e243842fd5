package dedup_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestLookSaysWhatAcceptThenSays(t *testing.T) {
	s := newStage(t)
	scopes := s.scopes(dedup.ScopeKey{Handler: "a"}, dedup.ScopeKey{Handler: "b"})
	rapid.Check(t, func(r *rapid.T) {
		s.exec(`truncate firstseen.message_dedup, firstseen.inbox, firstseen.dead_letters, firstseen.conflicts`)
		ids := newIDs(rapid.IntRange(1, 12).Draw(r, "ids"))
		for range rapid.IntRange(1, 6).Draw(r, "batches") {
			b := drawCopies(r, scopes, ids)
			require.NoError(r, s.store.Look(context.Background(), b.Entries))
			looked := outcomes(b)
			tx, err := s.store.Accept(context.Background(), b)
			require.NoError(r, err)
			defer tx.Rollback(context.Background()) // or the next try waits for its locks
			require.Equal(r, outcomes(b), looked)
			for i := range b.Entries {
				if e := &b.Entries[i]; e.Outcome == dedup.New && rapid.IntRange(0, 3).Draw(r, "dies") == 0 {
					e.State, e.Reason, e.Lane = dedup.Dead, "failed", e.Message.ID
				}
			}
			require.NoError(r, tx.Commit(context.Background()))
		}
	})
}

// drawCopies is a batch of few IDs, with and without fingerprints.
func drawCopies(r *rapid.T, scopes []int32, ids []uuid.UUID) *dedup.Batch {
	b := &dedup.Batch{}
	for i := range rapid.IntRange(0, 20).Draw(r, "messages") {
		m := &dedup.Message{ID: rapid.SampledFrom(ids).Draw(r, "id"), Topic: "orders", Offset: int64(i)}
		if n := rapid.IntRange(0, 3).Draw(r, "content"); n > 0 {
			m.Fingerprint = []byte{byte(n)}
		}
		b.Entries = append(b.Entries, dedup.Entry{Scope: rapid.SampledFrom(scopes).Draw(r, "scope"), Message: m})
	}
	return b
}

func TestLookNeverScansTheDedupTable(t *testing.T) {
	db := deduptest.New(t)
	for _, sql := range []string{`insert into firstseen.message_dedup (scope_id, message_id)
		select 1, gen_random_uuid() from generate_series(1, 300000)`, `analyze firstseen.message_dedup`} {
		_, err := db.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	var plans strings.Builder
	s := stageOn(t, db, deduptest.Explained(t, db.DSN, &plans), dedup.Config{})
	b := s.batch(nil, newIDs(1000)...)
	for i := range b.Entries {
		b.Entries[i].Message.Fingerprint = []byte{1}
	}
	for range 7 { // more than it takes for a generic plan
		require.NoError(t, s.store.Look(t.Context(), b.Entries))
	}
	const look = `Index Scan using message_dedup_pkey on message_dedup d `
	require.Contains(t, plans.String(), look)
	require.Contains(t, plans.String(), `Index Cond: ((scope_id = u.scope_id) AND (message_id = u.message_id))`)
	require.NotRegexp(t, `Scan.* on message_dedup`, strings.ReplaceAll(plans.String(), look, ""))
	require.Zero(t, s.count(`select count(*) from firstseen.message_dedup where fingerprint is not null`))
}

func TestScopesAreLookedUpWithoutBeingMade(t *testing.T) {
	s := newStage(t)
	keys := []dedup.ScopeKey{{Handler: "unknown"}, {Handler: "h"}, {Handler: "h", Tenant: "unknown"}}
	ids, err := s.store.LookUpScopes(t.Context(), keys)
	require.NoError(t, err)
	require.Equal(t, s.scope, ids[1])
	require.Negative(t, ids[0])
	require.Negative(t, ids[2])
	require.NotEqual(t, ids[0], ids[2])
	require.Equal(t, 1, s.count(`select count(*) from firstseen.scopes`))
}

func TestReplayBeginsOnceUnlessAnew(t *testing.T) {
	s := newStage(t)
	want := operate.Replay{Consumer: operate.ReplayConsumer("shop", "all"), Topic: "orders", TopicID: uuid.New(),
		Asked: "from 3",
		Ranges: []operate.ReplayRange{{Partition: 0, From: 3, To: 9, Next: 3},
			{Partition: 2, From: 4, To: 4, Next: 4}}}
	found, err := operate.Of(s.store).Replay(t.Context(), want.Consumer, want.Topic)
	require.NoError(t, err)
	require.Nil(t, found)
	begin := func(r *operate.Replay, fresh bool) bool {
		begun, err := operate.Of(s.store).BeginReplay(t.Context(), r, fresh)
		require.NoError(t, err)
		return begun
	}
	require.True(t, begin(&want, false))
	p, err := s.store.Acquire(t.Context(), want.Consumer, want.Topic, 0, "owner")
	require.NoError(t, err)
	require.EqualValues(t, 3, p.Next)
	b := &dedup.Batch{Position: p, Next: 5}
	s.accept(b)

	other := want
	other.Ranges = []operate.ReplayRange{{Partition: 0, From: 1, To: 2, Next: 1}}
	require.False(t, begin(&other, false))
	found, err = operate.Of(s.store).Replay(t.Context(), want.Consumer, want.Topic)
	require.NoError(t, err)
	require.False(t, found.BegunAt.IsZero())
	want.BegunAt, want.Ranges[0].Next = found.BegunAt, 5
	require.Equal(t, &want, found)
	require.EqualValues(t, 4, found.Left())

	require.True(t, begin(&other, true))
	_, err = s.store.Accept(t.Context(), &dedup.Batch{Position: p, Next: 6})
	require.ErrorIs(t, err, dedup.ErrFenced)
	found, err = operate.Of(s.store).Replay(t.Context(), want.Consumer, want.Topic)
	require.NoError(t, err)
	require.Equal(t, other.Ranges, found.Ranges)
}

func TestResetOfPositionsWaitsForNoTransactionForEver(t *testing.T) {
	s := newStage(t)
	p := s.position(0)
	tx, err := s.store.Accept(t.Context(), s.batch(p, newIDs(1)...))
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	s.exec(`alter function firstseen.reset_position set lock_timeout = '50ms'`)
	by := operate.By{Actor: "night shift", Why: "test"}
	err = operate.Of(s.store).ResetPositions(t.Context(), "consumer", "orders", uuid.Nil, map[int32]int64{0: 7}, by)
	require.ErrorIs(t, err, operate.ErrPositionInUse)
	tx.Rollback(t.Context())
	require.Error(t, operate.Of(s.store).ResetPositions(t.Context(), "consumer", "orders", uuid.Nil,
		map[int32]int64{0: 7}, operate.By{Actor: "a"}))
	require.NoError(t, operate.Of(s.store).ResetPositions(t.Context(), "consumer", "orders", uuid.Nil,
		map[int32]int64{0: 7, 1: 2}, by))
	require.Equal(t, 2, s.count(`select count(*) from firstseen.audit where action = 'reset'`))
	require.Equal(t, 1,
		s.count(`select count(*) from firstseen.audit where subject = 'position consumer orders/1: none to 2'`))
	_, err = s.store.Accept(t.Context(), s.batch(p, newIDs(1)...))
	require.ErrorIs(t, err, dedup.ErrFenced)
	require.EqualValues(t, 7, s.position(0).Next)
}

func TestAFreshReplayOfFewerPartitionsLeavesNoPositionThatCountsAsAConsumers(t *testing.T) {
	s := newStage(t)
	r := &operate.Replay{Consumer: operate.ReplayConsumer("group", "x"), Topic: "orders", Asked: "all",
		Ranges: []operate.ReplayRange{{Partition: 0, To: 9}, {Partition: 1, To: 9}}}
	_, err := operate.Of(s.store).BeginReplay(t.Context(), r, false)
	require.NoError(t, err)
	r.Ranges = r.Ranges[:1]
	_, err = operate.Of(s.store).BeginReplay(t.Context(), r, true)
	require.NoError(t, err)
	positions, err := operate.Of(s.store).AllPositions(t.Context(), 0)
	require.NoError(t, err)
	positions = slices.DeleteFunc(positions, func(p operate.Position) bool { return !p.Counts() })
	require.Len(t, positions, 1, "%+v", positions)
}
