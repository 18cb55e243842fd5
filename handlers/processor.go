package handlers

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// Process takes one batch through its transaction. A message that its handler fails on is parked for later or, where
// that is hopeless, goes to the dead letters; the others commit. On error nothing of the batch has taken effect, with
// one exception: where the connection broke during the commit it is unknown, and the next call from the same position
// returns a *dedup.MovedError if it did.
//
// Errors: dedup.ErrFenced and *dedup.MovedError; ErrNoID where a message was never given an ID; anything else is
// Postgres or the way to it, and no attempt is counted.
func (p *Processor) Process(ctx context.Context, b Batch) (Result, error) {
	targets, err := p.targets(&b)
	if err != nil {
		return Result{}, err
	}
	defer p.work.begin()()
	result, err := p.transact(ctx, &b, targets, nil)
	if err != nil {
		result, err = p.transactAgain(ctx, &b, targets, err)
	}
	if result.Parked > 0 {
		p.wakes.ring(targets)
	}
	return result, err
}

func (p *Processor) targets(b *Batch) ([]*registered, error) {
	ms := b.Messages
	if len(ms) == 0 {
		return nil, nil
	}
	targets := p.cfg.Handlers.only(b.Only, ms[0].Topic)
	if len(targets) == 0 {
		return nil, fmt.Errorf("process %s: %w", ms[0].Topic, noHandler(b.Only))
	}
	for i := range ms {
		if m := &ms[i]; m.ID == uuid.Nil || m.ID == uuid.Max {
			return nil, fmt.Errorf("process %s/%d@%d: %w", m.Topic, m.Partition, m.Offset, ErrNoID)
		}
	}
	return targets, nil
}

// transact is one transaction over a batch. known is what was found out by those that were lost; nil: none was.
func (p *Processor) transact(ctx context.Context, b *Batch, targets []*registered, known *isolate.Findings) (
	Result, error) {
	entries, server, err := entries(ctx, b.Messages, targets, p.cfg.Store.Scopes)
	if err != nil {
		return Result{}, err
	}
	tx, err := p.accept(ctx, &dedup.Batch{Position: b.Position, Next: b.Next, LeaderEpoch: b.LeaderEpoch,
		Entries: entries, Replayed: b.Replayed, Server: server})
	if err != nil {
		return Result{}, err
	}
	defer tx.Rollback(ctx)
	p.cfg.Observe(StageAccepted)
	if some, err := b.created(ctx, tx, entries); err != nil || !some {
		return count(entries), err // and nothing is kept
	}
	if err := inTurn(ctx, tx, b, targets, entries); err != nil {
		return Result{}, err
	}
	runs := make([]run, len(targets))
	savepoint := &isolate.Savepoint{Tx: tx, Unkept: b.Created != nil || b.Position == nil}
	for i, target := range targets {
		todo, joined, err := p.todo(ctx, tx, b, target, entries[i*len(b.Messages):(i+1)*len(b.Messages)])
		if err != nil {
			return Result{}, err
		}
		savepoint.Unkept = savepoint.Unkept || joined
		r := &runs[i]
		*r = run{p: p, tx: tx, target: target, all: b.Messages,
			Turn: isolate.Turn{Savepoint: savepoint, Traits: &target.traits, Pace: &target.pace, Known: known}}
		if err := r.handle(ctx, todo); err != nil {
			return Result{}, err
		}
	}
	p.cfg.Observe(StageHandled)
	if err := p.commit(ctx, tx, known); err != nil {
		return Result{}, err
	}
	p.cfg.Observe(StageCommitted)
	if b.Apart {
		p.work.parkedApart(entries)
	}
	return p.committed(b.Messages, entries, runs), nil
}

func (p *Processor) accept(ctx context.Context, batch *dedup.Batch) (*dedup.Tx, error) {
	ctx, span := p.telemetry.child(ctx, "accept")
	tx, err := p.cfg.Store.Accept(ctx, batch)
	instruments.End(span, err)
	return tx, err
}

// todo gives the entries that the handler is to see now. The others are settled: copies, messages without an ID,
// messages that have to wait behind an unfinished one, and all of a handler that sees none now.
// joined says that lanes are locked, which an Undo must not undo.
func (p *Processor) todo(ctx context.Context, tx *dedup.Tx, b *Batch, target *registered, entries []dedup.Entry) (
	todo []*dedup.Entry, joined bool, err error) {
	how, parks := p.parks(b, target)
	todo = make([]*dedup.Entry, 0, len(entries))
	for i := range entries {
		switch e := &entries[i]; {
		case e.Outcome != dedup.New, e.State == dedup.Dead:
		case e.Message.Reason != "":
			e.State, e.Reason, e.Error, e.Lane = dedup.Dead, string(e.Message.Reason), e.Message.Sought, e.Message.ID
		case parks:
			e.Lane, e.Alone, e.Reason, e.Error = target.ordering.Lane(e.Message), how.alone, how.reason, how.why
			e.Park(0)
		default:
			todo = append(todo, e)
		}
	}
	if !tx.HasLanes() || len(todo) == 0 {
		return todo, false, nil
	}
	for _, e := range todo {
		e.Lane = target.ordering.Lane(e.Message)
	}
	if err := tx.Join(ctx, todo); err != nil {
		return nil, false, fmt.Errorf("look for lanes to join: %w", err)
	}
	n := len(todo)
	todo = slices.DeleteFunc(todo, func(e *dedup.Entry) bool { return e.State == dedup.Parked })
	return todo, len(todo) < n, nil
}

// run is one handler's turn at the messages of one transaction.
type run struct {
	isolate.Turn

	p      *Processor
	tx     *dedup.Tx
	target *registered
	all    []dedup.Message // the batch's, to hand over without a copy where nothing is left out

	tries isolate.Tries
	away  map[isolate.Message]error
}

// handle brings every entry to a state: the handler is called with all of them, and they are processed. Where it
// fails, or has failed lately, it goes on in failing.go. An error means that the transaction must be rolled back.
func (r *run) handle(ctx context.Context, entries []*dedup.Entry) (err error) {
	if len(entries) == 0 {
		return nil
	}
	if s, ok := r.target.handler.(sending); ok {
		return r.send(ctx, s.sender, entries)
	}
	if r.Known != nil || r.Pace.Distance() > 0 || r.Traits.Singly.Load() {
		return r.isolate(ctx, entries)
	}
	ctx, span := r.p.telemetry.turn(ctx, r.target, len(entries))
	defer func() { endTurn(span, r.tries.Sum(), len(entries), err) }()
	for done := 0; done < len(entries); {
		some := entries[done:min(done+r.target.mostAtOnce(), len(entries))]
		if err := r.BeforeCall(ctx); err != nil {
			return err
		}
		if kept, err := r.p.call(ctx, r.tx, r.target, r.attempt(false, r.messagesOf(some))); err != nil {
			return r.isolateFailed(ctx, entries, done, len(some), kept, err)
		}
		r.Handled(len(some))
		for _, e := range some {
			e.State, e.Reason, e.Error = dedup.Processed, "", ""
		}
		done += len(some)
	}
	return nil
}

// commit ends a transaction. What a handler left to the commit may fail there: a deferred constraint, say.
func (p *Processor) commit(ctx context.Context, tx *dedup.Tx, known *isolate.Findings) error {
	ctx, span := p.telemetry.child(ctx, "commit")
	err := tx.Commit(ctx)
	instruments.End(span, err)
	if err != nil {
		return isolate.AtCommit(err, classifyCommit(ctx, err), known)
	}
	return nil
}
