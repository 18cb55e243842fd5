package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

const (
	// laneBatch caps the lanes that a worker takes at once, and the messages of them.
	laneBatch = 500
	// laneLease covers the moment between a claim and the transaction that locks the lanes, and is how long the
	// lanes of a worker that died wait.
	laneLease = 5 * time.Second
	// mostClaims caps the claims of a lane that gets nowhere: beyond it its first message is suspected of killing the
	// process. A worker that lives gives its claims back.
	mostClaims = 1
)

// RunLanes works on parked messages until ctx ends: it tries those again whose time has come, each key's in their
// order, and delivers those of detached handlers; and it looks up what operators have paused. Any number of processes
// may do so at once.
func (p *Processor) RunLanes(ctx context.Context) {
	var workers sync.WaitGroup
	defer func() {
		workers.Wait()
		for _, c := range p.circuits {
			c.hold.Leave()
		}
		for _, r := range p.work.of {
			r.hold.Leave()
		}
	}()
	workers.Go(func() { p.followPauses(ctx) })
	for range p.cfg.LaneWorkers {
		workers.Go(func() { p.laneWorker(ctx) })
	}
	for _, target := range p.cfg.Handlers.all {
		if target.detached != nil {
			workers.Go(func() { newDispatcher(p, target).run(ctx) })
		}
	}
}

func (p *Processor) attached() (targets []*registered) {
	for _, target := range p.cfg.Handlers.all {
		if target.detached == nil {
			targets = append(targets, target)
		}
	}
	return targets
}

// laneWorker goes round the handlers while there is work, and sleeps while there is none.
func (p *Processor) laneWorker(ctx context.Context) {
	targets := p.attached()
	poll := time.NewTicker(p.cfg.LanePoll)
	defer poll.Stop()
	pauses, places := make([]pause, len(targets)), make([]*holds.Place, len(targets))
	for i, target := range targets {
		places[i] = p.cfg.Holds.Place(holds.HandlerKind, target.name)
		defer places[i].Leave()
	}
	for len(targets) > 0 && ctx.Err() == nil {
		worked := 0
		for i, target := range targets {
			if time.Now().Before(pauses[i].until) || p.rests(target) {
				continue
			}
			n, err := p.workLanes(ctx, target)
			if err != nil && ctx.Err() == nil {
				pauses[i].lengthen(p.cfg.LanePoll)
				places[i].Wait(holds.OfPostgres(err), fmt.Errorf("parked messages are not worked on: %w", err))
				continue
			}
			places[i].End()
			pauses[i] = pause{}
			worked += n
		}
		if worked > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-p.wakes.attached:
		case <-poll.C:
		}
	}
}

// pause keeps a worker from a handler's lanes after a failure: twice as long as after the one before, up to the lease.
type pause struct {
	length time.Duration
	until  time.Time
}

func (p *pause) lengthen(least time.Duration) {
	p.length = min(max(2*p.length, least), laneLease)
	p.until = time.Now().Add(p.length)
}

// workLanes claims due lanes of one handler and takes them through one transaction; lanes that are set apart, and
// those that were claimed before and got nowhere, each through its own. It returns how many there were.
func (p *Processor) workLanes(ctx context.Context, target *registered) (int, error) {
	p.work.settled(target, isolate.Lane{}) // what others have settled
	circuit := p.circuits[target]
	most := circuit.allows(time.Now(), laneBatch)
	if most == 0 {
		return 0, nil
	}
	claims, err := p.cfg.Store.ClaimLanes(ctx, target.name, most, laneLease)
	if err != nil || len(claims) == 0 {
		return 0, err
	}
	if circuit.starts() {
		defer circuit.untold()
	}
	ordinary, suspects := claims[:0:0], claims[:0:0]
	for _, c := range claims {
		if c.Times > mostClaims {
			suspects = append(suspects, c)
		} else {
			ordinary = append(ordinary, c)
		}
	}
	if len(ordinary) > 0 {
		err := p.workTogether(ctx, target, ordinary)
		switch {
		case err == nil:
		case p.Suspicious(ctx, err):
			p.cfg.Logger.Warn("parked messages failed together though Postgres is well: each is handled by itself",
				"handler", target.name, "lanes", len(ordinary), "error", err)
			suspects = append(ordinary, suspects...)
		default:
			return 0, errors.Join(err, p.release(ctx, claims, laneLease))
		}
	}
	// where these lanes were handled together, so many messages of each were
	if err := p.workSuspects(ctx, target, suspects, laneBatch/len(claims)); err != nil {
		return 0, err
	}
	return len(claims), nil
}

