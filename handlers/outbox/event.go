package outbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// The events of a relay, as they are in the log's attribute "event".
const (
	// EventFetch: messages were taken out of the outbox to be sent.
	EventFetch = "OUTBOX_WORKER_FETCH"
	// EventSuccess: messages were sent, for the first time or again.
	EventSuccess = "OUTBOX_WORKER_DISPATCH_SUCCESS"
	// EventFail: messages could not be sent now.
	EventFail = "OUTBOX_WORKER_DISPATCH_FAIL"
	// EventSkip: messages were settled by another relay since they were read.
	EventSkip = "OUTBOX_WORKER_SKIP_PROCESSED"
	// EventDuplicate: messages have the ID of one that was given up, or that has another content.
	EventDuplicate = "OUTBOX_WORKER_DUPLICATE"
)

// dispatches tells of what a destination's sender has sent, also when it was tried again.
type dispatches struct {
	log  *slog.Logger
	name string
}

func (d dispatches) tell(ctx context.Context, level slog.Level, event string, n int, attrs ...any) {
	if n > 0 {
		d.log.With("event", event, "handler", d.name, "messages", n).Log(ctx, level, "outbox", attrs...)
	}
}

func (d dispatches) sent(ctx context.Context, n, failed int) {
	d.tell(ctx, slog.LevelDebug, EventSuccess, n)
	d.tell(ctx, slog.LevelWarn, EventFail, failed)
}

// toldSender is a sender whose dispatches are told.
type toldSender struct {
	handlers.Sender
	dispatches
}

func (s toldSender) Send(ctx context.Context, ms []dedup.Message) []error {
	errs := s.Sender.Send(ctx, ms)
	failed, untried := 0, 0
	for _, err := range errs {
		switch {
		case errors.Is(err, handlers.ErrUnsent):
			untried++
		case err != nil:
			failed++
		}
	}
	s.sent(ctx, len(ms)-failed-untried, failed)
	return errs
}

// toldDetached is a detached handler whose dispatches are told.
type toldDetached struct {
	handlers.Detached
	dispatches
}

func (s toldDetached) Deliver(ctx context.Context, m dedup.Message) error {
	err := s.Detached.Deliver(ctx, m)
	if err != nil {
		s.sent(ctx, 0, 1)
	} else {
		s.sent(ctx, 1, 0)
	}
	return err
}

// Timeout is the handler's own; 0 where it has none.
func (s toldDetached) Timeout() time.Duration {
	if limited, ok := s.Detached.(handlers.TimeLimited); ok {
		return limited.Timeout()
	}
	return 0
}

// CloseIdleConnections closes those of the handler, where it has any.
func (s toldDetached) CloseIdleConnections() {
	if h, ok := s.Detached.(interface{ CloseIdleConnections() }); ok {
		h.CloseIdleConnections()
	}
}
