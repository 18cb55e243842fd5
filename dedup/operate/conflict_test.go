package operate_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// copies are three messages of one ID, of which the second has another content.
func copies(mode identity.FingerprintMode) []dedup.Message {
	first := message(0, "k")
	ms := []dedup.Message{first, first, first}
	for i, value := range []string{`{"n":1}`, `{"n":2}`, `{"n":1}`} {
		if mode == identity.FingerprintJSON && i == 2 {
			value = ` {"n": 1.0} `
		}
		ms[i].Value, ms[i].Offset, ms[i].Fingerprint = []byte(value), int64(i), mode.Of([]byte(value))
	}
	return ms
}

func TestOfCopiesWithDifferentContentsTheFirstWinsAndTheOtherIsKept(t *testing.T) {
	for _, mode := range []identity.FingerprintMode{identity.FingerprintBytes, identity.FingerprintJSON} {
		for name, cuts := range map[string][]int{"one batch": {3}, "two batches": {1, 3},
			"two batches, other cut": {2, 3}, "three batches": {1, 2, 3}} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s, restart %t", mode, name, restart), func(t *testing.T) {
					w := newWard(t)
					ms := copies(mode)
					var total handlers.Result
					from := 0
					for _, to := range cuts {
						r := w.process(ms[from:to]...)
						total.New, total.Duplicates, total.Conflicts = total.New+r.New, total.Duplicates+r.Duplicates,
							total.Conflicts+r.Conflicts
						from = to
						if restart {
							w.restart()
						}
					}
					require.Equal(t, handlers.Result{New: 1, Duplicates: 1, Conflicts: 1}, total)
					w.requireFirstWon(ms)

					p := w.position(0)
					require.NoError(t, w.store.Reposition(t.Context(), p, 0, uuid.Nil, nil))
					require.Equal(t, handlers.Result{Duplicates: 2, Conflicts: 1}, w.process(ms...),
						"a replay finds the same")
					w.requireFirstWon(ms)
				})
			}
		}
	}
}

// restart is a new process: nothing in memory outlives it.
func (w *ward) restart() {
	w.store = w.open()
	w.inbox = operate.Of(w.store)
	w.processor = w.newProcessor("book")
	clear(w.positions)
}

func (w *ward) requireFirstWon(ms []dedup.Message) {
	w.t.Helper()
	require.Equal(w.t, 1, w.count(`select count(*) from effects where value = $1`, ms[0].Value))
	require.Equal(w.t, 1, w.count(`select count(*) from effects`))
	conflicts, next, err := w.inbox.Conflicts(w.t.Context(), operate.Filter{}, "", 10)
	require.NoError(w.t, err)
	require.Empty(w.t, next)
	require.Len(w.t, conflicts, 1)
	c := conflicts[0]
	require.Equal(w.t, []any{"orders-inbox", "book"}, []any{c.Inbox, c.Handler})
	c.Message.Timestamp = ms[1].Timestamp
	require.Equal(w.t, ms[1], c.Message)
	winner, err := w.inbox.Winner(w.t.Context(), c)
	require.NoError(w.t, err)
	require.Equal(w.t, ms[0].Value, winner.Message.Value)
	require.Zero(w.t, winner.Message.Offset)
}

func TestWinnerOfAConflictIsFoundWhateverBecameOfIt(t *testing.T) {
	w := newWard(t)
	ms := copies(identity.FingerprintBytes)
	w.failFirst(ms[0])
	require.Equal(t, 1, w.process(ms[1]).Conflicts)
	conflicts, _, err := w.inbox.Conflicts(t.Context(), operate.Filter{IDs: []uuid.UUID{ms[0].ID}}, "", 10)
	require.NoError(t, err)
	requireWinner := func(state dedup.State) {
		t.Helper()
		winner, err := w.inbox.Winner(t.Context(), conflicts[0])
		require.NoError(t, err)
		require.Equal(t, state, winner.State)
		require.Equal(t, ms[0].Value, winner.Message.Value)
	}
	requireWinner(dedup.Parked)
	w.exec(`update firstseen.lanes set due_at = now()`)
	w.settle() // with one attempt: it dies
	requireWinner(dedup.Dead)
	w.handler.mend()
	w.redrive(operate.Filter{})
	w.settle()
	requireWinner(dedup.Processed)
	w.exec(`delete from firstseen.inbox`)
	winner, err := w.inbox.Winner(t.Context(), conflicts[0])
	require.NoError(t, err)
	require.Nil(t, winner)
}