// workTogether has the handler handle the first messages of all claimed lanes, in one transaction.
func (p *Processor) workTogether(ctx context.Context, target *registered, claims []dedup.Claim) error {
	defer p.work.begin()()
	each, of := max(1, laneBatch/len(claims)), span{}
	if p.circuits[target].probes() {
		each = 1
	}
	err := isolate.Run(ctx, each*len(claims), concurrent, func(known *isolate.Findings) error {
		tx, batch, loan, err := p.load(ctx, claims, each)
		if err != nil {
			return err
		}
		defer loan.give()
		defer tx.Rollback(ctx)
		if len(batch.Entries) == 1 {
			of = spanOf(batch.Entries[0].Message, batch.Entries[0].Message)
		}
		r := p.laneRun(tx, target, known)
		return p.retry(ctx, r, batch.Entries, r.handle)
	})
	if err != nil {
		p.work.failed(of, err, target)
	}
	return err
}

// laneRun is a handler's turn at parked messages.
func (p *Processor) laneRun(tx *dedup.Tx, target *registered, known *isolate.Findings) *run {
	return &run{p: p, tx: tx, target: target, Turn: isolate.Turn{
		Savepoint: &isolate.Savepoint{Tx: tx}, Traits: &target.traits, Pace: &target.lanePace, Known: known}}
}

// retry takes parked messages through handle, and to the commit.
func (p *Processor) retry(ctx context.Context, r *run, entries []dedup.Entry,
	handle func(context.Context, []*dedup.Entry) error) (err error) {
	ctx, span := p.telemetry.retry(ctx, r.target, entries)
	defer func() { instruments.End(span, err) }()
	if err = handle(ctx, pointers(entries)); err != nil {
		return err
	}
	if err = p.commit(ctx, r.tx, r.Known); err == nil {
		p.settled(r, entries)
	}
	return err
}

// release gives lanes back after a failure that the process has survived: for a shutdown at once, else in a while.
func (p *Processor) release(ctx context.Context, claims []dedup.Claim, due time.Duration) error {
	if len(claims) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		due = 0
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), laneLease)
	defer cancel()
	return p.cfg.Store.ReleaseLanes(ctx, claims, due)
}

func pointers(entries []dedup.Entry) []*dedup.Entry {
	ps := make([]*dedup.Entry, len(entries))
	for i := range entries {
		ps[i] = &entries[i]
	}
	return ps
}

// wakes are rung when something was parked that is due: one bell for the workers of attached handlers, and one for
// each detached handler, so that none takes another's.
type wakes struct {
	attached chan struct{}
	detached map[*registered]chan struct{}
}

func newWakes(targets []*registered) wakes {
	w := wakes{attached: make(chan struct{}, 1), detached: map[*registered]chan struct{}{}}
	for _, target := range targets {
		if target.detached != nil {
			w.detached[target] = make(chan struct{}, 1)
		}
	}
	return w
}

// ring has the workers of targets look at once.
func (w *wakes) ring(targets []*registered) {
	for _, target := range targets {
		bell := w.attached
		if target.detached != nil {
			bell = w.detached[target]
		}
		select {
		case bell <- struct{}{}:
		default:
		}
	}
}
