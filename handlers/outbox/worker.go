package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// worker sends a destination's messages: those of one shard after those of another.
type worker struct {
	*Relay
	to   *Destination
	bell *wait.Bell
	told dispatches
	from int // the shard to look at first: see claim_outbox
}

// run takes and sends, quickly while there is something and slowly while there is not.
func (w *worker) run(ctx context.Context) {
	hold := w.cfg.Holds.Place(holds.HandlerKind, w.to.Name)
	defer hold.Leave()
	retry, last := wait.NewBackoff(), time.Now()
	for ctx.Err() == nil {
		n, err := w.pass(ctx)
		if err != nil && ctx.Err() == nil {
			hold.Wait(codeOf(err), fmt.Errorf("messages stay in the outbox: %w", err))
			retry.Wait(ctx)
			continue
		}
		retry = wait.NewBackoff()
		if why := w.paused(); why != nil {
			hold.Wait(holds.Paused, why)
		} else {
			hold.End()
		}
		if n > 0 {
			last = time.Now()
			continue
		}
		rest(ctx, w.bell, w.pause(time.Since(last)))
	}
}

// codeOf is the code of what keeps messages in the outbox.
func codeOf(err error) string {
	if errors.Is(err, errMemory) {
		return holds.Memory
	}
	return handlers.HoldCode(err)
}

// pause grows with the time that nothing has come in.
func (r *Relay) pause(idle time.Duration) time.Duration {
	if idle < busyFor {
		return min(busyPoll, r.cfg.IdlePoll)
	}
	return min(idle/4, r.cfg.IdlePoll)
}

// paused says what an operator has paused of the destination.
func (w *worker) paused() error {
	for _, p := range w.processor.Pauses() {
		if p.Kind == dedup.PauseHandler && p.Handler == w.to.Name ||
			p.Kind == dedup.PauseTopic && slices.Contains(w.to.Topics, p.Topic) {
			return fmt.Errorf("%s is paused by %s: %s", p, p.Actor, p.Why)
		}
	}
	return nil
}

// topics are those that can be sent now, and how many messages of one: one, where it is to be found out whether what is
// needed is there again.
func (w *worker) topics() (topics []string, most int) {
	most = w.cfg.Batch
	for _, topic := range w.to.Topics {
		if n := w.processor.Allows(topic, most); n > 0 {
			topics, most = append(topics, topic), n
		}
	}
	return topics, most
}

// pass sends a batch of one shard that nobody else is at. It gives how many messages there were, and 0 where nothing
// was to be sent but one that finds out whether an outage is over.
func (w *worker) pass(ctx context.Context) (n int, err error) {
	topics, most := w.topics()
	if len(topics) == 0 {
		return 0, nil
	}
	ctx, cancel := w.lasting(ctx)
	defer cancel()
	c, err := w.claim(ctx, topics, most)
	if err != nil || c == nil {
		return 0, err
	}
	defer w.unclaim(ctx, c.tx)
	n, err = w.sendSome(ctx, c)
	if most == 1 {
		n = 0
	}
	return n, err
}

// lasting goes on though ctx ends, for what has begun would be sent again: for as long as a batch may take, and for no
// longer than the drain once ctx has ended.
func (r *Relay) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*r.cfg.SendTimeout)
	stop := context.AfterFunc(ctx, func() {
		wait.Sleep(lasting, r.cfg.DrainTimeout)
		cancel()
	})
	return lasting, func() {
		stop()
		cancel()
	}
}

// sendSome sends messages of a claimed shard.
func (w *worker) sendSome(ctx context.Context, c *claim) (n int, err error) {
	s, err := w.acquire(ctx, c)
	if err != nil {
		return 0, err
	}
	defer w.leave(ctx, c.place, s)
	if s.parked.Full(ctx) {
		return 0, nil
	}
	if err := w.borrow(ctx, c); err != nil {
		return 0, err
	}
	defer w.cfg.Memory.Give(c.bytes)
	ms, err := w.load(ctx, c, c.ids[:min(s.limit, len(c.ids))])
	if err != nil || len(ms) == 0 {
		return 0, err
	}
	w.told.tell(ctx, slog.LevelDebug, EventFetch, len(ms), "topic", c.topic, "shard", c.shard)
	if err := w.send(ctx, c.place, s, ms); err != nil {
		return 0, fmt.Errorf("send %d messages of topic %s: %w", len(ms), c.topic, err)
	}
	return len(ms), nil
}

// memoryPatience is how long a claimed shard waits for memory.
const memoryPatience = 2 * time.Second

var errMemory = errors.New("all memory for messages is in use")

// borrow takes the memory for a claim's messages. A large one may exceed the limit.
func (w *worker) borrow(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeoutCause(ctx, memoryPatience, errMemory)
	defer cancel()
	return w.cfg.Memory.Take(ctx, c.bytes, c.largest)
}

// send takes messages through one transaction: they leave the outbox, and are what has become of them.
func (w *worker) send(ctx context.Context, at place, s *shard, ms []dedup.Message) error {
	result, err := s.guard.Process(ctx, handlers.Batch{Position: s.position,
		Next: s.position.Next + int64(len(ms)), Messages: ms,
		Created: func(ctx context.Context, tx pgx.Tx, _ []dedup.Message) error { return w.drop(ctx, tx, at, ms) }})
	if err != nil {
		s.failed(ctx, err, len(ms))
		return err
	}
	s.limit = min(2*s.limit, w.cfg.Batch)
	s.parked.Add(result.Parked)
	if seen := result.Duplicates + result.Conflicts + result.Buried; seen == len(ms) {
		// another relay has sent them since they were read: Created was not called
		if err := w.drop(ctx, w.store.Pool(), at, ms); err != nil {
			return err
		}
	}
	w.told.tell(ctx, slog.LevelInfo, EventSkip, result.Duplicates, "topic", at.topic)
	w.told.tell(ctx, slog.LevelWarn, EventDuplicate, result.Conflicts+result.Buried, "topic", at.topic)
	return nil
}