func TestOtherContentUnderADeadLettersIDIsAConflictAndTheSameAMereCopy(t *testing.T) {
	w := newWard(t)
	ms := copies(identity.FingerprintBytes)
	w.kill(ms[0])
	require.Equal(t, handlers.Result{Conflicts: 1}, w.process(ms[1]))
	require.Equal(t, handlers.Result{Buried: 1}, w.process(ms[2]))
	require.NoError(t, w.store.Reposition(t.Context(), w.position(0), 0, uuid.Nil, nil))
	require.Equal(t, handlers.Result{Conflicts: 1, Buried: 2}, w.process(ms...), "replayed in one batch")
	conflicts, _, err := w.inbox.Conflicts(t.Context(), operate.Filter{}, "", 10)
	require.NoError(t, err)
	require.Len(t, conflicts, 1)
	require.Equal(t, ms[1].Value, conflicts[0].Message.Value)
	winner, err := w.inbox.Winner(t.Context(), conflicts[0])
	require.NoError(t, err)
	require.Equal(t, dedup.Dead, winner.State)
	require.Equal(t, ms[0].Value, winner.Message.Value)
}

func TestConflictsArePagedAndFiltered(t *testing.T) {
	w := newWard(t)
	first := message(0, "k")
	first.Fingerprint = identity.FingerprintBytes.Of(first.Value)
	ms := []dedup.Message{first}
	for n := range int64(7) {
		m := message(n+1, "k")
		m.ID, m.Fingerprint = first.ID, identity.FingerprintBytes.Of(m.Value)
		ms = append(ms, m)
	}
	require.Equal(t, 7, w.process(ms...).Conflicts)
	var got []int64
	var after operate.Cursor
	for pages := 0; pages == 0 || after != ""; pages++ {
		conflicts, next, err := w.inbox.Conflicts(t.Context(),
			operate.Filter{Topic: "orders", Key: []byte("k"), Reason: "does not count"}, after, 3)
		require.NoError(t, err)
		for _, c := range conflicts {
			got = append(got, c.Message.Offset)
		}
		after = next
	}
	require.Equal(t, []int64{7, 6, 5, 4, 3, 2, 1}, got)
	require.True(t, slices.IsSortedFunc(got, func(a, b int64) int { return int(b - a) }))
	for _, wrong := range []operate.Cursor{"x", "c1.2.3", "c1.2.x.4.5.t", "d1.2"} {
		_, _, err := w.inbox.Conflicts(t.Context(), operate.Filter{}, wrong, 3)
		require.ErrorContains(t, err, "cursor")
	}
	conflicts, _, err := w.inbox.Conflicts(t.Context(), operate.Filter{Handler: "ship"}, "", 3)
	require.NoError(t, err)
	require.Empty(t, conflicts)
}

func TestExplainTakesNoMoreOfCopiesThanAPage(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	first := message(0, "k")
	ms := []dedup.Message{first}
	const size = 1 << 20
	for i := range 20 {
		m := first
		m.Offset, m.Value = int64(i+1), slices.Repeat([]byte{byte(i)}, size)
		m.Fingerprint = identity.FingerprintBytes.Of(m.Value)
		ms = append(ms, m)
	}
	ms[0].Fingerprint = identity.FingerprintBytes.Of(ms[0].Value)
	require.Equal(t, 20, w.process(ms...).Conflicts)
	e, err := w.inbox.ExplainID(t.Context(), first.ID)
	require.NoError(t, err)
	require.Len(t, e.Seen, 1)
	require.True(t, e.Seen[0].MoreConflicts)
	require.Len(t, e.Seen[0].Conflicts, 15, "their keys and headers count too")
	require.Contains(t, e.Sentences[len(e.Sentences)-1], "at least 15 copies with another content")
}
