package handlers

import (
	"context"
	"slices"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// writeDown settles the calls that have ended, and gives back the lanes of those that were not made. What Postgres
// does not take now stays for the next time, until its lease ends: then another worker may have the lane, and the
// message is delivered again.
func (d *dispatcher) writeDown(ctx context.Context) error {
	d.ended = slices.DeleteFunc(d.ended, d.isOver)
	if len(d.ended) == 0 {
		return nil
	}
	if err := d.settle(ctx, d.ended); err != nil {
		return err
	}
	for _, call := range d.ended {
		call.loan.give()
	}
	clear(d.ended)
	d.ended = d.ended[:0]
	return nil
}

// isOver says of a result that its lane may be another worker's.
func (d *dispatcher) isOver(call *delivery) bool {
	over := time.Now().After(call.until)
	if over && call.tried {
		d.lost(call)
	}
	if over {
		call.loan.give()
	}
	return over
}

func (d *dispatcher) lost(call *delivery) {
	d.log.Warn("the outcome of a call was not written down in time: it is made again", "message", call.message.Place())
}

// settle writes down how calls ended, in one transaction.
func (d *dispatcher) settle(ctx context.Context, calls []*delivery) error {
	ctx, cancel := context.WithTimeout(ctx, laneLease)
	defer cancel()
	claims := make([]dedup.Claim, len(calls))
	pending := make(map[isolate.Lane]*delivery, len(calls))
	for i, call := range calls {
		claims[i] = call.claim
		pending[isolate.Lane{Scope: call.claim.Scope, Lane: call.claim.Lane}] = call
		if err := d.cancel(ctx, call); err != nil {
			return err
		}
	}
	tx, batch, err := d.p.cfg.Store.LockLanes(ctx, claims)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	r := d.p.laneRun(tx, d.target, nil)
	isolation := r.isolation()
	for i := range batch.Entries {
		e := &batch.Entries[i]
		lane := isolate.Lane{Scope: e.Scope, Lane: e.Lane}
		if call := pending[lane]; call.message != nil && call.message.ID == e.Message.ID {
			r.outcome(ctx, isolation, e, call)
			delete(pending, lane)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	r.take(isolation)
	d.p.settled(r, batch.Entries)
	for _, call := range pending { // somebody took the lane, as a redrive of an earlier message does
		if call.tried {
			d.lost(call)
		}
	}
	return nil
}

// cancel takes back an attempt that was counted before a call that was not made.
func (d *dispatcher) cancel(ctx context.Context, call *delivery) error {
	if !call.counted || call.tried || call.buried {
		return nil
	}
	err := d.p.cfg.Store.CancelAttempt(ctx, call.claim, call.attempt)
	call.counted = err != nil
	return err
}

// outcome brings the entry of a call to its state. Of one that was not made it stays as it is: parked, and due.
func (r *run) outcome(ctx context.Context, s *isolate.Isolation, e *dedup.Entry, call *delivery) {
	if call.counted {
		e.Attempts--
	}
	switch {
	case call.buried:
		r.bury([]*dedup.Entry{e})
	case call.tried && call.err != nil:
		s.Fail(ctx, e, call.err)
	case call.tried:
		e.State, e.Reason, e.Error = dedup.Processed, "", ""
	}
}
