package consumer

import (
	"context"
	"log/slog"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// caution takes the batches of a position to their handlers: after deaths of the process one message at a time, each
// announced in Postgres beforehand. See careful.go.
type caution struct {
	processor *handlers.Processor
	position  *dedup.Position
	log       *slog.Logger

	left      int   // so many messages more are handled one at a time
	announced int64 // the offset of the last message that was
	suspicion bool  // the process died before anything was announced
	moved     bool  // a batch was committed
	excused   bool
	handled   int64 // where the position stood when it was acquired, if reading begins below: what lies between is no progress
}

// newCaution is for a position that has just been acquired.
func newCaution(p *handlers.Processor, position *dedup.Position, log *slog.Logger) *caution {
	return &caution{processor: p, position: position, log: log, announced: -1}
}

// begin decides whether care is needed with the next messages from an offset on, and then for how many.
func (c *caution) begin(next int64, messages int) bool {
	p := c.position
	if p.Fruitless < fruitless && (p.Trials == 0 || p.Trial < next) {
		return false
	}
	c.log.Warn("the partition was acquired again without having moved: handling its next messages one at a time",
		"offset", next, "times", p.Fruitless)
	c.left, c.suspicion = messages, p.Trials == 0
	return true
}

// process takes a batch, of one message while care is needed, through its transaction.
func (c *caution) process(ctx context.Context, b handlers.Batch) (r handlers.Result, err error) {
	if c.left > 0 && len(b.Messages) > 0 && b.Messages[0].Offset >= c.handled {
		defer c.processor.Suspect()()
		b.Killed, err = c.announce(ctx, &b.Messages[0])
	}
	if err == nil {
		r, err = c.processor.Process(ctx, b)
	}
	switch {
	case err == nil:
		c.progress(ctx, &b)
	case c.left > 0:
		c.retract(ctx)
	}
	return r, err
}

// progress takes in that a batch was committed. One of what was handled before, and only its offset was not committed to
// Kafka, says nothing about the next message, which may have killed the process each time.
func (c *caution) progress(ctx context.Context, b *handlers.Batch) {
	last := b.Next - 1
	if n := len(b.Messages); n > 0 {
		last = b.Messages[n-1].Offset
	}
	if last < c.handled {
		if b.Next >= c.handled {
			c.say(ctx, c.processor.Store().Recall)
		}
		return
	}
	c.left, c.moved = max(0, c.left-1), true
}

// announce says in Postgres which message is about to be handled, and returns how often it has killed the process, where
// that is often enough.
func (c *caution) announce(ctx context.Context, m *dedup.Message) (killed int, err error) {
	counts := 1
	switch {
	case m.Offset == c.announced:
		counts = 0
	case c.suspicion:
		counts = 2 // the death that raised it was the first message's, more likely than another's
	}
	times, err := c.processor.Store().Announce(ctx, c.position, m.Offset, counts)
	if err != nil {
		return 0, err
	}
	c.announced, c.suspicion = m.Offset, false
	if most := c.processor.MaxAttempts(m.Topic); counts < 2 && times > most {
		c.log.Error("the message killed the process again and again; it goes to the dead letters", "offset", m.Offset, "times", most)
		killed = most
	}
	return killed, nil
}

// retract says that the process lived, whatever came of the message that was announced.
func (c *caution) retract(ctx context.Context) {
	if c.say(ctx, c.processor.Store().Retract) {
		c.announced = -1
	}
}

// leave is for the end of an owner that lived, where nothing that it did says so. Where it has handled nothing either,
// what is known of earlier deaths stands: else each rebalance would make it forgotten.
func (c *caution) leave(ctx context.Context) {
	switch {
	case c.moved:
	case c.announced >= 0:
		c.retract(ctx)
	case !c.excused:
		c.excused = c.say(ctx, c.processor.Store().Excuse)
	}
}

// say tells Postgres of the owner's life, and whether it could.
func (c *caution) say(ctx context.Context, what func(context.Context, *dedup.Position) error) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retractTimeout)
	defer cancel()
	err := what(ctx, c.position)
	if err != nil {
		c.log.Debug("that the process lives is not noted", "error", err)
	}
	return err == nil
}
