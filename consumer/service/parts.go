package service

import (
	"context"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// Parts are the running parts of a program. They exist once Postgres was reached.
type Parts struct {
	// Inbox is the processor's. Required.
	Inbox *operate.Inbox
	// Status and Totals are those of the consumer and the processor. They are asked all the time, and must not wait.
	// Required.
	Status func() consumer.Status
	Totals func() handlers.Totals
	// Processor takes messages of replays to their handlers, and Consumer says how they are read. Default none: no replay
	// is planned or done by this process.
	Processor *handlers.Processor
	// Transactions bound those of replays together with the consumer's. Default: nobody does.
	Transactions wait.Slots
	// Ordering is that of a handler of this process, for reruns. Default: no handler's is known.
	Ordering func(handler string) (dedup.Ordering, bool)
	// Memory accounts for the admin API's answers, together with what the consumer holds of messages. Default none: nobody
	// counts.
	Memory *memory.Account
	// Relayed has the totals of a relay of the outbox, RelayedTo those of one of its Destinations: see AddRelay. Default
	// none: nothing is told of the outbox.
	Relayed      func() handlers.Totals
	RelayedTo    func(destination string) handlers.Totals
	Destinations []outbox.Destination
	// Consumer is how the consumer reaches the cluster, for retention, and what decodes values, for who looks at them.
	// Without brokers nothing goes that came from a topic.
	Consumer consumer.Config
}

// PartsOf are the parts of a program that has a consumer and no relay.
func PartsOf(c *consumer.Consumer, p *handlers.Processor) Parts {
	return Parts{Inbox: operate.Of(p.Store()), Status: c.Status, Totals: p.Totals, Processor: p,
		Transactions: c.TransactionSlots(), Ordering: p.Ordering, Memory: c.Memory(), Consumer: c.Config()}
}

// AddRelay has the outbox told of too, out of which this process sends.
func (p *Parts) AddRelay(r *outbox.Relay) {
	p.Relayed, p.RelayedTo, p.Destinations = r.Processor().Totals, r.Processor().TotalsOf, r.Destinations()
}

// Sending is the state of a program that has no consumer, and only sends out of the outbox.
const Sending consumer.State = "sending"

// Watching is the state of a program that only reads an inbox, for who looks at it: it has no consumer, and asks none.
const Watching consumer.State = "watching"

// ofConsumers are the checks of health that only a consumer can answer.
var ofConsumers = []string{"kafka", "group", "failure_ratio", "held", "topics"}

// attached are parts, and what they did lately.
type attached struct {
	Parts
	window  *handlers.Window
	relayed *handlers.Window // nil: there is no relay
	gauges  *gauges
}

func (s *Service) attach(p Parts) *attached {
	length := func() time.Duration { return s.Settings().Health.Window }
	a := &attached{Parts: p, window: handlers.NewWindow(length, p.Totals)}
	if p.Relayed != nil {
		a.relayed = handlers.NewWindow(length, p.Relayed)
	}
	a.gauges = newGauges(s, a)
	return a
}

// outbox is how it stands with what this process sends; nil: it sends nothing.
func (a *attached) outbox(held []holds.Hold) *view.Outbox {
	if a.relayed == nil || a.RelayedTo == nil {
		return nil
	}
	topics, at := a.gauges.outbox.last()
	sent := view.OutboxOf(a.Destinations, topics, at, held).In(a.RelayedTo, a.relayed.Rates())
	return &sent
}

// Inbox is that of the attached parts; nil while there are none.
func (s *Service) Inbox() *operate.Inbox {
	if p := s.parts.Load(); p != nil {
		return p.Inbox
	}
	return nil
}

// Ordering is that of a handler of this process; false: it is not known here.
func (s *Service) Ordering(handler string) (dedup.Ordering, bool) {
	if p := s.parts.Load(); p != nil && p.Ordering != nil {
		return p.Ordering(handler)
	}
	return "", false
}

// Memory is that of the attached parts; nil while there are none, or nobody counts.
func (s *Service) Memory() *memory.Account {
	if p := s.parts.Load(); p != nil {
		return p.Memory
	}
	return nil
}

// borrow takes memory for what is done beside the consumer: so many bytes at most, and no more than a part of what there
// is for messages. Where it has to wait for them, which it does until ctx ends, waits, if set, is called before. The caller
// gives them back.
func (s *Service) borrow(ctx context.Context, most, part int, waits func()) (bytes int, giveBack func(), err error) {
	account := s.Memory()
	if account == nil {
		return most, func() {}, nil
	}
	n := min(most, account.Limit()/part)
	if !account.Try(n) {
		if waits != nil {
			waits()
		}
		if err := account.Take(ctx, n, 0); err != nil {
			return 0, nil, err
		}
	}
	return n, func() { account.Give(n) }, nil
}

// Formats decode the values of messages, by their topics, as the consumer does; nil: there is nothing to decode.
func (s *Service) Formats() handlers.Formats {
	if p := s.parts.Load(); p != nil {
		return p.Consumer.Formats()
	}
	return nil
}
