package devstack

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts are the two ways to stop: once means no more messages, with the consumer catching up and the final
// check; twice means at once.
type interrupts struct {
	stopped context.Context // after the first
	ended   context.Context // after the second
	stop    context.CancelCauseFunc
	end     context.CancelCauseFunc

	mu      sync.Mutex
	presses int
}

// listen takes the process' signals until the returned function is called. The end of ctx counts as a first
// interrupt and does not make the first signal a second one: it may have come of the same signal.
func listen(ctx context.Context) (*interrupts, func()) {
	i := &interrupts{}
	base := context.WithoutCancel(ctx)
	i.ended, i.end = context.WithCancelCause(base)
	i.stopped, i.stop = context.WithCancelCause(i.ended)
	unlink := context.AfterFunc(ctx, func() { i.stop(context.Cause(ctx)) })

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range signals {
			i.press()
		}
	})
	return i, func() {
		signal.Stop(signals)
		close(signals)
		wg.Wait()
		unlink()
		i.end(nil)
	}
}

// press is one interrupt.
func (i *interrupts) press() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.presses++; i.presses > 1 {
		i.end(errInterrupted)
	}
	i.stop(errInterrupted)
}

// timeUp stops without an interrupt; the next one ends at once.
func (i *interrupts) timeUp() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.presses = max(i.presses, 1)
	i.stop(nil)
}
