// Package handlers runs what a message is for. A batch of decoded messages enters [Processor.Process] and leaves
// as one committed transaction: the message IDs, the inbox rows, the consumer's position and everything that
// the handlers did through the transaction they were given, or none of it.
//
// Three kinds of handlers are registered per topic: a [Handler] takes one message at a time, a [BatchHandler] all
// new messages of a batch at once, and a [Queued] one only queues its SQL, so that a whole batch costs one
// round trip. [SQL] names a Postgres function and needs no Go. [JSON] and [Typed] are handlers that get the value as a
// type of theirs. What goes around a handler is a function that takes one and gives one, within what makes it a
// BatchHandler: Each(Logged(JSON(book), log)).
//
// # Files, in reading order
//
//	handler.go, queue.go, sql.go, sender.go   the kinds of handlers
//	typed.go, json.go, middleware.go          values as a handler's type, what goes around a handler
//	message.go                                which message a handler is called for
//	registry.go, config.go                    which handlers a topic has; what a Processor is made of
//	batch.go, processor.go                    a batch: accept, handle, commit. Where nothing fails that is all
//	entries.go, call.go                       its messages laid out by handler; a call, whatever the handler does
//	turns.go                                  messages from no partition, of which many batches come at once
//	totals.go, window.go, telemetry.go        what became of them: counts, of late, metrics, traces
//	errors.go, retry.go, circuit.go           what an error means, when the next attempt is, what is an outage
//	failing.go                                after a failure: what package isolate is told of the handler
//	lanes.go, loan.go                         workers for parked messages, and the memory that these are loaded into
//	suspect.go, work.go                       messages that take down what handles them, and what tells them apart
//	deliver.go, deliver_results.go            detached handlers: calls outside of any transaction
//	webhook.go, webhook_config.go             a detached handler that posts to a URL
//	pauses.go, preview.go                     what operators have paused; what a batch would come to
package handlers

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
)

// Handler handles one message. What it does through tx takes effect exactly once for a message ID; what it does
// elsewhere may happen more than once. It returns nil when the message is done. It can't commit or roll back
// tx: Begin gives it a savepoint where it needs one. It may be called for many partitions at the same time,
// and for one key only in the order of its offsets.
type Handler interface {
	Handle(ctx context.Context, tx pgx.Tx, m dedup.Message) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, tx pgx.Tx, m dedup.Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	return f(ctx, tx, m)
}

// BatchHandler handles the new messages of a batch, at least one, in the order of their offsets: all of them or,
// by returning an error, none. It keeps neither the slice nor the messages beyond the call.
type BatchHandler interface {
	HandleBatch(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error
}

// BatchHandlerFunc is a function as a BatchHandler.
type BatchHandlerFunc func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error

// HandleBatch calls f.
func (f BatchHandlerFunc) HandleBatch(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
	return f(ctx, tx, ms)
}

// MessageError says which message of a batch a handler could not handle.
type MessageError struct {
	Topic     string
	Partition int32
	Offset    int64
	Err       error
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("message %s/%d@%d: %v", e.Topic, e.Partition, e.Offset, e.Err)
}

func (e *MessageError) Unwrap() error { return e.Err }

func messageError(m *dedup.Message, err error) error {
	return &MessageError{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Err: err}
}

// Each turns a Handler into a BatchHandler that calls it for one message after the other.
func Each(h Handler) BatchHandler { return each{h} }

type each struct{ handler Handler }

func (e each) HandleBatch(ctx context.Context, tx pgx.Tx, ms []dedup.Message) (err error) {
	at := 0
	defer func() {
		if v := recover(); v != nil {
			err = messageError(&ms[at], &PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	timer, now := newTimer(ctx), &current{}
	ctx = context.WithValue(ctx, messageKey{}, now)
	for at = range ms {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now.Store(&ms[at])
		err := e.handler.Handle(ctx, tx, ms[at])
		if err == nil {
			err = check(tx)
		}
		if err != nil {
			return timer.blame(ctx, &ms[at], err)
		}
		timer.since = time.Now()
	}
	return nil
}

// check says whether a handler that reports success has left its transaction whole, while it is known which message
// it was called with.
func check(tx pgx.Tx) error {
	if t, ok := tx.(interface{ Check() error }); ok {
		return t.Check()
	}
	return nil
}

// timer tells a message that is slow from a batch that is.
type timer struct {
	limit time.Duration // of the whole batch
	since time.Time     // the present message was begun
}

func newTimer(ctx context.Context) *timer {
	t := &timer{limit: math.MaxInt64, since: time.Now()}
	if deadline, ok := ctx.Deadline(); ok {
		t.limit = deadline.Sub(t.since)
	}
	return t
}

// blame names the message that an error came up with; where the time was over, only if that message took half of it.
func (t *timer) blame(ctx context.Context, m *dedup.Message, err error) error {
	if ctx.Err() != nil && time.Since(t.since) < t.limit/2 {
		return err
	}
	return messageError(m, err)
}
