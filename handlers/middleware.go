package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
)

// Timed tells took, after each message, how long its handler took and what it returned. Metrics by handler are there
// without it: see package dedup/instruments.
func Timed(h Handler, took func(ctx context.Context, m dedup.Message, d time.Duration, err error)) Handler {
	return HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		began := time.Now()
		err := h.Handle(ctx, tx, m)
		took(ctx, m, time.Since(began), err)
		return err
	})
}

// Logged logs each message that is handled, at level Debug: its ID, its place and how long it took; never its content.
// One that fails is logged by the Processor.
func Logged(h Handler, log *slog.Logger) Handler {
	return Timed(h, func(ctx context.Context, m dedup.Message, d time.Duration, err error) {
		if err == nil {
			log.DebugContext(ctx, "message handled", "id", m.ID, "message", m.Place(), "took", d)
		}
	})
}

// ForTenant sets a parameter of Postgres, such as app.tenant, to each message's tenant before it is handled, which
// policies of row security read with current_setting('app.tenant'). It costs a round trip. The parameter is put back
// when the transaction ends; until then other handlers of the topic find it set.
func ForTenant(h Handler, parameter string) Handler {
	return HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if err := setTenant(ctx, tx, parameter, m.Tenant); err != nil {
			return err
		}
		return h.Handle(ctx, tx, m)
	})
}

// ForTenants is ForTenant for a handler that takes a batch: it is called for one tenant's messages after the other's, in
// the order of their offsets, as often as the tenant changes, with a round trip before each call. A Queued handler sets
// the parameter in its own round trip, by b.Queue("select set_config($1, $2, true)", parameter, m.Tenant).
func ForTenants(h BatchHandler, parameter string) BatchHandler {
	return BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		for len(ms) > 0 {
			n := 1
			for n < len(ms) && ms[n].Tenant == ms[0].Tenant {
				n++
			}
			if err := setTenant(ctx, tx, parameter, ms[0].Tenant); err != nil {
				return err
			}
			if err := h.HandleBatch(ctx, tx, ms[:n]); err != nil {
				return err
			}
			ms = ms[n:]
		}
		return nil
	})
}

func setTenant(ctx context.Context, tx pgx.Tx, parameter, tenant string) error {
	if _, err := tx.Exec(ctx, `select set_config($1, $2, true)`, parameter, tenant); err != nil {
		return fmt.Errorf("set %s to the tenant: %w", parameter, err)
	}
	return nil
}
