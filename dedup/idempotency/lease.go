package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/firstseen/firstseen/dedup/wait"
)

// leaseMode is [Claimed]'s.
type leaseMode struct {
	store      Store
	lease, ttl time.Duration
	log        *slog.Logger
}

func (*leaseMode) alwaysReads() bool { return false }

func (m *leaseMode) claim(ctx context.Context, e *Entry) (claim, Finding, error) {
	fence, found, err := m.store.Claim(ctx, *e, m.lease, m.ttl)
	if err != nil || found.State != NotFound {
		return nil, found, err
	}
	return &leaseClaim{leaseMode: m, entry: *e, fence: fence, until: time.Now().Add(m.lease)}, found, nil
}

// leaseClaim is a claim that is kept up while its handler works.
type leaseClaim struct {
	*leaseMode
	entry Entry
	fence int64
	until time.Time // the lease's end, by this process' clock
	stop  func()    // ends the heartbeat, and waits for that
}

// context ends where the claim is lost. When it ends the claim is not kept up any more, whatever the handler does.
func (c *leaseClaim) context(ctx context.Context) context.Context {
	ctx, lost := context.WithCancelCause(ctx)
	beating, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.beat(beating, lost)
	}()
	c.stop = func() {
		stop()
		<-done
		lost(nil)
	}
	return context.WithValue(ctx, workKey{}, work{id: c.entry.ID, fence: c.fence})
}

// beat extends the claim each third of its lease.
func (c *leaseClaim) beat(ctx context.Context, lost context.CancelCauseFunc) {
	for wait.Sleep(ctx, c.lease/3) {
		asked := time.Now()
		inTime, cancel := context.WithDeadline(ctx, c.until)
		err := c.store.Extend(inTime, c.entry.ID, c.fence, c.lease)
		cancel()
		switch {
		case err == nil:
			c.until = asked.Add(c.lease)
		case errors.Is(err, ErrClaimLost), !time.Now().Before(c.until):
			lost(ErrClaimLost)
			return
		}
	}
}

// keep stores the answer, as often as the store does not answer, for as long as a lease.
func (c *leaseClaim) keep(ctx context.Context, a Answer) (*Answer, error) {
	c.stop()
	err := c.complete(ctx, a)
	if !errors.Is(err, ErrClaimLost) {
		return nil, err
	}
	found, lookErr := c.store.Lookup(ctx, c.entry)
	if found.State == Matching {
		return found.Answer, nil
	}
	return nil, fmt.Errorf("%w: %w", errOutcomeUnknown, errors.Join(err, lookErr))
}

// completePause is the time between two tries to store an answer.
const completePause = 200 * time.Millisecond

func (c *leaseClaim) complete(ctx context.Context, a Answer) error {
	for limit := time.Now().Add(c.lease); ; {
		err := c.store.Complete(ctx, c.entry.ID, c.fence, a)
		if err == nil || errors.Is(err, ErrClaimLost) {
			return err
		}
		var failed *StoreError
		passes := errors.As(err, &failed) && failed.Kind == KindConnection
		if !passes || time.Now().After(limit) {
			return fmt.Errorf("%w: %w", errOutcomeUnknown, err)
		}
		wait.Sleep(ctx, completePause)
	}
}

// drop gives the key back. Where that fails the claim ends with its lease.
func (c *leaseClaim) drop(ctx context.Context) {
	c.stop()
	if err := c.store.Release(ctx, c.entry.ID, c.fence); err != nil {
		c.log.WarnContext(ctx, "idempotency claim not released", "error", err)
	}
}

// overflow stores that there is no answer: the effect has happened, and must not happen again.
func (c *leaseClaim) overflow(ctx context.Context, told Answer) error {
	_, err := c.keep(ctx, told)
	return err
}

func (*leaseClaim) overflowDetail() string {
	return "The request was carried out, and its answer is too large to be stored. It is not carried out again."
}
