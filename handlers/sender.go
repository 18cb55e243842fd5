package handlers

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// Sender hands messages on to another system. What it has sent no rollback takes back, so it says of each message what
// became of it, and within a transaction it is never given a message twice that it has sent or failed on. After a
// crash, or where the commit fails, what was sent is sent again: hand the ID on.
type Sender interface {
	// Send sends messages in their order, and gives an error for each that is not known to have been sent: none for
	// those behind the end of the list. A message is not sent, but given ErrUnsent, while an earlier one of its key was
	// not: its turn comes in the same transaction if that one is dead, and else after it.
	//
	// Permanent, Unavailable and After mean of an error what they do for a handler's; an outage's is as Unavailable.
	// Send keeps neither the slice nor the messages.
	Send(ctx context.Context, ms []dedup.Message) []error
}

// ErrUnsent says of a message that it was not tried: one before it was not sent.
var ErrUnsent = errors.New("not tried: a message before it was not sent")

// Send turns a Sender into a BatchHandler, for Registration.Handler.
func Send(s Sender) BatchHandler { return sending{s} }

type sending struct{ sender Sender }

// HandleBatch sends messages once, and is for whoever is no Processor.
func (s sending) HandleBatch(ctx context.Context, _ pgx.Tx, ms []dedup.Message) error {
	for i, err := range s.sender.Send(ctx, ms) {
		if err != nil {
			return messageError(&ms[i], err)
		}
	}
	return nil
}

// send is [run.handle] for a sender: nothing is undone, and nothing is found out by trying again.
func (r *run) send(ctx context.Context, to Sender, entries []*dedup.Entry) (err error) {
	s := r.isolation()
	entries = s.SetApart(entries)
	ctx, span := r.p.telemetry.turn(ctx, r.target, len(entries))
	defer func(n int) { endTurn(span, s.Tries.Sum(), n, err) }(len(entries))
	defer r.take(s)
	for len(entries) > 0 && err == nil {
		entries, err = r.sendSome(ctx, to, s, entries)
	}
	return err
}

// sendSome makes a call, settles what was tried, and gives the rest.
func (r *run) sendSome(ctx context.Context, to Sender, s *isolate.Isolation, entries []*dedup.Entry) (
	rest []*dedup.Entry, err error) {
	if entries = s.Unsettled(ctx, entries); len(entries) == 0 {
		return nil, nil
	}
	var results []error
	ms := r.messagesOf(entries)
	_, cause := r.p.call(ctx, r.tx, r.target, func(ctx context.Context) (int, error) {
		results = to.Send(ctx, ms)
		return 0, nil
	})
	if cause != nil {
		return nil, r.sendFailed(ctx, s, entries, cause)
	}
	results = append(results, make([]error, max(0, len(entries)-len(results)))...)
	for i, e := range entries {
		switch err := results[i]; {
		case s.Blocked(e):
		case errors.Is(err, ErrUnsent) && i > 0:
			rest = append(rest, e)
		case err != nil:
			s.Fail(ctx, e, r.sendError(ctx, e, err))
		default:
			e.State, e.Reason, e.Error = dedup.Processed, "", ""
		}
	}
	return rest, nil
}

// sendFailed decides on a call that did not say what became of its messages: it panicked, or took all of its time.
// Each is sent by itself then, in its lane.
func (r *run) sendFailed(ctx context.Context, s *isolate.Isolation, entries []*dedup.Entry, cause error) error {
	if kind, cause := r.Meaning(ctx, cause); kind == isolate.OfInfrastructure {
		return cause
	}
	if len(entries) > 1 {
		return s.LostTime(entries, cause)
	}
	if r.tx.Lost() {
		return &isolate.LostError{Of: isolate.Of(entries[0]), Err: cause}
	}
	s.Fail(ctx, entries[0], cause)
	return nil
}

// sendError marks an error of a message that may be an outage's, for the circuit to hear of, and so that it counts no
// attempt unless the message's siblings pass.
func (r *run) sendError(ctx context.Context, e *dedup.Entry, err error) error {
	if errors.As(err, new(*unavailableError)) {
		return &isolate.AwayError{Err: err}
	}
	if kind := classify(ctx, err, false); kind != isolate.OfDependency && kind != isolate.OfInfrastructure {
		return err
	}
	err = &isolate.AwayError{Err: err}
	if r.p.circuits[r.target].counts(isolate.Of(e)) {
		return err
	}
	return Unavailable(err)
}

// Allows caps n messages of a topic at those that are worth processing now: none while it is paused, or one of its
// handlers, or while what one needs is away; and one where that has to be found out. What Process is given all the
// same is parked.
func (p *Processor) Allows(topic string, n int) int {
	if paused, _ := p.Paused(topic, -1); paused {
		return 0
	}
	for _, target := range p.cfg.Handlers.of(topic) {
		if p.rests(target) {
			return 0
		}
		n = p.circuits[target].allows(time.Now(), n)
	}
	return n
}
