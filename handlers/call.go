package handlers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
)

// attempt has a handler handle messages. Where it fails, so many of them as it returns are done and behind a
// savepoint.
type attempt func(ctx context.Context) (kept int, err error)

// attempt hands messages over: to a queue stretches of them, behind each a savepoint, else one. undo has a queue begin
// with taking back what an earlier call did.
func (r *run) attempt(undo bool, stretches ...[]dedup.Message) attempt {
	tx := r.tx.Handler()
	if q, ok := r.target.handler.(queue); ok && r.Pipelined() {
		return func(ctx context.Context) (int, error) { return q.handle(ctx, tx, round{undo, stretches}) }
	}
	return func(ctx context.Context) (int, error) { return 0, r.target.handler.HandleBatch(ctx, tx, stretches[0]) }
}

// call makes an attempt in a goroutine of its own: only so can it be survived whatever the handler does, and left
// behind if it never returns.
func (p *Processor) call(ctx context.Context, tx *dedup.Tx, target *registered, try attempt) (kept int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.HandlerTimeout, ErrHandlerTimeout)
	defer cancel()
	defer func(began time.Time) { p.telemetry.took(target, began, err != nil) }(time.Now())
	given := p.acquires()
	var ended struct { // read only when the goroutine has
		kept int
		err  error
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		protect(&ended.err, func() (err error) {
			ended.kept, err = try(ctx)
			return err
		})
	}()
	if !p.await(ctx, done) {
		tx.Abandon()
		return 0, &handlerError{target.name, fmt.Errorf("%w: %w", ErrAbandoned, context.Cause(ctx))}
	}
	kept, err = ended.kept, ended.err
	if err == nil {
		err = tx.Check()
	}
	if err == nil {
		return kept, nil
	}
	if errors.Is(context.Cause(ctx), ErrHandlerTimeout) && !errors.Is(err, ErrHandlerTimeout) {
		err = fmt.Errorf("%w: %w", ErrHandlerTimeout, err)
	}
	return kept, &handlerError{target.name, given.waited(err)}
}

// acquires counts the waits for a connection of the pool that were given up before a call.
type acquires struct {
	store *dedup.Store
	count int64
}

func (p *Processor) acquires() acquires {
	return acquires{p.cfg.Store, p.cfg.Store.Pool().Stat().CanceledAcquireCount()}
}

// waited marks an error of time as ErrNoConnection where such a wait was given up since.
func (a acquires) waited(err error) error {
	isOfTime := errors.Is(err, ErrHandlerTimeout) || failure.Of(err) == failure.Silent
	if isOfTime && a.store.Pool().Stat().CanceledAcquireCount() > a.count {
		return fmt.Errorf("%w: %w", ErrNoConnection, err)
	}
	return err
}

// await waits for a handler's end, and after its context's end only a little longer.
func (p *Processor) await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	timer := time.NewTimer(p.cfg.AbandonAfter)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// protect puts f's error in out, and a panic or a Goexit as an error too. A Goexit can't be stopped, only seen:
// the goroutine ends when protect's deferred call has run.
func protect(out *error, f func() error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		*out = ErrGoexit
		if v := recover(); v != nil {
			*out = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	*out = f()
	returned = true
}
