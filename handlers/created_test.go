package handlers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// fromElsewhere are messages without a partition, each with a key of its own.
func fromElsewhere(ids ...uuid.UUID) []dedup.Message {
	return keyed(messages(&dedup.Position{Topic: "orders"}, ids...))
}

// noting is a batch that leaves a row for each message that it creates.
func noting(ms []dedup.Message) handlers.Batch {
	return handlers.Batch{Messages: ms, Created: func(ctx context.Context, tx pgx.Tx, fresh []dedup.Message) error {
		for _, m := range fresh {
			if _, err := tx.Exec(ctx, `insert into effects (handler, "offset") values ('noted', $1)`, m.Offset); err != nil {
				return err
			}
		}
		return nil
	}}
}

func TestWhatABatchNotesOfNewMessagesIsKeptWhateverItsHandlersFailOn(t *testing.T) {
	for name, h := range map[string]handlers.BatchHandler{
		"one at a time": handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			return errors.Join(leaveEffect(ctx, tx, m), failOnOffset(m, 1))
		})),
		"a batch": handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) (err error) {
			for _, m := range ms {
				err = errors.Join(err, leaveEffect(ctx, tx, m), failOnOffset(m, 1))
			}
			return err
		}),
		"a queue": handlers.Queue(handlers.QueuedFunc(func(b *pgx.Batch, m dedup.Message) error {
			b.Queue(`insert into effects (handler, "offset") values ('h', 1 / (1 - $1::int) + $1::int)`, m.Offset)
			return nil
		})),
		"that aborts": handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			if m.Offset == 1 {
				_, _ = tx.Exec(ctx, `select 1 / 0`)
				return nil
			}
			return leaveEffect(ctx, tx, m)
		})),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.register("h", h)
			result, err := s.processor().Process(t.Context(), noting(fromElsewhere(newIDs(3)...)))
			require.NoError(t, err)
			require.Equal(t, handlers.Result{New: 2, Parked: 1}, result)
			require.Equal(t, []int{2, 3}, []int{s.effects("h"), s.effects("noted")})
		})
	}
}

func failOnOffset(m dedup.Message, offset int64) error {
	if m.Offset == offset {
		return errors.New("no")
	}
	return nil
}

func TestABatchNotesOnlyWhatIsNewAndLeavesNothingWhereNothingIs(t *testing.T) {
	s := newStage(t)
	s.register("h", effect("h"))
	ids := newIDs(3)
	_, err := s.processor().Process(t.Context(), noting(fromElsewhere(ids[:2]...)))
	require.NoError(t, err)
	result, err := s.processor().Process(t.Context(), noting(fromElsewhere(ids...)))
	require.NoError(t, err)
	require.Equal(t, handlers.Result{New: 1, Duplicates: 2}, result)
	require.Equal(t, []int{3, 3}, []int{s.effects("h"), s.effects("noted")})
	again := fromElsewhere(ids...)
	again[0].Fingerprint = []byte("0123456789abcdef0123456789abcdef")
	result, err = s.processor().Process(t.Context(), noting(again))
	require.NoError(t, err)
	require.Zero(t, result.New)
	require.Equal(t, []int{3, 3, 0}, []int{s.effects("h"), s.effects("noted"), s.count(`select count(*) from firstseen.conflicts`)})
	s.requireConnection()
}

func TestABatchWhoseNoteFailsTakesNoEffect(t *testing.T) {
	s := newStage(t)
	s.register("h", effect("h"))
	b := noting(fromElsewhere(newIDs(2)...))
	b.Created = func(context.Context, pgx.Tx, []dedup.Message) error { return errors.New("not noted") }
	_, err := s.processor().Process(t.Context(), b)
	require.ErrorContains(t, err, "not noted")
	require.Zero(t, s.effects("h")+s.count(`select count(*) from firstseen.message_dedup`))
	s.requireConnection()
}

func TestAQueuedBatchIsHandledByWorkersOfLanes(t *testing.T) {
	s := newStage(t)
	s.register("h", effect("h"))
	p := s.processor()
	b := noting(fromElsewhere(newIDs(3)...))
	b.Queued = true
	result, err := p.Process(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, handlers.Result{Parked: 3}, result)
	require.Equal(t, []int{0, 3}, []int{s.effects("h"), s.effects("noted")})
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { p.RunLanes(ctx) })
	defer working.Wait()
	defer stop()
	require.Eventually(t, func() bool { return s.effects("h") == 3 }, 3*time.Minute, 5*time.Millisecond)
}
