package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// Detached handles a message outside of any transaction: a call to another system, or anything slow. What it does
// happens at least once, and in rare cases more often: hand m.ID on as an idempotency key.
//
// At shutdown a call may go on for Config.AbandonAfter; then its context ends. A call that ends with it was no
// attempt: the next process makes it. The messages that a killed process was at wait for a lease to end, which is the
// time limit of a call, Config.AbandonAfter and 5 seconds; a call's time limit is Config.HandlerTimeout, or less where
// the handler is TimeLimited.
type Detached interface {
	Deliver(ctx context.Context, m dedup.Message) error
}

// DetachedFunc is a function as a Detached handler.
type DetachedFunc func(ctx context.Context, m dedup.Message) error

// Deliver calls f.
func (f DetachedFunc) Deliver(ctx context.Context, m dedup.Message) error { return f(ctx, m) }

// TimeLimited is a Detached handler that has a time limit of its own for a call. The shorter it is, the sooner others
// take over from a process that was killed.
type TimeLimited interface {
	Timeout() time.Duration
}

// suspiciousCall caps the claims of a lane that gets nowhere: beyond it its first message is suspected of killing the
// process. It is more than for other handlers: many calls are under way when a process dies, and after one death they
// need not be made one by one.
const suspiciousCall = 3

// dispatcher delivers the parked messages of one detached handler. One goroutine claims lanes, starts calls and writes
// down how they ended, several in one transaction where several have; the calls run beside it, so many at once as the
// handler allows, so that a slow one holds up its own lane only. No transaction is open during a call: a lease keeps
// other workers off the lane. Other processes see what was parked here when they next poll; nothing is notified.
type dispatcher struct {
	p       *Processor
	target  *registered
	log     *slog.Logger
	circuit *circuit
	lease   time.Duration

	calls   sync.WaitGroup
	results chan *delivery // of calls that have ended; there is room for all
	running int
	ended   []*delivery // not written down yet
	hold    *holds.Place
}

// delivery is a claimed lane and the call for its first message.
type delivery struct {
	claim   dedup.Claim
	until   time.Time      // the lease's end
	message *dedup.Message // nil where there is none to deliver
	loan    *loan          // for the message
	attempt uuid.UUID      // where it was counted before the call
	counted bool           // so it was
	putOff  bool           // it is not made now
	buried  bool           // it has killed the process too often
	probe   bool           // it tells whether the circuit can close

	tried bool
	err   error
}

func newDispatcher(p *Processor, target *registered) *dispatcher {
	log := p.cfg.Logger.With("handler", target.name)
	return &dispatcher{p: p, target: target, log: log, circuit: p.circuits[target],
		hold:  p.cfg.Holds.Place(holds.HandlerKind, target.name),
		lease: p.timeLimit(target) + p.cfg.AbandonAfter + laneLease, results: make(chan *delivery, target.concurrency)}
}

// timeLimit bounds one call of a detached handler: by its own limit, else by Config.HandlerTimeout.
func (p *Processor) timeLimit(target *registered) time.Duration {
	if limited, ok := target.detached.(TimeLimited); ok && limited.Timeout() > 0 {
		return limited.Timeout()
	}
	return p.cfg.HandlerTimeout
}

// run delivers until ctx ends, and then until what runs has ended and is written down.
func (d *dispatcher) run(ctx context.Context) {
	defer d.closeIdle()
	poll := time.NewTicker(d.p.cfg.LanePoll)
	defer poll.Stop()
	calls, end := lasting(ctx, d.p.cfg.AbandonAfter)
	defer end()
	for ctx.Err() == nil {
		err := errors.Join(d.writeDown(ctx), d.claim(ctx, calls))
		d.note(ctx, err)
		d.wait(ctx.Done(), poll.C)
	}
	d.hold.Leave()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*d.p.cfg.AbandonAfter+laneLease)
	defer cancel()
	for d.running+len(d.ended) > 0 && last.Err() == nil {
		d.note(last, d.writeDown(last))
		if d.running+len(d.ended) > 0 {
			d.wait(last.Done(), poll.C)
		}
	}
	d.calls.Wait()
}

// lasting is a context that ends so long after ctx, or when end is called.
func lasting(ctx context.Context, after time.Duration) (longer context.Context, end func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(after, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() { stop(); cancel() }
}

// closeIdle closes the handler's idle connections, where it has some.
func (d *dispatcher) closeIdle() {
	if h, ok := d.target.detached.(interface{ CloseIdleConnections() }); ok {
		h.CloseIdleConnections()
	}
}

// note begins the hold of an outage of Postgres, or ends it.
func (d *dispatcher) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		d.hold.End()
	case ctx.Err() == nil:
		d.hold.Wait(holds.OfPostgres(err), err)
	}
}

