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

// fruitless limits the acquisitions of a position that does not move: at so many its messages are suspected. An owner
// that lived takes its own time back.
const fruitless = 2

// FirstBatch caps the first batch after a position was acquired; later ones grow. What an owner who died over it had at
// work is no more then, and so is what is set apart: each of those is handled by itself, which takes its time.
const FirstBatch = 250

// excuseTimeout bounds the statement that takes it back.
const excuseTimeout = 2 * time.Second

// Guard takes the batches of a position to their handlers, where somebody has died over it, or a batch has failed. A
// nil Guard suspects nobody.
type Guard struct {
	processor *handlers.Processor
	position  *dedup.Position
	log       *slog.Logger

	left    int   // so many messages more are set apart
	handled int64 // what lies below was handled before

	failedAt int64 // the position of the last batch that failed as if Postgres was away, and what it failed with
	sign     failure.Sign
	times    int // how often in a row
}

// AfterFailure guards a position of which a batch has failed.
func AfterFailure(p *handlers.Processor, position *dedup.Position, log *slog.Logger) *Guard {
	return &Guard{processor: p, position: position, log: log}
}

// AfterAcquiring guards a position that was acquired and is read from an offset on. What lies below handled was
// handled before, and is no progress. It is nil where all is well, and then a batch needs no Guard before one fails.
// Else, where owners have died over the position, the next messages are set apart, a batch of so many at most.
func AfterAcquiring(p *handlers.Processor, position *dedup.Position, from, handled int64, most int,
	log *slog.Logger) *Guard {
	suspicious := position.Fruitless >= fruitless
	if !suspicious && from >= handled {
		return nil
	}
	g := AfterFailure(p, position, log)
	g.handled = handled
	if suspicious {
		log.Warn("the partition was acquired again without having moved: its next messages are parked, "+
			"and handled one at a time", "offset", from, "times", position.Fruitless)
		g.left = most
	}
	return g
}

// Suspects says that the next messages are set apart.
func (g *Guard) Suspects() bool { return g != nil && g.left > 0 }

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
	switch {
	case last >= g.handled:
		g.left = max(0, g.left-n)
	case b.Next >= g.handled:
		tell(ctx, g.processor.Store().Recall, g.position, g.log)
	}
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
		g.log.Warn("the batch failed again though Postgres is well: fewer messages are tried",
			"offset", g.position.Next, "messages", n, "error", err)
		return max(1, n/8)
	}
	g.log.Warn("a message failed again by itself though Postgres is well: it is parked, and tried apart from others",
		"offset", g.position.Next, "error", err)
	g.left = 1
	return 1
}

// Grow gives how many messages to try at most after a batch of up to limit has succeeded, of most: many more where nothing
// has failed, which is where there is no Guard, and else some, for too much costs a timeout each time.
func (g *Guard) Grow(limit, most int) int {
	more := max(1, limit/8)
	if g == nil {
		more = limit
	}
	return min(limit+more, most)
}

// tooSlow says that a smaller batch might have gone through: a time limit of Postgres' was over, the handler's, or
// ours.
func tooSlow(err error) bool {
	return failure.Of(err) == failure.TooSlow || errors.Is(err, handlers.ErrHandlerTimeout) || errors.Is(err,
		dedup.ErrNoAnswer)
}

// Excuse takes an owner's own acquiring back at its end, where nothing else says that it lived. What is known of
// earlier deaths stands: else each rebalance would make it forgotten.
func Excuse(ctx context.Context, store *dedup.Store, position *dedup.Position, log *slog.Logger) {
	tell(ctx, store.Excuse, position, log)
}

// tell tells Postgres of the owner's life.
func tell(ctx context.Context, what func(context.Context, *dedup.Position) error, position *dedup.Position,
	log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), excuseTimeout)
	defer cancel()
	if err := what(ctx, position); err != nil {
		log.Debug("that the process lives is not noted", "error", err)
	}
}
