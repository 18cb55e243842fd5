package outbox

import (
	"context"
	"log/slog"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// Func is a function as a [handlers.Sender]: it sends one message after the other.
type Func func(ctx context.Context, m dedup.Message) error

// Send calls f for each message, but for those behind one of their key that it has failed on.
func (f Func) Send(ctx context.Context, ms []dedup.Message) []error {
	errs := make([]error, len(ms))
	failed := map[string]bool{}
	for i := range ms {
		if m := &ms[i]; m.Key != nil && failed[string(m.Key)] || ctx.Err() != nil && i > 0 {
			errs[i] = handlers.ErrUnsent
			continue
		}
		if errs[i] = f(ctx, ms[i]); errs[i] != nil && ms[i].Key != nil {
			failed[string(ms[i].Key)] = true
		}
	}
	return errs
}

// Log is a destination that is the log: it says of each message that it came, but nothing that it holds.
func Log(log *slog.Logger) handlers.Sender {
	return Func(func(ctx context.Context, m dedup.Message) error {
		log.InfoContext(ctx, "message of the outbox", "topic", m.Topic, "message_id", m.ID, "tenant", m.Tenant,
			"bytes", m.Size())
		return nil
	})
}
