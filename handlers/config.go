package handlers

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
)

// Stage is a point in the life of a batch, for Config.Observe.
type Stage string

// The stages of a batch, in their order.
const (
	StageAccepted  Stage = "accepted"  // the transaction is open and knows what is new
	StageHandled   Stage = "handled"   // the handlers have run
	StageCommitted Stage = "committed" // the transaction has committed
)

// Config configures a Processor. Every field but the first two has a default.
type Config struct {
	// Store deduplicates the messages. Required.
	Store *dedup.Store
	// Handlers are the handlers by topic. Required.
	Handlers *Registry
	// HandlerTimeout bounds one call of a handler, for a whole batch. Default 5 minutes.
	HandlerTimeout time.Duration
	// AbandonAfter is the time that a handler has after its context has ended, before its transaction is cut off and
	// it is left behind. Default 5 seconds.
	AbandonAfter time.Duration
	// LaneWorkers caps the transactions that work on parked messages at once, in this process. Default 2.
	LaneWorkers int
	// LanePoll is the time between two looks at lanes that nothing in this process has woken. Default 500 ms.
	LanePoll time.Duration
	// PausePoll is the time between two queries for what operators have paused. Default 2 seconds.
	PausePoll time.Duration
	// Holds registers the waits of this process, those of the consumer's partitions and topics among them. Default one
	// of its own, that logs to Logger.
	Holds *holds.Registry
	// Logger hears of every failed attempt; never of a payload or a key. Default slog.Default().
	Logger *slog.Logger
	// MeterProvider measures what becomes of messages; package dedup/instruments says how. Default OpenTelemetry's
	// global one, as it is when the Processor is made.
	MeterProvider metric.MeterProvider
	// TracerProvider traces: within a span that is recorded, accept, the handlers' turns and commit; and parked
	// messages in spans of their own, linked to those that sent them. A handler's context has its span. Default the
	// global one.
	TracerProvider trace.TracerProvider
	// Observe, if set, is called at each stage of each batch, from the goroutine that processes it. It is meant
	// for tests that stop or kill the process at a chosen point.
	Observe func(Stage)
}

// Processor processes batches, each in one transaction. It is safe for concurrent use; the batches of one
// partition must come one after the other.
type Processor struct {
	memory   *memory.Account
	formats  Formats
	cfg      Config
	wakes    wakes
	pauses   pauses
	batches  atomic.Int64
	totals   map[*registered]*totals
	circuits map[*registered]*circuit
	work     *work

	telemetry *telemetry
}

// WithDefaults is the config with a default wherever it says nothing.
func (c Config) WithDefaults() Config {
	if c.HandlerTimeout <= 0 {
		c.HandlerTimeout = 5 * time.Minute
	}
	if c.AbandonAfter <= 0 {
		c.AbandonAfter = 5 * time.Second
	}
	if c.LaneWorkers <= 0 {
		c.LaneWorkers = 2
	}
	if c.LanePoll <= 0 {
		c.LanePoll = 500 * time.Millisecond
	}
	if c.PausePoll <= 0 {
		c.PausePoll = 2 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Holds == nil {
		c.Holds = holds.New(c.Logger)
	}
	if c.Observe == nil {
		c.Observe = func(Stage) {}
	}
	return c
}

// NewProcessor makes a Processor.
func NewProcessor(cfg Config) (*Processor, error) {
	if cfg.Store == nil || cfg.Handlers == nil || len(cfg.Handlers.all) == 0 {
		return nil, fmt.Errorf("new processor: a store and at least one handler are required")
	}
	cfg = cfg.WithDefaults()
	p := &Processor{cfg: cfg, wakes: newWakes(cfg.Handlers.all),
		work: newWork(cfg.Handlers.all, cfg.Holds), telemetry: newTelemetry(cfg),
		circuits: make(map[*registered]*circuit, len(cfg.Handlers.all)),
		totals:   make(map[*registered]*totals, len(cfg.Handlers.all))}
	p.pauses.now.Store(&paused{changed: make(chan struct{})})
	for _, target := range cfg.Handlers.all {
		p.circuits[target] = newCircuit(target, cfg.Logger, cfg.Holds)
		p.totals[target] = &totals{}
	}
	return p, nil
}

// Topics lists the topics that have a handler by their names.
func (p *Processor) Topics() []string { return p.cfg.Handlers.Topics() }

// Patterns lists the patterns of topics that have a handler, in the order in which they are tried.
func (p *Processor) Patterns() []string { return p.cfg.Handlers.Patterns() }

// Handlers lists the names of a topic's handlers, in the order that they are called in; none: it has none.
func (p *Processor) Handlers(topic string) []string {
	var names []string
	for _, target := range p.cfg.Handlers.of(topic) {
		names = append(names, target.name)
	}
	return names
}

// Ordering is a handler's; false: there is none of that name.
func (p *Processor) Ordering(handler string) (dedup.Ordering, bool) {
	for _, target := range p.cfg.Handlers.all {
		if target.name == handler {
			return target.ordering, true
		}
	}
	return "", false
}

// Connections counts the connections that the store's pool needs where so many batches are in a transaction at once:
// one for each of them and of the lane workers, and as many more as its handler says; for each detached handler one
// and what its calls take; and one to spare, for all that is asked in between. With fewer, calls that wait for one
// another's connections may wait for ever.
func (p *Processor) Connections(transactions int) int {
	most, detached := 0, 0
	for _, target := range p.cfg.Handlers.all {
		if target.detached != nil {
			detached += 1 + target.concurrency*target.connections
		} else {
			most = max(most, target.connections)
		}
	}
	return (transactions+p.cfg.LaneWorkers)*(1+most) + detached + 1
}

// Store is the store that the processor writes to.
func (p *Processor) Store() *dedup.Store { return p.cfg.Store }

// Holds registers the waits of this process.
func (p *Processor) Holds() *holds.Registry { return p.cfg.Holds }
