package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/instruments"
)

// Batch is a run of messages of one partition.
type Batch struct {
	// Position moves to Next when the batch commits.
	Position *dedup.Position
	Next     int64
	// LeaderEpoch is that of the last message before Next; nil: not known. See dedup.Batch.
	LeaderEpoch *int32
	// Messages are in the order of their offsets. Empty: the position moves over what the broker keeps for
	// itself.
	Messages []dedup.Message
	// Replayed says that the messages are read again, after newer ones: see dedup.Batch. That a handler is paused does not
	// concern them.
	Replayed bool
	// Apart says that one of the messages may take down what handles it. No handler is called for those that are new: they are
	// parked, and workers of lanes handle each by itself.
	Apart bool
}

// Result counts what became of a batch's messages, each once for every handler of its topic.
type Result struct {
	// New messages were handled.
	New int
	// Duplicates were seen before.
	Duplicates int
	// Parked messages wait in their lane: their handler failed, an earlier one of their key is unfinished, or their
	// handler is a detached one, or paused.
	Parked int
	// Dead messages went to the dead letters: they have no usable ID, or their handler gave them up.
	Dead int
	// Conflicts came under an ID that was seen with another content.
	Conflicts int
	// Buried messages are copies of dead letters.
	Buried int
}

// ErrNoID is returned where a message has no ID, or one that stands for none: all but the first of them would be taken for
// its copies. Find one by identity.Rule, or say by dedup.Message.Refuse that there is none.
var ErrNoID = errors.New("the message's ID is the nil or the max UUID, which stand for no ID")

// Process takes one batch through its transaction. A message that its handler fails on is parked for later or, where
// that is hopeless, goes to the dead letters; the others commit. On error nothing of the batch has taken effect, with
// one exception: where the connection broke during the commit it is unknown, and the next call from the same position
// returns a *dedup.MovedError if it did.
//
// Errors: dedup.ErrFenced and *dedup.MovedError; ErrNoID where a message was never given an ID; anything else is Postgres or
// the way to it, and no attempt is counted.
func (p *Processor) Process(ctx context.Context, b Batch) (Result, error) {
	var targets []*registered
	if len(b.Messages) > 0 {
		topic := b.Messages[0].Topic
		if targets = p.cfg.Handlers.byTopic[topic]; len(targets) == 0 {
			return Result{}, fmt.Errorf("process %s: the topic has no handler", topic)
		}
	}
	for i := range b.Messages {
		if m := &b.Messages[i]; m.ID == uuid.Nil || m.ID == uuid.Max {
			return Result{}, fmt.Errorf("process %s/%d@%d: %w", m.Topic, m.Partition, m.Offset, ErrNoID)
		}
	}
	var result Result
	defer p.work.begin()()
	err := p.again(ctx, len(b.Messages)*len(targets), func(known *findings) (err error) {
		result, err = p.once(ctx, b, targets, known)
		return err
	})
	if err != nil && len(b.Messages) > 0 {
		p.work.failed(spanOf(&b.Messages[0], &b.Messages[len(b.Messages)-1]), err, targets...)
	}
	if err == nil && result.Parked > 0 {
		p.wakes.ring(targets)
	}
	return result, err
}

// findings are what transactions over the same messages have found out before they were lost.
type findings struct {
	failed   map[messageOf]error // messages that cost a transaction
	apart    map[messageOf]bool  // one of them took a handler's whole time: each is to be handled by itself, in its lane
	alone    bool                // it is not known which message does: handle them one at a time
	deferred bool                // the commit failed: check after each call what would be checked there
	patient  bool                // the transaction has met three deadlocks: they are the handler's failure now
}

// again runs a transaction until it is through or fails in a way that only time can mend: anew after a deadlock, and
// anew, with what was found out, after a handler that cost it. Each loss settles a message or has them handled
// alone, so that there is an end.
func (p *Processor) again(ctx context.Context, messages int, transaction func(*findings) error) error {
	known := &findings{failed: map[messageOf]error{}, apart: map[messageOf]bool{}}
	concurrent := 0
	for range 2*messages + 8 {
		err := transaction(known)
		var lost *lostError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &lost) && lost.atCommit && known.alone && known.deferred:
			return err
		case errors.As(err, &lost) && lost.atCommit:
			known.alone, known.deferred = known.alone || known.deferred, true
		case errors.As(err, &lost) && lost.apart != nil:
			for _, of := range lost.apart {
				known.apart[of] = true
			}
		case errors.As(err, &lost) && lost.of != messageOf{}:
			known.failed[lost.of] = lost.err
		case errors.As(err, &lost):
			known.alone = true
		case errors.As(err, new(*repeatError)), classify(ctx, err, false) == ofConcurrency:
			concurrent++
			known.patient = concurrent >= 3
		default:
			return err
		}
	}
	return errors.New("the batch's transaction was lost again and again")
}

