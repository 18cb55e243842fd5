package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// outboxFacts are measured where this process sends out of the outbox; its health is judged by them.
type outboxFacts struct {
	backlog []operate.OutboxBacklog // nil where Postgres does not answer
	dead    *int64                  // within an hour; nil: it could not be counted
	rates   handlers.Rates
}

// askOutbox asks Postgres what waits in the outbox; nil: this process does not send out of it.
func askOutbox(ctx context.Context, parts *attached) (*outboxFacts, error) {
	if parts.relayed == nil {
		return nil, nil
	}
	f := &outboxFacts{}
	dead, errDead := parts.Inbox.Outbox().RecentlyDead(ctx, time.Hour)
	if errDead == nil {
		f.dead = &dead
	}
	var err error
	f.backlog, err = parts.Inbox.OutboxBacklog(ctx)
	return f, errors.Join(errDead, err)
}

// checkOutbox holds what is sent out of the outbox against the limits, by itself.
func (f *facts) checkOutbox() []Check {
	if f.outbox == nil {
		return nil
	}
	return []Check{f.checkOutboxBacklog(), f.checkOutboxAge(),
		checkRates("outbox_failure_ratio", f.outbox.rates, f.limits),
		checkLetters("outbox_dead_letters", f.outbox.dead, "firstseen outbox list --status dead", f.limits)}
}

func (f *facts) checkOutboxBacklog() Check {
	c := Check{Name: "outbox_backlog", Status: healthy, Unit: "messages",
		Reason: "how many messages wait to be sent could not be found out"}
	if f.outbox.backlog == nil {
		if f.opened && f.postgres == nil {
			c.Status = degraded
		}
		return c
	}
	waiting, more := int64(0), ""
	for _, b := range f.outbox.backlog {
		waiting += b.Backlog()
		if b.Capped {
			more = " or more: not all are counted"
		}
	}
	c.Reason = fmt.Sprintf("%d messages wait to be sent%s", waiting, more)
	c.hold(float64(waiting), float64(f.limits.Degraded.Backlog), float64(f.limits.Unhealthy.Backlog))
	return c
}

func (f *facts) checkOutboxAge() Check {
	c := Check{Name: "outbox_oldest_age", Unit: "seconds", Reason: "no message waits to be sent"}
	var oldest time.Duration
	for _, b := range f.outbox.backlog {
		if waited := f.now.Sub(b.OldestAt); !b.OldestAt.IsZero() && waited > oldest {
			oldest = waited
			c.Reason = "the oldest message that is to be sent has waited for " + spoken(oldest) + ", to topic " + b.Topic
		}
	}
	c.hold(oldest.Seconds(), f.limits.Degraded.OldestAge.Seconds(), f.limits.Unhealthy.OldestAge.Seconds())
	return c
}
