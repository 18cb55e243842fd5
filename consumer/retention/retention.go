// Package retention deletes what is done and old, where a [Policy] says so: the IDs of messages, as long as no topic
// can bring such a message again, those of messages that were sent out of the outbox with their idempotency keys, and
// days of the inbox. Kafka's side enters as a cluster.Cluster; what goes out are deletes in dedup, and reasons where it
// refused. Whatever the policy says, it deletes the answers to HTTP requests whose time is over.
//
// A [Keeper] works beside running consumers, of which any number may have one: package consumer/service has one run.
//
// Files in reading order: policy.go, retention.go, guard.go (what may come again), loop.go, answers.go (to HTTP
// requests).
package retention

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Keeper deletes what a policy says of one inbox, and of the outbox. New makes one. It is safe for concurrent use.
type Keeper struct {
	// Inbox is whose IDs go, and Cluster what may bring their messages again.
	Inbox   *operate.Inbox
	Cluster *cluster.Cluster // nil: there is none
	// Answers are deleted too.
	Answers *Answers
	// Settle is the time to wait for the commits of running consumers: a few commit intervals. Default 5 s.
	Settle time.Duration
	Logger *slog.Logger
}

// Plan says what a run would delete, and what it would not, and why.
type Plan struct {
	At time.Time
	// Handlers are those that have seen a message, in order.
	Handlers []Handler
	// Destinations are those of the outbox. No topic brings their messages again.
	Destinations []Handler
	// InboxBefore is the time that days of the inbox must have ended by to be dropped; zero: none are. Days are those.
	InboxBefore time.Time
	Days        []operate.InboxDay
	// Refusals are the reasons that Kafka's side gives whatever the age.
	Refusals []Refusal
}

// Handler is one handler's IDs.
type Handler struct {
	Name string
	// Age is the time that its IDs are kept; 0: for ever. Before is the time that they must have been first seen by to
	// go.
	Age    time.Duration
	Before time.Time
	// Refusals are why none may go; none where they may.
	Refusals []Refusal
}

// Refusal is a reason against forgetting IDs.
type Refusal struct {
	// Key stays the same while the reason does, though offsets in Text move.
	Key, Text string
}

// Plan finds out what a run would do now. It waits for the commits of running consumers, at most as long as Settle.
func (k *Keeper) Plan(ctx context.Context, r Policy) (Plan, error) {
	p := Plan{At: time.Now()}
	names, err := k.Inbox.Handlers(ctx)
	if err != nil {
		return p, err
	}
	for _, name := range names {
		age, own := r.Handlers[name]
		if !own {
			age = r.IDs
		}
		p.Handlers = append(p.Handlers, handler(name, age, p.At))
	}
	if names, err = k.Inbox.Outbox().Handlers(ctx); err != nil {
		return p, err
	}
	for _, name := range names {
		p.Destinations = append(p.Destinations, handler(name, r.OutboxKeys, p.At))
	}
	if r.Inbox > 0 {
		p.InboxBefore = p.At.Add(-r.Inbox)
		if p.Days, err = k.Inbox.InboxDaysBefore(ctx, p.InboxBefore); err != nil {
			return p, err
		}
	}
	if !slices.ContainsFunc(p.Handlers, func(h Handler) bool { return h.Age > 0 }) {
		return p, nil
	}
	settle := cmp.Or(k.Settle, 5*time.Second)
	if r.Force {
		settle = 0 // whatever it finds
	}
	f, err := k.gather(ctx, settle)
	if err != nil {
		return p, err
	}
	p.Refusals = f.againstAll()
	for i := range p.Handlers {
		if h := &p.Handlers[i]; h.Age > 0 {
			h.Refusals = append(slices.Clone(p.Refusals), f.against(h.Age, h.Before)...)
		}
	}
	return p, nil
}

func handler(name string, age time.Duration, now time.Time) Handler {
	h := Handler{Name: name, Age: age}
	if age > 0 {
		h.Before = now.Add(-age)
	}
	return h
}

