package migrations_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestOperatorRoleResetsPositionsAndPreviewsReplays(t *testing.T) {
	db := withRoles(t, "")
	withDeadLetter(t, db)
	store, err := dedup.Attach(t.Context(), login(t, db.DB, "firstseen_operator"), dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	by := operate.By{Actor: "night shift", Why: "test"}
	require.NoError(t,
		operate.Of(store).ResetPositions(t.Context(), "shop", "orders", uuid.New(), map[int32]int64{0: 7}, by))
	positions, err := operate.Of(store).Positions(t.Context(), "shop")
	require.NoError(t, err)
	require.Len(t, positions, 1)
	_, err = operate.Of(store).Replay(t.Context(), operate.ReplayConsumer("shop", "all"), "orders")
	require.NoError(t, err)
	scopes, err := store.LookUpScopes(t.Context(), []dedup.ScopeKey{{Handler: "h"}})
	require.NoError(t, err)
	entries := []dedup.Entry{{Scope: scopes[0], Message: &dedup.Message{ID: uuid.New()}}}
	require.NoError(t, store.Look(t.Context(), entries))
	require.Equal(t, dedup.New, entries[0].Outcome)

	for _, sql := range []string{`insert into firstseen.replays (consumer, topic, "partition", from_offset, to_offset, asked) values ('replay/a/b', 'c', 0, 0, 0, '')`,
		`delete from firstseen.replays`, `update firstseen.positions set next_offset = 0`} {
		_, err := login(t, db.DB, "firstseen_operator").Exec(t.Context(), sql)
		require.Equal(t, denied, code(err), "%s: %v", sql, err)
	}
}

func TestConsumerRoleReplaysAndDoesNotReset(t *testing.T) {
	db := withRoles(t, "")
	store, err := dedup.Open(t.Context(), db.consumer, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	r := &operate.Replay{Consumer: operate.ReplayConsumer("shop", "all"), Topic: "orders", Asked: "all",
		Ranges: []operate.ReplayRange{{Partition: 0, From: 0, To: 9}}}
	for _, fresh := range []bool{false, true} {
		begun, err := operate.Of(store).BeginReplay(t.Context(), r, fresh)
		require.NoError(t, err)
		require.True(t, begun)
	}
	position, err := store.Acquire(t.Context(), r.Consumer, r.Topic, 0, "owner")
	require.NoError(t, err)
	tx, err := store.Accept(t.Context(), &dedup.Batch{Position: position, Next: 9, Replayed: true})
	require.NoError(t, err)
	require.NoError(t, tx.Join(t.Context(), nil))
	require.NoError(t, tx.Commit(t.Context()))

	err = operate.Of(store).ResetPositions(t.Context(), "shop", "orders", uuid.Nil,
		map[int32]int64{0: 7}, operate.By{Actor: "me", Why: "x"})
	require.Equal(t, denied, code(err), "%v", err)
}
