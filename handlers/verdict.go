package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
)

// verdict is what becomes of an entry that its handler failed on, when its turn comes: those before it may have to be
// handled again first.
type verdict struct {
	entry dedup.Entry // as it will be
	err   error
}

// judge decides on an entry that its handler failed on.
func (r *run) judge(e *dedup.Entry, err error) *verdict {
	v := &verdict{*e, err}
	r.target.retry.fail(&v.entry, err)
	v.entry.Lane, v.entry.Alone = r.laneOf(e), handledAlone(err)
	if r.failed == nil {
		r.failed = map[*dedup.Entry]*verdict{}
	}
	r.failed[e] = v
	return v
}

// verdict is what was decided on an entry, in this transaction or by an earlier one's loss; nil: it has not failed.
func (r *run) verdict(e *dedup.Entry) *verdict {
	if len(r.failed)+len(r.known.failed) == 0 {
		return nil
	}
	if v := r.failed[e]; v != nil {
		return v
	}
	if err := r.known.failed[of(e)]; err != nil {
		return r.judge(e, err)
	}
	return nil
}

// settle brings entries to their states, in order: they were handled, or passed over.
func (r *run) settle(ctx context.Context, entries []*dedup.Entry) {
	for _, e := range entries {
		if r.isBlocked(e) {
			continue // also if it failed: one before it, that was handled at first, has failed since
		}
		if v := r.verdict(e); v != nil {
			r.carryOut(ctx, e, v)
			continue
		}
		e.State, e.Reason, e.Error = dedup.Processed, "", ""
	}
}

// putOff parks entries that were not tried, where an outage has begun.
func (r *run) putOff(ctx context.Context, entries []*dedup.Entry) {
	for _, e := range entries {
		if r.isBlocked(e) {
			continue
		}
		if v := r.verdict(e); v != nil {
			r.carryOut(ctx, e, v)
			continue
		}
		e.Lane = r.laneOf(e)
		e.Reason, e.Error = reasonUnavailable, clip(r.held)
		e.Park(0)
	}
}

// fail settles an entry that its handler failed on, where none before it is left.
func (r *run) fail(ctx context.Context, e *dedup.Entry, err error) {
	r.carryOut(ctx, e, r.judge(e, err))
}

// carryOut settles an entry as was decided. While it is unfinished its lane waits behind it.
func (r *run) carryOut(ctx context.Context, e *dedup.Entry, v *verdict) {
	*e = v.entry
	delete(r.failed, e)
	if r.tries == nil {
		r.tries = tries{}
	}
	r.tries[e.Reason]++
	if errors.As(v.err, new(*awayError)) {
		if r.away == nil {
			r.away = map[messageOf]error{}
		}
		r.away[of(e)] = v.err
	}
	handler, message := slog.String("handler", r.target.name), slog.String("message", place(e.Message))
	r.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "handler failed", handler, message,
		slog.String("state", e.Reason), slog.Int("attempts", e.Attempts), slog.String("error", e.Error))
	if p := (*PanicError)(nil); errors.As(v.err, &p) {
		r.p.cfg.Logger.ErrorContext(ctx, "handler panicked", handler, message, "stack", string(p.Stack))
	}
	if e.State == dedup.Parked {
		r.block(e)
	}
}

func (r *run) block(e *dedup.Entry) {
	if r.blocked == nil {
		r.blocked = map[laneOf]*dedup.Entry{}
	}
	r.blocked[laneOf{e.Scope, e.Lane}] = e
}

type laneOf struct {
	scope int32
	lane  uuid.UUID
}

// blocks gives the unfinished entry that e has to wait behind.
func (r *run) blocks(e *dedup.Entry) *dedup.Entry {
	if len(r.blocked) == 0 {
		return nil
	}
	return r.blocked[laneOf{e.Scope, r.laneOf(e)}]
}

// laneOf is the lane that a message lies in already, whatever the ordering was then, or belongs to.
func (r *run) laneOf(e *dedup.Entry) uuid.UUID {
	if e.Lane != uuid.Nil {
		return e.Lane
	}
	return r.target.ordering.Lane(e.Message)
}

// isBlocked parks an entry that has to wait.
func (r *run) isBlocked(e *dedup.Entry) bool {
	first := r.blocks(e)
	if first == nil {
		return false
	}
	e.Lane = first.Lane
	e.Park(first.Due)
	return true
}

// place names a message for the log.
func place(m *dedup.Message) string { return fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset) }