// wait returns when there is something to do: a call has ended, something was parked, it is time to look, or done.
func (d *dispatcher) wait(done <-chan struct{}, poll <-chan time.Time) {
	select {
	case <-done:
	case <-poll:
	case <-d.p.wakes.detached[d.target]:
	case call := <-d.results:
		d.take(call)
	}
	for len(d.results) > 0 {
		d.take(<-d.results)
	}
}

// claim takes due lanes, as many as calls can be started, and starts the calls.
func (d *dispatcher) claim(ctx, calls context.Context) error {
	n := d.circuit.allows(time.Now(), d.target.concurrency-d.running-len(d.ended))
	if n <= 0 || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, laneLease)
	defer cancel()
	until := time.Now().Add(d.lease)
	claims, err := d.p.cfg.Store.ClaimLanes(ctx, d.target.name, n, d.lease)
	if err != nil || len(claims) == 0 {
		return err
	}
	found, loan, err := d.peek(ctx, claims)
	for _, c := range claims {
		m := found[isolate.Lane{Scope: c.Scope, Lane: c.Lane}]
		d.start(calls, &delivery{claim: c, until: until, message: m, loan: loan.split(m)})
	}
	loan.give()
	return err
}

// peek reads the first message of each lane.
func (d *dispatcher) peek(ctx context.Context, claims []dedup.Claim) (map[isolate.Lane]*dedup.Message, *loan, error) {
	tx, batch, lent, err := d.p.load(ctx, claims, 1)
	if err != nil {
		return nil, &loan{}, err
	}
	tx.Rollback(ctx)
	found := make(map[isolate.Lane]*dedup.Message, len(batch.Entries))
	for i := range batch.Entries {
		e := &batch.Entries[i]
		found[isolate.Lane{Scope: e.Scope, Lane: e.Lane}] = e.Message
	}
	return found, lent, nil
}

// start makes the call in a goroutine of its own.
func (d *dispatcher) start(ctx context.Context, call *delivery) {
	if call.message == nil {
		d.ended = append(d.ended, call)
		return
	}
	call.probe = d.circuit.starts()
	d.running++
	d.calls.Go(func() {
		d.call(ctx, call)
		d.results <- call
	})
}

// call delivers the message. A call that our own end broke off was no attempt, and one that had to wait for its turn
// is not made: others may have the lane before it ends.
func (d *dispatcher) call(ctx context.Context, call *delivery) {
	came := time.Now()
	end := d.p.work.begin
	if call.claim.Times > suspiciousCall {
		end = func() func() { return d.count(ctx, call) }
	}
	defer end()()
	if call.putOff || time.Since(came) > laneLease && !call.counted {
		return
	}
	call.err = d.p.deliver(ctx, d.target, *call.message)
	call.tried = call.err == nil || ctx.Err() == nil
}

// count counts the attempt before the call, where the lane was claimed again and again without getting anywhere: a
// message that kills the process runs out of attempts too. The caller calls end when the call was made, unless it is
// put off.
func (d *dispatcher) count(ctx context.Context, call *delivery) (end func()) {
	call.putOff = true
	attempt, err := d.p.announce(ctx, d.target, call.claim, d.lease, false)
	if err != nil || attempt.answer == dedup.NothingThere {
		if ctx.Err() == nil {
			d.log.Warn("a message that may kill the process is put off: "+
				"its attempt could not be counted", "error", err)
		}
		if err != nil {
			return func() {}
		}
		return attempt.end
	}
	if attempt.id != call.message.ID { // it has come into the lane since
		if attempt.answer == dedup.Counted {
			d.p.cancel(ctx, d.target, call.claim, attempt.attempt)
		}
		return attempt.end
	}
	call.until, call.attempt = attempt.at.Add(d.lease), attempt.attempt
	call.counted, call.buried = attempt.answer == dedup.Counted, attempt.answer == dedup.Killed
	call.putOff = call.buried
	return attempt.end
}

// take notes how a call ended.
func (d *dispatcher) take(call *delivery) {
	d.running--
	call.err = d.circuit.ended(time.Now(), call)
	d.ended = append(d.ended, call)
}

func (p *Processor) deliver(ctx context.Context, target *registered, m dedup.Message) (err error) {
	ctx, span := p.telemetry.deliver(ctx, target, &m)
	defer func(began time.Time) {
		p.telemetry.took(target, began, err != nil)
		instruments.End(span, err)
	}(time.Now())
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeLimit(target), ErrHandlerTimeout)
	defer cancel()
	given := p.acquires()
	var answer error // read only when the goroutine has ended
	done := make(chan struct{})
	go func() {
		defer close(done)
		protect(&answer, func() error { return target.detached.Deliver(ctx, m) })
	}()
	if !p.await(ctx, done) {
		return fmt.Errorf("%w: %w", ErrAbandoned, context.Cause(ctx))
	}
	if answer = given.waited(answer); errors.Is(answer, ErrNoConnection) {
		return Unavailable(answer)
	}
	return answer
}
