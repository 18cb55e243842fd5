package handlers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/firstseen/firstseen/dedup"
)

// handlerError says which handler failed.
type handlerError struct {
	Handler string
	Err     error
}

func (e *handlerError) Error() string { return fmt.Sprintf("handler %s: %v", e.Handler, e.Err) }

func (e *handlerError) Unwrap() error { return e.Err }

// PanicError is a handler's panic.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

var (
	// ErrGoexit is the error of a handler that ended its goroutine by runtime.Goexit, as testing's FailNow does.
	ErrGoexit = errors.New("the handler called runtime.Goexit")
	// ErrAbandoned is the error of a handler that went on after its context had ended, and was cut off.
	ErrAbandoned = errors.New("the handler ignored the end of its context and was cut off")
	// ErrHandlerTimeout is the cause of a handler's context ending after Config.HandlerTimeout.
	ErrHandlerTimeout = errors.New("the handler took longer than its time limit")
)

// attempt has a handler handle messages. Where it fails, so many of them as it returns are done and behind a savepoint.
type attempt func(ctx context.Context) (kept int, err error)

// call makes an attempt in a goroutine of its own: only so can it be survived whatever the handler does, and left behind
// if it never returns.
func (p *Processor) call(ctx context.Context, tx *dedup.Tx, target *registered, try attempt) (kept int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.HandlerTimeout, ErrHandlerTimeout)
	defer cancel()
	defer func(began time.Time) { p.telemetry.took(target, began, err != nil) }(time.Now())
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
	return kept, &handlerError{target.name, err}
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