// Forgets gives, for each of the handlers whose IDs a run may forget, the time that they must have been first seen by.
func Forgets(handlers []Handler, force bool) map[string]time.Time {
	before := map[string]time.Time{}
	for _, h := range handlers {
		if h.Age > 0 && (force || len(h.Refusals) == 0) {
			before[h.Name] = h.Before
		}
	}
	return before
}

// Refused are the refusals of all handlers, each once.
func (p *Plan) Refused() (all []Refusal) {
	for _, h := range p.Handlers {
		for _, r := range h.Refusals {
			if !slices.ContainsFunc(all, func(o Refusal) bool { return o.Key == r.Key }) {
				all = append(all, r)
			}
		}
	}
	return all
}

// Done counts what a run deleted.
type Done struct {
	Plan Plan
	// IDs are those of the inbox, OutboxIDs those of what was sent.
	IDs, OutboxIDs int64
	Dropped        operate.Dropped
	// Answers to HTTP requests are swept apart.
	Answers int
}

// Run deletes what Plan says; with r.Force also where that says that it may not. Only one run goes on at a time in a
// schema: the error matches operate.ErrElsewhere where there is another. On error Done has what was deleted before it.
func (k *Keeper) Run(ctx context.Context, r Policy, by operate.By) (Done, error) {
	return k.run(ctx, r, by, func(_ *operate.Inbox, all map[string]time.Time) (map[string]time.Time, error) {
		return all, nil
	})
}

func (k *Keeper) run(ctx context.Context, r Policy, by operate.By,
	due func(*operate.Inbox, map[string]time.Time) (map[string]time.Time, error)) (d Done, err error) {
	forget := func(ctx context.Context, of *operate.Inbox, handlers []Handler) (int64, error) {
		before, err := due(of, Forgets(handlers, r.Force))
		if err != nil {
			return 0, err
		}
		return of.ForgetIDs(ctx, before, by)
	}
	err = k.Inbox.Exclusively(ctx, func(ctx context.Context) (err error) {
		if d.Plan, err = k.Plan(ctx, r); err != nil {
			return err
		}
		if d.IDs, err = forget(ctx, k.Inbox, d.Plan.Handlers); err != nil {
			return err
		}
		if d.OutboxIDs, err = forget(ctx, k.Inbox.Outbox(), d.Plan.Destinations); err != nil {
			return err
		}
		if !d.Plan.InboxBefore.IsZero() {
			d.Dropped, err = k.Inbox.DropInbox(ctx, d.Plan.InboxBefore, by)
		}
		return err
	})
	return d, err
}

// ageParts says how finely retention in the background keeps to an age: a run reads all of message_dedup, so it waits
// until a twentieth of the age has passed since the last one that did.
const ageParts = 20

// due leaves out handlers whose old IDs were deleted not long ago.
func due(ctx context.Context, of *operate.Inbox, p map[string]time.Time, now time.Time) (map[string]time.Time, error) {
	forgotten, err := of.Forgotten(ctx)
	if err != nil || len(p) == 0 {
		return nil, err
	}
	for handler, before := range p {
		if last, ok := forgotten[handler]; !ok || before.Sub(last) >= now.Sub(before)/ageParts {
			return p, nil // one reading of the table does for all
		}
	}
	return nil, nil
}

// summary is a run in the words of a log line.
func (d *Done) summary() []any {
	return []any{"ids", d.IDs, "outbox_ids", d.OutboxIDs, "inbox_days", d.Dropped.Days, "inbox_bytes", d.Dropped.Bytes,
		"inbox_rows", d.Dropped.Rows, "days_in_use", d.Dropped.Busy}
}

// why is the reason that a run in the background puts beside what it deletes.
func why(r Policy) string {
	text := fmt.Sprintf("retention.ids %s, retention.inbox %s", r.IDs, r.Inbox)
	if r.OutboxKeys > 0 {
		text += fmt.Sprintf(", retention.outbox_keys %s", r.OutboxKeys)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Handlers)) {
		text += fmt.Sprintf(", retention.handlers.%s %s", name, r.Handlers[name])
	}
	if r.Force {
		text += ", retention.force"
	}
	return text
}
