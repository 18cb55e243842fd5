package doctor

import (
	"context"
	"slices"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

var outboxChecks = []Check{
	{
		Name: "outbox.unsent", About: "messages of the outbox are sent", needs: needsSchema, run: outboxUnsent,
		Do: map[Level]string{Warning: "See that a process runs whose outbox has a destination for the topic, and that it is " +
			"not paused (`firstseen outbox pause list`). If one runs, its log and /healthz say what it waits for: what it " +
			"sends to is away, say. `firstseen outbox list --status failed` shows what is tried again, and why."},
	},
	{
		Name: "outbox.destinations", About: "what is added to the outbox has a destination",
		needs: needsSchema | needsConfig, run: outboxDestinations,
		Do: map[Level]string{
			Warning: "Add the topic to one of outbox.destinations, or correct it where messages are added; what lies there " +
				"is sent then. If another program's relay sends it, all is well as soon as that runs.",
		},
	},
	{
		Name: "outbox.growing", About: "as much is sent out of the outbox as is added", needs: needsSchema,
		run: outboxGrowing,
		Do: map[Level]string{Warning: "If that goes on, raise the destination's workers or outbox.batch, or run more " +
			"processes; or what it sends to is slow: see firstseen_handler_duration_seconds."},
	},
	{
		Name: "outbox.dead", About: "what the outbox has given up is looked after", needs: needsSchema, run: outboxDead,
		Do: map[Level]string{
			Warning: "Have them sent again or forget them: `firstseen outbox list --status dead`, `firstseen outbox redrive`, " +
				"`firstseen outbox discard`.",
			Info: "Look at them: `firstseen outbox list --status dead`.",
		},
	},
	{
		Name: "outbox.duplicates", About: "one thing is added to the outbox once", needs: needsSchema,
		run: outboxDuplicates,
		Do: map[Level]string{
			Warning: "Have whoever adds them give an idempotency key that follows from what happened (outbox.KeyOf), and none " +
				"that is made at each try: as it is, a command that is executed twice is sent twice.",
			Info: "Find out whether these were added twice, or meant so.",
		},
	},
	{
		Name: "outbox.bloat", About: "the outbox takes the space of what is in it", needs: needsSchema, run: outboxBloat,
		Do: map[Level]string{Warning: "Look for what keeps vacuum from its work (sessions.transactions, sessions.prepared, " +
			"sessions.slots): a queue is read the slower the more dead rows it has. Then run vacuum full firstseen.outbox " +
			"while little is added; who adds waits for it."},
	},
}

// outbox is the outbox's inbox; no other has to be there.
func (p *target) outbox(ctx context.Context) (_ *operate.Inbox, err error) {
	if p.sent == nil {
		p.sent, err = operate.Open(ctx, p.pool, dedup.Config{Inbox: dedup.OutboxInbox, Schema: p.Schema})
	}
	return p.sent, err
}

func (p *target) outboxBacklog(ctx context.Context) ([]operate.OutboxBacklog, error) {
	outbox, err := p.outbox(ctx)
	if err != nil {
		return nil, err
	}
	return outbox.OutboxBacklog(ctx)
}

func outboxUnsent(ctx context.Context, p *target, r *report) error {
	backlog, pauses, err := p.unsent(ctx)
	for _, b := range backlog {
		waited := p.now().Sub(b.OldestAt)
		if b.OldestAt.IsZero() || waited <= p.limits.overdue || slices.ContainsFunc(pauses,
			func(pause dedup.Pause) bool { return p.pausesTopic(pause, b.Topic) }) {
			continue
		}
		r.warn("%s messages to topic %s wait to be sent, the oldest for %s", capped(b.Backlog(), operate.BacklogCap),
			b.Topic, age(waited.Seconds()))
	}
	r.ok("none has waited for more than %s", p.limits.overdue)
	return err
}

// unsent is what waits in the outbox, and what is paused of it.
func (p *target) unsent(ctx context.Context) (backlog []operate.OutboxBacklog, pauses []dedup.Pause, err error) {
	outbox, err := p.outbox(ctx)
	if err != nil {
		return nil, nil, err
	}
	if backlog, err = outbox.OutboxBacklog(ctx); err != nil {
		return nil, nil, err
	}
	pauses, err = outbox.Pauses(ctx)
	return backlog, pauses, err
}

// pausesTopic says that a pause keeps a topic's messages from being sent. Which destination a topic has is known by the
// config.
func (p *target) pausesTopic(pause dedup.Pause, topic string) bool {
	if pause.Kind == dedup.PauseTopic {
		return pause.Topic == topic
	}
	return p.Config != nil && slices.ContainsFunc(p.Config.Outbox.Destinations, func(d config.Destination) bool {
		return d.Name == pause.Handler && slices.Contains(d.Topics, topic)
	})
}

func outboxDestinations(ctx context.Context, p *target, r *report) error {
	backlog, err := p.outboxBacklog(ctx)
	for _, b := range backlog {
		sent := slices.ContainsFunc(p.Config.Outbox.Destinations,
			func(d config.Destination) bool { return slices.Contains(d.Topics, b.Topic) })
		if waiting := b.Backlog() + b.Delayed; waiting > 0 && !sent {
			r.warn("%s messages of topic %s are in the outbox, and no destination of the config has that topic",
				capped(waiting, operate.BacklogCap), b.Topic)
		}
	}
	r.ok("topics of what waits: %d", len(backlog))
	return err
}

func outboxGrowing(ctx context.Context, p *target, r *report) error {
	before, err := p.outboxBacklog(ctx)
	if err != nil || !slices.ContainsFunc(before, func(b operate.OutboxBacklog) bool { return b.Pending > p.limits.unsent }) {
		r.ok("no topic has more than %d messages waiting", p.limits.unsent)
		return err
	}
	p.wait(ctx, p.limits.pause)
	now, err := p.outboxBacklog(ctx)
	for _, b := range now {
		at := slices.IndexFunc(before, func(o operate.OutboxBacklog) bool { return o.Topic == b.Topic })
		if at >= 0 && before[at].Pending > p.limits.unsent && b.Pending > before[at].Pending {
			r.warn("topic %s: %d messages waited to be sent, and %d did %s later", b.Topic, before[at].Pending, b.Pending,
				p.limits.pause)
		}
	}
	r.ok("what waits does not grow")
	return err
}

func outboxDead(ctx context.Context, p *target, r *report) error {
	const many = 1000
	backlog, err := p.outboxBacklog(ctx)
	for _, b := range backlog {
		level := Info
		if b.Dead >= many {
			level = Warning
		}
		if b.Dead > 0 {
			r.add(level, "%s messages to topic %s were given up", capped(b.Dead, operate.BacklogCap), b.Topic)
		}
	}
	r.ok("nothing was given up")
	return err
}

func outboxDuplicates(ctx context.Context, p *target, r *report) error {
	const few, many, enough = 0.02, 0.2, 20
	found, err := p.twins(ctx, p.limits.sample)
	for _, f := range found {
		share := float64(f.Repeated) / float64(max(1, f.Messages))
		if f.Messages < enough || share < few {
			continue
		}
		level := Info
		if share >= many {
			level = Warning
		}
		r.add(level, "topic %s: %d of the newest %d messages have key and content of one of the five minutes before, "+
			"under another ID", f.Topic, f.Repeated, f.Messages)
	}
	r.ok("topics looked at: %d", len(found))
	return err
}

func outboxBloat(ctx context.Context, p *target, r *report) error {
	const tooLarge = 4
	f, err := p.outboxSize(ctx)
	if err == nil && !f.More && f.Bytes > p.limits.outboxBytes && f.Bytes > tooLarge*f.Rows*f.RowBytes {
		r.warn("it takes %s for %d messages", size(f.Bytes), f.Rows)
	}
	r.ok("it takes %s", size(f.Bytes))
	return err
}
