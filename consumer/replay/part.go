package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/crashguard"
)

// part takes one partition through a replay. One goroutine at a time uses it.
type part struct {
	*job
	position *dedup.Position
	at       *operate.ReplayRange
	guard    *crashguard.Guard
	log      *slog.Logger
	hold     *holds.Place

	limit  int // messages a batch; lowered where batches take too long
	parked dedup.ParkedCount
}

// process takes a page to its end, in batches.
func (p *part) process(ctx context.Context, ms []dedup.Message, next int64) error {
	for retry := wait.NewBackoff(); p.position.Next < next; {
		n, to := p.cut(ms, next)
		if !p.rate.take(ctx, n) || !p.hasRoom(ctx) {
			return cmp.Or(context.Cause(ctx), errParkedStay)
		}
		r, err := p.transact(ctx, handlers.Batch{Position: p.position, Next: to, Messages: ms[:n],
			Only: p.cfg.Handler, Replayed: true})
		if err == nil {
			p.limit = p.guard.Grow(p.limit, p.reader.cfg.MaxBatch)
			p.parked.Add(r.Parked)
			p.hold.End()
			retry = wait.NewBackoff()
		} else if n, to, err = p.recover(ctx, err, ms, n, next, retry); err != nil {
			return err
		}
		ms = ms[n:]
		p.done(p.at, to, n, r)
	}
	return nil
}

// transact takes a batch through its transaction, when it is its turn.
func (p *part) transact(ctx context.Context, b handlers.Batch) (r handlers.Result, err error) {
	if slots := p.cfg.Transactions; slots != nil {
		if !slots.Take(ctx) {
			return r, context.Cause(ctx)
		}
		defer slots.Give()
	}
	return p.guard.Process(p.work, b)
}

// cut limits the next batch to n of the messages; to is the offset after it.
func (p *part) cut(ms []dedup.Message, next int64) (n int, to int64) {
	most := p.rate.chunk(p.limit)
	if len(ms) <= most {
		return len(ms), next
	}
	return most, ms[most].Offset
}

// recover decides what a failed batch means: an error ends the replay. Else it is tried again, after a pause, unless
// it turned out to be done: then n are, up to the offset to.
func (p *part) recover(ctx context.Context, failure error, ms []dedup.Message, n int, next int64,
	retry wait.Backoff) (done int, to int64, err error) {
	var moved *dedup.MovedError
	switch {
	case errors.As(failure, &moved) && moved.Next > p.position.Next && moved.Next <= next:
		p.log.Warn("the answer to a commit was lost; it had taken effect", "offset", moved.Next)
		p.position.Next = moved.Next
		done, _ = slices.BinarySearchFunc(ms, moved.Next,
			func(m dedup.Message, next int64) int { return cmp.Compare(m.Offset, next) })
		return done, moved.Next, nil
	case errors.Is(failure, dedup.ErrFenced):
		return 0, 0, ErrTaken
	case moved != nil:
		return 0, 0, fmt.Errorf("partition %d: its position was moved by somebody else: %w", p.at.Partition, failure)
	case ctx.Err() != nil:
		return 0, 0, context.Cause(ctx)
	}
	p.limit = p.guard.Failed(ctx, failure, n, p.limit)
	p.hold.Wait(holding.CodeOf(failure), failure, "offset", p.position.Next, "messages", n)
	retry.Wait(ctx)
	return 0, p.position.Next, nil
}

// parkedPatience bounds a replay's wait for parked messages while none is settled.
const parkedPatience = 5 * time.Minute

// errParkedStay ends a replay that has parked as much as it may.
var errParkedStay = fmt.Errorf("too many messages are parked, and none was settled for %s: see why their handlers "+
	"fail, whether they are paused, and whether `firstseen run` works on them; then go on", parkedPatience)

// hasRoom waits while too many of the partition's messages are parked, and says whether the replay is to go on.
func (p *part) hasRoom(ctx context.Context) bool {
	least := 0
	for since := time.Now(); p.parked.Full(ctx); {
		n := p.parked.N
		if least == 0 || n < least {
			least, since = n, time.Now()
		}
		if time.Since(since) > parkedPatience {
			return false
		}
		p.hold.Wait(consumer.HeldMaxParked, fmt.Errorf("%d messages are parked or more, at most %d may be; "+
			"`firstseen run` works on them", n, p.parked.Most))
		if !wait.Sleep(ctx, dedup.ParkedCheck) {
			return false
		}
	}
	return ctx.Err() == nil
}
