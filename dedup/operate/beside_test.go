package operate_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// Two consumers of one inbox read the same messages: a group and a replay, say. Each has a position of its own.
func TestConsumersBesideEachOtherKeepTheOrderOfAKey(t *testing.T) {
	for name, replayed := range map[string]bool{"two groups": false, "a replay": true} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			first, second := w.position(0), w.begin("beside")
			a, b := message(0, "a"), message(1, "b")
			require.Equal(t, handlers.Result{New: 1}, w.processAt(first, false, a))
			require.Equal(t, handlers.Result{Duplicates: 1, New: 1}, w.processAt(second, replayed, a, b))
			require.Equal(t, handlers.Result{Duplicates: 1}, w.processAt(first, false, b))
			require.Zero(t, w.count(`select count(*) from firstseen.positions where has_lanes`),
				"both know that nothing is parked")
			sick, later, last := message(2, "k"), message(3, "k"), message(4, "k")
			w.retry = handlers.Retry{MaxAttempts: 5}
			w.processor = w.newProcessor("book")
			w.handler.fails(sick.ID)
			require.Equal(t, handlers.Result{Parked: 1}, w.processAt(first, false, sick))
			require.Equal(t, handlers.Result{Duplicates: 1}, w.processAt(second, replayed, sick))
			require.Equal(t, handlers.Result{Parked: 1}, w.processAt(second, replayed, later),
				"one before it is unfinished")
			require.Equal(t, handlers.Result{Duplicates: 1, Parked: 1}, w.processAt(first, false, later, last))
			w.handler.mend()
			w.settle()
			require.Equal(t, []int64{0, 1, 2, 3, 4}, w.effects("book"))
		})
	}
}

// begin is a position of another consumer, at 0.
func (w *ward) begin(consumer string) *dedup.Position {
	w.t.Helper()
	p, err := w.store.Acquire(w.t.Context(), consumer, "orders", 0, "host-2")
	require.NoError(w.t, err)
	require.NoError(w.t, w.store.Reposition(w.t.Context(), p, 0, uuid.Nil, nil))
	return p
}

func (w *ward) processAt(p *dedup.Position, replayed bool, ms ...dedup.Message) handlers.Result {
	w.t.Helper()
	r, err := w.processor.Process(w.t.Context(), handlers.Batch{Position: p, Next: ms[len(ms)-1].Offset + 1,
		Messages: ms, Replayed: replayed})
	require.NoError(w.t, err)
	return r
}
