package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/handlertest"
	"github.com/firstseen/firstseen/handlers/outbox"
)

func TestHandlerSendsOnceAndNothingForAMessageThatItFailsOn(t *testing.T) {
	p := newPlace(t)
	broken := errors.New("broken")
	fails := true
	h := handlers.Each(outbox.Handler(&writer,
		func(ctx context.Context, tx pgx.Tx, m dedup.Message) ([]outbox.Message, error) {
			if _, err := tx.Exec(ctx, `insert into orders values ('o-1')`); err != nil {
				return nil, err
			}
			send := []outbox.Message{{Topic: "a", Value: m.Value}, {Topic: "b", Value: m.Value}}
			if fails {
				return send, broken
			}
			return send, nil
		}))
	m := dedup.Message{ID: uuid.New(), Value: []byte("x")}
	require.ErrorIs(t, handlertest.Handle(t, p.Pool, h, m), broken)
	require.Zero(t, p.rows())
	fails = false
	for range 2 {
		require.NoError(t, handlertest.Handle(t, p.Pool, h, m))
	}
	require.Equal(t, 2, p.rows())
	require.Equal(t, 1, p.count(`select count(*) from orders`))
}
