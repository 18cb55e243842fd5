package devstack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup/wait"
)

const (
	readEvery    = 250 * time.Millisecond
	trimEvery    = 10 * time.Second
	stallLimit   = 60 * time.Second // without progress, while the consumer catches up
	readPatience = 30 * time.Second // without an answer of Postgres or the broker
)

var errInterrupted = errors.New("interrupted")

// Run runs the demo to its end: the time is over, or an interrupt came (SIGINT, SIGTERM, SIGHUP, or a key). Then it
// has the consumer catch up, and gives the verdict. A second interrupt ends it at once. Whatever it returns,
// everything that it started has ended. Call it once in a process.
func Run(ctx context.Context, o Options) (Summary, error) {
	if err := o.Validate(); err != nil {
		return Summary{}, err
	}
	o.setDefaults()
	page, err := openWebpage(ctx, &o)
	if err != nil {
		return Summary{}, err
	}
	defer page.stop()
	interrupts, release := listen(ctx)
	defer release()
	s, err := openStack(interrupts.stopped, &o)
	if err != nil {
		if cause := context.Cause(interrupts.stopped); cause != nil {
			err = cause
		}
		err = fmt.Errorf("start: %w", err)
		page.end(Summary{}, err)
		return Summary{}, err
	}
	s.announce(o.Out)
	summary, err := play(s, interrupts, page)
	page.end(summary, err)
	if !summary.OK {
		s.keepLog(o.Out)
	}
	s.close(o.Out)
	return summary, err
}

// run is one run on an open stack.
type run struct {
	*interrupts
	options   *Options
	stack     *stack
	ledger    *ledger
	consumers *consumers
	faults    *faults
	counter   *counter
	view      view
}

func newRun(s *stack, i *interrupts, page *webpage) (*run, error) {
	r := &run{interrupts: i, options: s.options, stack: s, ledger: newLedger()}
	event := func(format string, args ...any) { r.view.event(fmt.Sprintf(format, args...)) }
	c, err := newConsumers(s, event)
	if err != nil {
		return nil, err
	}
	r.consumers, r.faults = c, newFaults(s, c, event)
	r.counter = &counter{stack: s, ledger: r.ledger, consumers: c, faults: r.faults, start: time.Now()}
	r.view = newView(s.options, page.address(), c.kill, i.press)
	if page != nil {
		page.offer(r.faults, s.operatorPage())
		r.view = views{r.view, page}
	}
	return r, nil
}

func play(s *stack, i *interrupts, page *webpage) (Summary, error) {
	r, err := newRun(s, i, page)
	if err != nil {
		return Summary{}, err
	}
	return r.play()
}

// play produces and consumes, has the consumer catch up and end, and counts.
func (r *run) play() (Summary, error) {
	defer r.view.close()
	ctx, fail := context.WithCancelCause(r.ended)
	defer fail(nil)
	var others sync.WaitGroup
	others.Go(func() {
		if err := r.consumers.run(ctx); err != nil {
			fail(err)
		}
	})
	others.Go(func() { r.keepTrimmed(ctx) })
	others.Go(func() { r.faults.run(ctx) })

	err := r.produce(ctx)
	if err == nil {
		err = r.catchUp(ctx)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	fail(nil)
	others.Wait()
	if err != nil {
		return Summary{}, err
	}
	return r.verdict()
}

// produce runs the producer, and kills the consumer now and then, until it is time to stop.
func (r *run) produce(ctx context.Context) error {
	stopped, cancel := context.WithCancel(r.stopped)
	defer cancel()
	if r.options.For > 0 {
		timer := time.AfterFunc(r.options.For, r.timeUp)
		defer timer.Stop()
	}
	var producing sync.WaitGroup
	var failed error
	producing.Go(func() {
		p := &producer{client: r.stack.broker.client, ledger: r.ledger, rate: r.options.Rate,
			duplicates: r.options.Duplicates, again: r.faults.resend}
		failed = p.run(stopped, ctx)
		cancel()
	})
	producing.Go(func() { r.faults.killOften(stopped) })
	err := r.watch(ctx, func(*figures) bool { return stopped.Err() != nil })
	cancel()
	producing.Wait()
	return errors.Join(err, failed)
}

// catchUp waits until the consumer has done everything. One that makes no progress is given up, and judged.
func (r *run) catchUp(ctx context.Context) error {
	r.view.event("no more messages are sent; the consumer catches up")
	var last figures
	moved := time.Now()
	return r.watch(ctx, func(f *figures) bool {
		if f.Received != last.Received || f.Lag != last.Lag || f.Parked != last.Parked || f.Effects != last.Effects {
			last, moved = *f, time.Now()
		}
		done := f.Lag == 0 && f.Parked == 0 && (!r.options.Outbox || f.Effects == f.New)
		return done || time.Since(moved) > stallLimit
	})
}

// watch reads the figures and shows them until enough says so.
func (r *run) watch(ctx context.Context, enough func(*figures) bool) error {
	answered := time.Now()
	for {
		began := time.Now()
		f, err := r.counter.read(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.ledger.failure() != nil:
			return r.ledger.failure()
		case err != nil && time.Since(answered) > readPatience:
			return err
		case err == nil:
			answered = time.Now()
			r.consumers.took(f.Received)
			r.view.show(&f)
			if enough(&f) {
				return nil
			}
		}
		// Counting takes longer with every row, and is not to take the database's time from the consumer.
		if !wait.Sleep(ctx, max(readEvery, 4*time.Since(began))) {
			return context.Cause(ctx)
		}
	}
}

// verdict counts once more, with nobody at work.
func (r *run) verdict() (Summary, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readPatience)
	defer cancel()
	f, err := r.counter.read(ctx)
	if err != nil {
		return Summary{}, err
	}
	r.view.show(&f)
	return f.summary(), nil
}

func (r *run) keepTrimmed(ctx context.Context) {
	for wait.Sleep(ctx, trimEvery) {
		if err := r.stack.broker.trim(ctx); err != nil && ctx.Err() == nil {
			r.view.event(err.Error())
		}
	}
}
