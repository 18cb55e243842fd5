package handlers

import (
	"context"
	"fmt"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// inTurn has messages that come from no partition wait for those of their lanes that another transaction is handling:
// of a partition there is one transaction at a time, from elsewhere come many. It comes before the look for lanes to
// join, which then finds what the one before has parked. What workers of lanes will handle needs no turn here.
func inTurn(ctx context.Context, tx *dedup.Tx, b *Batch, targets []*registered, entries []dedup.Entry) error {
	if b.Position != nil || b.Queued || b.Apart {
		return nil
	}
	var first []*dedup.Entry // of each lane
	known := map[isolate.Lane]bool{}
	for i := range entries {
		e, target := &entries[i], targets[i/len(b.Messages)]
		if e.Outcome != dedup.New || target.detached != nil {
			continue
		}
		lane := target.ordering.Lane(e.Message)
		at := isolate.Lane{Scope: e.Scope, Lane: lane}
		if lane != e.Message.ID && !known[at] { // else it waits for none
			known[at], e.Lane = true, lane
			first = append(first, e)
		}
	}
	if len(first) == 0 {
		return nil
	}
	if err := tx.TakeTurns(ctx, first); err != nil {
		return fmt.Errorf("wait for earlier messages of the same lanes: %w", err)
	}
	return nil
}
