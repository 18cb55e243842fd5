package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// mode keeps a request from running twice.
type mode interface {
	// alwaysReads says that requests without a key are run under a claim, too, of no key, and so are read before.
	alwaysReads() bool
	// claim gives the right to run the handler: nil with what was found where it is not to be had.
	claim(ctx context.Context, e *Entry) (claim, Finding, error)
}

// claim is the right to run the handler once. One of its last three methods ends it.
type claim interface {
	// context returns the handler's context.
	context(ctx context.Context) context.Context
	// keep stores the answer. Where it can't be told whether that was this one, stored is what is there.
	keep(ctx context.Context, a Answer) (stored *Answer, err error)
	// drop makes as if the request had not been made, as far as that is in its power.
	drop(ctx context.Context)
	// overflow ends a claim whose answer was too large, which told says, and overflowDetail in words.
	overflow(ctx context.Context, told Answer) error
	overflowDetail() string
}

// errOutcomeUnknown is returned where nobody knows what became of a request.
var errOutcomeUnknown = errors.New("the request's outcome is unknown")

// txMode is [InTransaction]'s.
type txMode struct {
	store     *Postgres
	work, ttl time.Duration
}

func (*txMode) alwaysReads() bool { return true }

func (m *txMode) claim(ctx context.Context, e *Entry) (claim, Finding, error) {
	t, found, err := m.store.begin(ctx, e, m.work, m.ttl)
	if t == nil {
		return nil, found, err
	}
	return &txClaim{m.store, t}, found, nil
}

// txClaim is a transaction as a claim.
type txClaim struct {
	store *Postgres
	t     *transaction
}

func (c *txClaim) context(ctx context.Context) context.Context {
	if c.t.entry != nil {
		ctx = context.WithValue(ctx, workKey{}, work{id: c.t.entry.ID})
	}
	return context.WithValue(ctx, txKey{}, &c.t.handler)
}

// keep commits, but for what a handler did that then refused the request.
func (c *txClaim) keep(ctx context.Context, a Answer) (*Answer, error) {
	if a.Status >= 400 {
		if c.t.entry == nil {
			c.drop(ctx)
			return nil, nil
		}
		if err := c.t.undo(ctx); err != nil {
			c.drop(ctx)
			return nil, err
		}
	}
	entry := c.t.entry
	err := c.t.commit(ctx, a)
	switch {
	case err == nil || !unknown(err):
		return nil, err
	case entry == nil:
		return nil, fmt.Errorf("%w: %w", errOutcomeUnknown, err)
	}
	return c.find(ctx, *entry, err)
}

// find looks for what became of a commit that was not answered.
func (c *txClaim) find(ctx context.Context, e Entry, lost error) (*Answer, error) {
	found, err := c.store.outcome(ctx, e)
	switch {
	case err != nil || found.State == InProgress:
		return nil, fmt.Errorf("%w: %w", errOutcomeUnknown, errors.Join(lost, err))
	case found.State == Matching:
		return found.Answer, nil
	}
	return nil, lost
}

func (c *txClaim) drop(ctx context.Context) { c.t.rollback(ctx) }

func (c *txClaim) overflow(ctx context.Context, _ Answer) error {
	c.drop(ctx)
	return nil
}

func (*txClaim) overflowDetail() string {
	return "The answer is too large to be stored, and so nothing was done. This is a fault of the service."
}

// workKey is the key of a request's work in its context.
type workKey struct{}

// work tells a handler of its request.
type work struct {
	id    ID
	fence int64
}

// Key is a name for the request that is the same at each of its tries: 64 hexadecimal digits, made of the client's key
// and of whose it is. Hand it on as an idempotency key of your own to whom the effect is asked of. Empty for a request
// without a key.
func Key(ctx context.Context) string {
	w, ok := ctx.Value(workKey{}).(work)
	if !ok {
		return ""
	}
	return w.id.String()
}

// Fence is the number of the claim that [Claimed] runs the handler under, greater with each claim of the key. A
// receiver that keeps the greatest it has seen can refuse an owner that was thought dead. 0 for a request without a
// claim.
func Fence(ctx context.Context) int64 {
	w, _ := ctx.Value(workKey{}).(work)
	return w.fence
}
