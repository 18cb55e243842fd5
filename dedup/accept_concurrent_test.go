package dedup_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
)

func TestTwinsInTwoBatchesAtOnceHaveOneNew(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]bool{"first commits": true, "first rolls back": false} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			id := uuid.New()
			first, second := s.batch(s.position(0), id), s.batch(s.position(1), id)
			tx, err := s.store.Accept(t.Context(), first)
			require.NoError(t, err)
			require.Equal(t, repeat(isNew, 1), outcomes(first))
			var group errgroup.Group
			group.Go(func() error {
				tx, err := s.store.Accept(context.Background(), second)
				if err != nil {
					return err
				}
				return tx.Commit(context.Background())
			})
			awaitLockWait(t, s.admin)
			if commit {
				require.NoError(t, tx.Commit(t.Context()))
			} else {
				tx.Rollback(t.Context())
			}
			require.NoError(t, group.Wait())
			require.Equal(t, !commit, second.Entries[0].Outcome == isNew, "the second waits and then knows")
			s.requireRows(1)
		})
	}
}

func TestOverlappingBatchesInOppositeOrderNeverDeadlock(t *testing.T) {
	t.Parallel()
	const rounds, size = 200, 50
	s := newStage(t)
	positions := []*dedup.Position{s.position(0), s.position(1)}
	for round := range rounds {
		ids := newIDs(size)
		reversed := slices.Clone(ids)
		slices.Reverse(reversed)
		batches := []*dedup.Batch{s.batch(positions[0], ids...), s.batch(positions[1], reversed...)}
		var group errgroup.Group
		var start sync.WaitGroup
		start.Add(len(batches))
		for _, b := range batches {
			group.Go(func() error {
				start.Done()
				start.Wait()
				tx, err := s.store.Accept(context.Background(), b)
				if err != nil {
					return err
				}
				return tx.Commit(context.Background())
			})
		}
		require.NoError(t, group.Wait(), "round %d", round)
		for i := range size {
			require.NotEqual(t, batches[0].Entries[i].Outcome, batches[1].Entries[size-1-i].Outcome,
				"exactly one is new")
		}
	}
	s.requireRows(rounds * size)
}
