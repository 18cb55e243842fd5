package handlertest_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/handlertest"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }

var errFull = errors.New("full")

// fill inserts the value, and fails with the first of two.
func fill() handlers.BatchHandler {
	tries := 0
	return handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if _, err := tx.Exec(ctx, `insert into effects values ($1)`, string(m.Value)); err != nil {
			return err
		}
		if tries++; tries == 1 {
			return errFull
		}
		return nil
	}))
}

func TestHandlerTakesEffectOnceAndNotWhereItFails(t *testing.T) {
	db := deduptest.New(t)
	_, err := db.Pool.Exec(t.Context(), `create table effects (value text)`)
	require.NoError(t, err)
	h, m := fill(), dedup.Message{ID: uuid.New(), Value: []byte("x")}
	require.ErrorIs(t, handlertest.Handle(t, db.Pool, h, m), errFull)
	for range 2 {
		require.NoError(t, handlertest.Handle(t, db.Pool, h, m))
	}
	var effects int
	require.NoError(t, db.Pool.QueryRow(t.Context(), `select count(*) from effects`).Scan(&effects))
	require.Equal(t, 1, effects)
}

func TestErrorOfTheCommitIsReturned(t *testing.T) {
	db := deduptest.New(t)
	_, err := db.Pool.Exec(t.Context(), `create table effects (value text unique deferrable initially deferred)`)
	require.NoError(t, err)
	h := handlers.Queue(handlers.QueuedFunc(func(b *pgx.Batch, _ dedup.Message) error {
		b.Queue(`insert into effects values ('a'), ('a')`)
		return nil
	}))
	require.ErrorContains(t, handlertest.Handle(t, db.Pool, h, dedup.Message{}), "effects_value_key")
}
