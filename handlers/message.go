package handlers

import (
	"context"
	"sync/atomic"

	"github.com/firstseen/firstseen/dedup"
)

type messageKey struct{}

// current is the message that a handler is called for now.
type current struct{ atomic.Pointer[dedup.Message] }

// MessageOf is the message that is being handled, in the context of a [Handler]; nil: it is not known. Who handles
// many at once says which by [WithMessage].
func MessageOf(ctx context.Context) *dedup.Message {
	if now, ok := ctx.Value(messageKey{}).(*current); ok {
		return now.Load()
	}
	return nil
}

// WithMessage is a context in which m is the message that is being handled.
func WithMessage(ctx context.Context, m *dedup.Message) context.Context {
	now := &current{}
	now.Store(m)
	return context.WithValue(ctx, messageKey{}, now)
}
