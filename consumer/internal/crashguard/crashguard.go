// Package crashguard keeps a message that takes down what handles it from doing so for ever.
//
// A message can take down what handles it; handlers/suspect.go says how that is proved. Here it is narrowed down to a
// few messages, which are set apart: they are parked, and no longer this partition's matter.
//
// Where the process dies the same partition is acquired again at the same position. From the second time on a batch's
// worth of messages is set apart. Where the process lives, and a batch fails again as it did before while Postgres is
// well, it is made smaller, until the one message is left that is set apart.
package crashguard

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/handlers"
)

// fruitless is how often a position is acquired without moving before its messages are suspected. An owner that lived
// takes its own time back.
const fruitless = 2

// excuseTimeout bounds the wait for that.
const excuseTimeout = 2 * time.Second

// Guard takes the batches of a position to their handlers.
type Guard struct {
	processor *handlers.Processor
	position  *dedup.Position
	log       *slog.Logger

	left    int  // so many messages more are set apart
	moved   bool // a batch was committed
	excused bool
	handled int64 // see HandledTo

	failedAt int64 // the position of the last batch that failed as if Postgres was away, and what it failed with
	sign     failure.Sign
	times    int // how often in a row
}

// New is for a position that has just been acquired.
func New(p *handlers.Processor, position *dedup.Position, log *slog.Logger) *Guard {
	return &Guard{processor: p, position: position, log: log}
}

// Begin decides whether the next messages from an offset on are set apart, and then how many.
func (g *Guard) Begin(next int64, messages int) {
	if g.position.Fruitless < fruitless {
		return
	}
	g.log.Warn("the partition was acquired again without having moved: its next messages are parked, and handled one "+
		"at a time",
		"offset", next, "times", g.position.Fruitless)
	g.left = messages
}

// HandledTo says where the position stood when it was acquired, where reading begins below: what lies between is no
// progress.
func (g *Guard) HandledTo(next int64) { g.handled = next }

// Suspects says that the next messages are set apart.
func (g *Guard) Suspects() bool { return g.left > 0 }

// Process takes a batch through its transaction.
func (g *Guard) Process(ctx context.Context, b handlers.Batch) (handlers.Result, error) {
	b.Apart = g.Suspects()
	r, err := g.processor.Process(ctx, b)
	if err == nil {
		g.times = 0
		g.progress(ctx, &b)
	}
	return r, err
}

// progress takes in that a batch was committed. One of what was handled before, and only its offset was not committed
// to Kafka, says nothing about the next message, which may have killed the process each time.
func (g *Guard) progress(ctx context.Context, b *handlers.Batch) {
	last, n := b.Next-1, len(b.Messages)
	if n > 0 {
		last = b.Messages[n-1].Offset
	}
	if last < g.handled {
		if b.Next >= g.handled {
			g.say(ctx, g.processor.Store().Recall)
		}
		return
	}
	g.left, g.moved = max(0, g.left-n), true
}

// Failed takes in that a batch of n messages has failed, and gives how many to try at most next; so far that was
// limit.
func (g *Guard) Failed(ctx context.Context, err error, n, limit int) int {
	sign := failure.Of(err)
	if g.times++; g.failedAt != g.position.Next || g.sign != sign {
		g.failedAt, g.sign, g.times = g.position.Next, sign, 1
	}
	slow := tooSlow(err)
	switch {
	case slow && n > 1:
		return n / 2
	case n == 0, g.times == 1, !g.processor.Suspicious(ctx, err):
		return limit
	case n > 1:
		g.log.Warn("the batch failed again though Postgres is well: fewer messages are tried", "offset", g.position.Next,
			"messages", n, "error", err)
		return max(1, n/8)
	}
	g.log.Warn("a message failed again by itself though Postgres is well: it is parked, and tried apart from others",
		"offset", g.position.Next, "error", err)
	g.left = 1
	return 1
}

// tooSlow says that a smaller batch might have gone through: a time limit of Postgres' was over, the handler's, or
// ours.
func tooSlow(err error) bool {
	return failure.Of(err) == failure.TooSlow || errors.Is(err, handlers.ErrHandlerTimeout) || errors.Is(err,
		dedup.ErrNoAnswer)
}

// Leave is for the end of an owner that lived, where nothing that it did says so: it takes its own acquiring back.
// What is known of earlier deaths stands: else each rebalance would make it forgotten.
func (g *Guard) Leave(ctx context.Context) {
	if !g.moved && !g.excused {
		g.excused = g.say(ctx, g.processor.Store().Excuse)
	}
}

// say tells Postgres of the owner's life, and whether it could.
func (g *Guard) say(ctx context.Context, what func(context.Context, *dedup.Position) error) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), excuseTimeout)
	defer cancel()
	err := what(ctx, g.position)
	if err != nil {
		g.log.Debug("that the process lives is not noted", "error", err)
	}
	return err == nil
}
