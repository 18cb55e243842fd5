package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/handlers"
)

// Inbox is the name of the inbox that sent messages lie in, where Config says no other.
const Inbox = dedup.OutboxInbox

// Destination is where the messages of topics are sent.
type Destination struct {
	// Name is the sender's, as operators name a handler. Required, and never changed: it is part of what a message is
	// known by.
	Name string
	// Topics are those that it sends. No other destination has them. Required.
	Topics []string
	// Sender sends many at once: consumer/sender to Kafka, or a [Func]. Either it or Detached is required.
	Sender handlers.Sender
	// Detached sends one message a call, in no transaction: a [handlers.Webhook]. What it is to send is parked for its
	// calls first.
	Detached handlers.Detached
	// Concurrency is how many calls of Detached are under way at once, of different keys. Default 8.
	Concurrency int
	// Workers is how many batches for it are under way at once, each with two connections. Default 2.
	Workers int
	// MaxParked is how many messages of a shard, a sixteenth of a topic's keys, may be parked: while there are more, the
	// shard's others stay in the outbox. Default 1,000.
	MaxParked int
	// Retry is for messages that it fails on. Default: 5 attempts, with pauses of up to 10 s at first, doubling up to 5
	// minutes.
	Retry handlers.Retry
}

// WithDefaults is the destination with a default wherever it says nothing.
func (d Destination) WithDefaults() Destination {
	d.Workers = cmp.Or(max(0, d.Workers), 2)
	d.MaxParked = cmp.Or(max(0, d.MaxParked), 1000)
	d.Retry.Base = cmp.Or(d.Retry.Base, min(10*time.Second, cmp.Or(d.Retry.Cap, time.Hour)))
	d.Retry.MaxAttempts = cmp.Or(d.Retry.MaxAttempts, 5)
	r := handlers.Registration{Concurrency: d.Concurrency, Retry: d.Retry}.WithDefaults()
	d.Concurrency, d.Retry = r.Concurrency, r.Retry
	return d
}

// register adds the destination as a handler. log hears of what is sent.
func (d *Destination) register(in *handlers.Registry, log dispatches) error {
	if (d.Sender == nil) == (d.Detached == nil) {
		return fmt.Errorf("destination %s: either a sender or a detached one is required", d.Name)
	}
	for _, topic := range in.Topics() {
		for _, own := range d.Topics {
			if topic == own {
				return fmt.Errorf("destination %s: another one has topic %s too", d.Name, topic)
			}
		}
	}
	r := handlers.Registration{Name: d.Name, Topics: d.Topics, Concurrency: d.Concurrency, Retry: d.Retry}
	if d.Sender != nil {
		r.Handler = handlers.Send(toldSender{d.Sender, log})
	} else {
		r.Detached = toldDetached{d.Detached, log}
	}
	return in.Add(r)
}

// Config configures a Relay. Every field but the first two has a default.
type Config struct {
	// Pool is the database's. Prepare its config with dedup.PreparePool, and let it have Relay.Connections.
	Pool *pgxpool.Pool
	// Destinations are where messages go. One of a topic that has none stays in the outbox.
	Destinations []Destination
	// Store is the inbox that the messages lie in afterwards. Its Inbox is "outbox" by default.
	Store dedup.Config
	// Batch caps the messages that are sent together. Default 1,000.
	Batch int
	// Memory is the account of what messages take while they are sent. Default: one of 64 MiB.
	Memory *memory.Account
	// IdlePoll is how often the outbox is looked at while nothing comes; see Relay.Wake. While something does it is every
	// 10 ms. Default 5 seconds.
	IdlePoll time.Duration
	// Listen has the relay woken by whoever adds with Writer.Notify.
	Listen bool
	// SendTimeout bounds the sending of a batch. After twice that Postgres gives the shards of a process that is stopped
	// or cut off to another. Default 1 minute.
	SendTimeout time.Duration
	// DrainTimeout is how long what is being sent may go on once the context of Run has ended. What is not settled by then
	// is sent again. Default SendTimeout.
	DrainTimeout time.Duration
	// LanePoll is [handlers.Config.LanePoll]. Default 2 seconds: what failed is tried again later than that.
	LanePoll time.Duration
	// Holds registers the waits of this process. Beside a consumer that is the consumer's, who logs them and tells them in
	// Postgres. Default one of its own: then the relay does that.
	Holds *holds.Registry
	// Logger, MeterProvider and TracerProvider are as in [handlers.Config].
	Logger         *slog.Logger
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// Observe is [handlers.Config.Observe].
	Observe func(handlers.Stage)
}

// WithDefaults is the config with a default wherever it says nothing.
func (c Config) WithDefaults() Config {
	c.Store.Inbox = cmp.Or(c.Store.Inbox, Inbox)
	c.Batch = cmp.Or(max(0, c.Batch), 1000)
	c.IdlePoll = cmp.Or(max(0, c.IdlePoll), 5*time.Second)
	c.SendTimeout = cmp.Or(max(0, c.SendTimeout), time.Minute)
	c.LanePoll = cmp.Or(max(0, c.LanePoll), 2*time.Second)
	c.DrainTimeout = cmp.Or(max(0, c.DrainTimeout), c.SendTimeout)
	c.Memory = cmp.Or(c.Memory, memory.New(64<<20))
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Holds = cmp.Or(c.Holds, holds.New(c.Logger))
	c.Destinations = slices.Clone(c.Destinations)
	for i := range c.Destinations {
		c.Destinations[i] = c.Destinations[i].WithDefaults()
	}
	return c
}

func (c *Config) dispatches(d *Destination) dispatches { return dispatches{c.Logger, d.Name} }

// processor makes what settles the messages.
func (c *Config) processor(store *dedup.Store) (*handlers.Processor, error) {
	registry := &handlers.Registry{}
	var faults []error
	for i := range c.Destinations {
		d := &c.Destinations[i]
		faults = append(faults, d.register(registry, c.dispatches(d)))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	p, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry, HandlerTimeout: c.SendTimeout,
		LanePoll: c.LanePoll, Holds: c.Holds, Logger: c.Logger, MeterProvider: c.MeterProvider,
		TracerProvider: c.TracerProvider, Observe: c.Observe})
	if err == nil {
		p.Draw(c.Memory)
	}
	return p, err
}
