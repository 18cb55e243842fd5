package handlers

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// isolate is [run.handle] for a handler that has failed lately, or has cost a transaction over these messages.
func (r *run) isolate(ctx context.Context, entries []*dedup.Entry) (err error) {
	s := r.isolation()
	entries = s.SetApart(entries)
	ctx, span := r.p.telemetry.turn(ctx, r.target, len(entries))
	defer func() { endTurn(span, s.Tries.Sum(), len(entries), err) }()
	defer r.take(s)
	return s.Handle(ctx, entries)
}

// isolateFailed goes on where a call has failed, of n entries behind those that are done, of which some are kept.
func (r *run) isolateFailed(ctx context.Context, entries []*dedup.Entry, done, n, kept int, cause error) error {
	s := r.isolation()
	defer r.take(s)
	return s.GoOn(ctx, entries, done, n, kept, cause)
}

func (r *run) isolation() *isolate.Isolation {
	r.Log = r.p.cfg.Logger.With("handler", r.target.name)
	return isolate.New(r, r.Turn)
}

// take takes what failed in an isolation.
func (r *run) take(s *isolate.Isolation) { r.tries, r.away = s.Tries, s.Away }

// Call makes a call for an isolation. See [isolate.Handler] for this and what follows.
func (r *run) Call(ctx context.Context, undo bool, stretches [][]*dedup.Entry) (kept int, err error) {
	messages := make([][]dedup.Message, len(stretches))
	for i, entries := range stretches {
		messages[i] = r.messagesOf(entries)
	}
	return r.p.call(ctx, r.tx, r.target, r.attempt(undo, messages...))
}

// Meaning classifies an error of a call.
func (r *run) Meaning(ctx context.Context, err error) (isolate.Kind, error) {
	kind := classify(ctx, err, r.tx.Disconnected())
	switch kind {
	case isolate.OfInfrastructure:
		err = saysEnded(err, r.tx.Disconnected())
	case isolate.OfDependency:
		err = &isolate.AwayError{Err: err}
	}
	return kind, err
}

// IsAbout looks for a [MessageError].
func (r *run) IsAbout(err error, m *dedup.Message) bool {
	var about *MessageError
	return errors.As(err, &about) &&
		m.Topic == about.Topic && m.Partition == about.Partition && m.Offset == about.Offset
}

// Lane is by the handler's ordering.
func (r *run) Lane(m *dedup.Message) uuid.UUID { return r.target.ordering.Lane(m) }

// Decide is by the handler's retries.
func (r *run) Decide(e *dedup.Entry, err error) {
	r.target.retry.fail(e, err)
	e.Alone = handledAlone(err)
}

// PutOff says that what the handler needs is away.
func (r *run) PutOff(e *dedup.Entry, outage error) {
	e.Reason, e.Error = reasonUnavailable, clip(outage)
	e.Park(0)
}

// Outage asks the handler's circuit.
func (r *run) Outage(row []isolate.Message, passed bool, err error) (counts error, begun bool) {
	circuit := r.p.circuits[r.target]
	begun = len(row) >= outageAfter || !passed && circuit.opensWith(row)
	if circuit.counts(row[len(row)-1]) {
		return err, begun
	}
	return Unavailable(err), begun
}

// Tell logs a try that has failed.
func (r *run) Tell(ctx context.Context, e *dedup.Entry, err error) {
	handler, message := slog.String("handler", r.target.name), slog.String("message", e.Message.Place())
	r.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "handler failed", handler, message,
		slog.String("state", e.Reason), slog.Int("attempts", e.Attempts), slog.String("error", e.Error))
	if p := (*PanicError)(nil); errors.As(err, &p) {
		r.p.cfg.Logger.ErrorContext(ctx, "handler panicked", handler, message, "stack", string(p.Stack))
	}
}

// transactAgain goes on where a batch's transaction has failed.
func (p *Processor) transactAgain(ctx context.Context, b *Batch, targets []*registered, err error) (Result, error) {
	var result Result
	err = isolate.Again(ctx, err, len(b.Messages)*len(targets), concurrent, func(known *isolate.Findings) (err error) {
		result, err = p.transact(ctx, b, targets, known)
		return err
	})
	if err != nil && len(b.Messages) > 0 {
		p.work.failed(spanOf(&b.Messages[0], &b.Messages[len(b.Messages)-1]), err, targets...)
	}
	return result, err
}

// concurrent says of an error of a transaction that it is gone when the transaction runs again.
func concurrent(ctx context.Context, err error) bool {
	return classify(ctx, err, false) == isolate.OfConcurrency
}
