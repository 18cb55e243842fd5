package outbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// Handler is a handler that returns what is to be sent: w adds it in the handler's transaction, see [Writer.AddAll]. So
// it is sent once what the handler did has committed, and nothing is sent for a message that it fails on.
func Handler(w *Writer, h func(ctx context.Context, tx pgx.Tx, m dedup.Message) ([]Message, error)) handlers.Handler {
	return handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		send, err := h(ctx, tx, m)
		if err == nil {
			_, err = w.AddAll(ctx, tx, send)
		}
		return err
	})
}

// Typed is [Handler] for messages with their values as d reads them: see [handlers.Typed].
func Typed[T any](w *Writer, d handlers.Decoder[T],
	h func(ctx context.Context, tx pgx.Tx, m dedup.Message, v T) ([]Message, error)) handlers.Handler {
	return handlers.Typed(d, func(ctx context.Context, tx pgx.Tx, m dedup.Message, v T) error {
		send, err := h(ctx, tx, m, v)
		if err == nil {
			_, err = w.AddAll(ctx, tx, send)
		}
		return err
	})
}