// once is one transaction over a batch.
func (p *Processor) once(ctx context.Context, b Batch, targets []*registered, known *findings) (Result, error) {
	batch := &dedup.Batch{Position: b.Position, Next: b.Next, LeaderEpoch: b.LeaderEpoch, Replayed: b.Replayed}
	var err error
	if batch.Entries, err = entries(ctx, b.Messages, targets, p.cfg.Store.Scopes); err != nil {
		return Result{}, err
	}
	tx, err := p.accept(ctx, batch)
	if err != nil {
		return Result{}, err
	}
	defer tx.Rollback(ctx)
	p.cfg.Observe(StageAccepted)
	unkept := false
	var failing []*run
	for i, target := range targets {
		why, stops := p.circuits[target].stops()
		stops = stops && target.detached == nil
		parks := stops || b.Apart || target.detached != nil || !b.Replayed && p.rests(target)
		mine := batch.Entries[i*len(b.Messages) : (i+1)*len(b.Messages)]
		todo, joined, err := p.todo(ctx, tx, target, mine, parks)
		if err != nil {
			return Result{}, err
		}
		setApart(mine, b.Apart && target.detached == nil)
		if stops {
			excuse(mine, why)
		}
		r := &run{p: p, tx: tx, target: target, pace: &target.pace, all: b.Messages, unkept: unkept || joined, known: known}
		if err := r.handle(ctx, todo); err != nil {
			return Result{}, err
		}
		unkept = r.unkept
		if r.tries != nil {
			failing = append(failing, r)
		}
	}
	p.cfg.Observe(StageHandled)
	if err := p.commit(ctx, tx); err != nil {
		return Result{}, err
	}
	p.cfg.Observe(StageCommitted)
	return p.committed(b.Messages, batch.Entries, targets, failing), nil
}

func (p *Processor) accept(ctx context.Context, batch *dedup.Batch) (*dedup.Tx, error) {
	ctx, span := p.telemetry.child(ctx, "accept")
	tx, err := p.cfg.Store.Accept(ctx, batch)
	instruments.End(span, err)
	return tx, err
}

// commit ends a transaction. What a handler left to the commit may fail there: a deferred constraint, say. That costs
// the transaction.
func (p *Processor) commit(ctx context.Context, tx *dedup.Tx) error {
	ctx, span := p.telemetry.child(ctx, "commit")
	err := tx.Commit(ctx)
	instruments.End(span, err)
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case classify(ctx, err, true) != ofHandler:
		return err
	case errors.As(err, &pg), errors.Is(err, dedup.ErrBusy), errors.Is(err, dedup.ErrAborted):
		return &lostError{atCommit: true, err: err}
	}
	return err
}

// excuse says of messages that were parked unseen why they wait.
func excuse(entries []dedup.Entry, why string) {
	for i := range entries {
		if e := &entries[i]; e.Outcome == dedup.New && e.State == dedup.Parked {
			e.Reason, e.Error = reasonUnavailable, why
		}
	}
}

// todo gives the entries that the handler is to see now. The others are settled: copies, messages without an ID,
// messages that have to wait behind an unfinished one, and all of a handler that parks: a detached one, or one that rests.
// joined says that lanes are locked, which an Undo must not undo.
func (p *Processor) todo(ctx context.Context, tx *dedup.Tx, target *registered, entries []dedup.Entry, parks bool) (todo []*dedup.Entry, joined bool, err error) {
	todo = make([]*dedup.Entry, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Outcome != dedup.New, e.State == dedup.Dead:
			continue
		case e.Message.Reason != "":
			e.State, e.Reason, e.Error, e.Lane = dedup.Dead, string(e.Message.Reason), e.Message.Sought, e.Message.ID
			continue
		case parks:
			e.Lane = target.ordering.Lane(e.Message)
			e.Park(0)
			continue
		}
		todo = append(todo, e)
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

// setApart has parked messages be handled by themselves. A detached handler's are anyway.
func setApart(entries []dedup.Entry, apart bool) {
	for i := range entries {
		entries[i].Alone = apart && entries[i].State == dedup.Parked
	}
}

// scoping gives the number of each scope, in the order of keys.
type scoping func(ctx context.Context, keys []dedup.ScopeKey) ([]int32, error)

// entries lays out the messages once for each handler: all of the first handler, then all of the second.
func entries(ctx context.Context, ms []dedup.Message, targets []*registered, scopesOf scoping) ([]dedup.Entry, error) {
	entries := make([]dedup.Entry, 0, len(ms)*len(targets))
	if len(ms) == 0 {
		return entries, nil
	}
	tenants, ofMessage := tenantsOf(ms)
	keys := make([]dedup.ScopeKey, 0, len(tenants)*len(targets))
	for _, target := range targets {
		for _, tenant := range tenants {
			keys = append(keys, dedup.ScopeKey{Handler: target.name, Tenant: tenant})
		}
	}
	scopes, err := scopesOf(ctx, keys)
	if err != nil {
		return nil, err
	}
	for t := range targets {
		for i := range ms {
			scope := scopes[t*len(tenants)+ofMessage(i)]
			entries = append(entries, dedup.Entry{Scope: scope, Message: &ms[i]})
		}
	}
	return entries, nil
}

// tenantsOf lists the tenants of a batch, and gives the place of each message's tenant in that list.
func tenantsOf(ms []dedup.Message) (tenants []string, ofMessage func(i int) int) {
	places := map[string]int{}
	for i := range ms {
		if i > 0 && ms[i].Tenant == ms[i-1].Tenant {
			continue
		}
		if _, ok := places[ms[i].Tenant]; !ok {
			places[ms[i].Tenant] = len(tenants)
			tenants = append(tenants, ms[i].Tenant)
		}
	}
	if len(tenants) == 1 {
		return tenants, func(int) int { return 0 }
	}
	return tenants, func(i int) int { return places[ms[i].Tenant] }
}

func count(entries []dedup.Entry) Result {
	var r Result
	for i := range entries {
		switch e := &entries[i]; {
		case e.Outcome == dedup.Conflict:
			r.Conflicts++
		case e.Outcome == dedup.Buried:
			r.Buried++
		case e.Outcome == dedup.Duplicate:
			r.Duplicates++
		case e.State == dedup.Parked:
			r.Parked++
		case e.State == dedup.Dead:
			r.Dead++
		default:
			r.New++
		}
	}
	return r
}
