package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/handlers"
)

// A message can take down what handles it; handlers/suspect.go says how that is proved. Here it is narrowed down to a few
// messages, which are set apart: they are parked, and no longer this partition's matter.
//
// Where the process dies the same partition is acquired again at the same position. From the second time on a batch's worth
// of messages is set apart. Where the process lives, and a batch fails again as it did before while Postgres is well, it is
// made smaller, until the one message is left that is set apart.

// fruitless is how often a position is acquired without moving before its messages are suspected. An owner that lived
// takes its own time back.
const fruitless = 2

// excuseTimeout bounds the wait for that.
const excuseTimeout = 2 * time.Second

// caution takes the batches of a position to their handlers.
type caution struct {
	processor *handlers.Processor
	position  *dedup.Position
	log       *slog.Logger

	left    int  // so many messages more are set apart
	moved   bool // a batch was committed
	excused bool
	handled int64 // see handledTo

	failedAt int64 // the position of the last batch that failed as if Postgres was away, and what it failed with
	sign     failure.Sign
	times    int // how often in a row
}

// newCaution is for a position that has just been acquired.
func newCaution(p *handlers.Processor, position *dedup.Position, log *slog.Logger) *caution {
	return &caution{processor: p, position: position, log: log}
}

// begin decides whether the next messages from an offset on are set apart, and then how many.
func (c *caution) begin(next int64, messages int) {
	if c.position.Fruitless < fruitless {
		return
	}
	c.log.Warn("the partition was acquired again without having moved: its next messages are parked, and handled one at a time",
		"offset", next, "times", c.position.Fruitless)
	c.left = messages
}

// handledTo says where the position stood when it was acquired, where reading begins below: what lies between is no
// progress.
func (c *caution) handledTo(next int64) { c.handled = next }

// suspects says that the next messages are set apart.
func (c *caution) suspects() bool { return c.left > 0 }

// process takes a batch through its transaction.
func (c *caution) process(ctx context.Context, b handlers.Batch) (handlers.Result, error) {
	b.Apart = c.suspects()
	r, err := c.processor.Process(ctx, b)
	if err == nil {
		c.times = 0
		c.progress(ctx, &b)
	}
	return r, err
}

// progress takes in that a batch was committed. One of what was handled before, and only its offset was not committed to
// Kafka, says nothing about the next message, which may have killed the process each time.
func (c *caution) progress(ctx context.Context, b *handlers.Batch) {
	last, n := b.Next-1, len(b.Messages)
	if n > 0 {
		last = b.Messages[n-1].Offset
	}
	if last < c.handled {
		if b.Next >= c.handled {
			c.say(ctx, c.processor.Store().Recall)
		}
		return
	}
	c.left, c.moved = max(0, c.left-n), true
}

// failed takes in that a batch of n messages has failed, and gives how many to try at most next; so far that was limit.
func (c *caution) failed(ctx context.Context, err error, n, limit int) int {
	sign := failure.Of(err)
	if c.times++; c.failedAt != c.position.Next || c.sign != sign {
		c.failedAt, c.sign, c.times = c.position.Next, sign, 1
	}
	slow := tooSlow(err)
	switch {
	case slow && n > 1:
		return n / 2
	case n == 0, c.times == 1, !c.processor.Suspicious(ctx, err):
		return limit
	case n > 1:
		c.log.Warn("the batch failed again though Postgres is well: fewer messages are tried", "offset", c.position.Next,
			"messages", n, "error", err)
		return max(1, n/8)
	}
	c.log.Warn("a message failed again by itself though Postgres is well: it is parked, and tried apart from others",
		"offset", c.position.Next, "error", err)
	c.left = 1
	return 1
}

// tooSlow says that a smaller batch might have gone through: a time limit of Postgres' was over, the handler's, or ours.
func tooSlow(err error) bool {
	return failure.Of(err) == failure.TooSlow || errors.Is(err, handlers.ErrHandlerTimeout) || errors.Is(err, dedup.ErrNoAnswer)
}

// leave is for the end of an owner that lived, where nothing that it did says so: it takes its own acquiring back. What is
// known of earlier deaths stands: else each rebalance would make it forgotten.
func (c *caution) leave(ctx context.Context) {
	if !c.moved && !c.excused {
		c.excused = c.say(ctx, c.processor.Store().Excuse)
	}
}

// say tells Postgres of the owner's life, and whether it could.
func (c *caution) say(ctx context.Context, what func(context.Context, *dedup.Position) error) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), excuseTimeout)
	defer cancel()
	err := what(ctx, c.position)
	if err != nil {
		c.log.Debug("that the process lives is not noted", "error", err)
	}
	return err == nil
}
