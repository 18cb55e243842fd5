package handlers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/firstseen/firstseen/dedup"
)

// Stage is a point in the life of a batch, for Config.Observe.
type Stage string

// The stages of a batch, in their order.
const (
	StageAccepted  Stage = "accepted"  // the transaction is open and knows what is new
	StageHandled   Stage = "handled"   // the handlers have run
	StageCommitted Stage = "committed" // the transaction has committed
)

// Config is what a Processor works with.
type Config struct {
	// Store is where messages are deduplicated. Required.
	Store *dedup.Store
	// Handlers are the handlers by topic. Required.
	Handlers *Registry
	// HandlerTimeout bounds one call of a handler, for a whole batch. Default 5 minutes.
	HandlerTimeout time.Duration
	// AbandonAfter is how long a handler may go on after its context has ended, before its transaction is cut
	// off and it is left behind. Default 5 seconds.
	AbandonAfter time.Duration
	// Observe, if set, is called at each stage of each batch, from the goroutine that processes it. It is meant
	// for tests that stop or kill the process at a chosen point.
	Observe func(Stage)
}

// Processor processes batches, each in one transaction. It is safe for concurrent use; the batches of one
// partition must come one after the other.
type Processor struct {
	cfg Config
}

// NewProcessor makes a Processor.
func NewProcessor(cfg Config) (*Processor, error) {
	if cfg.Store == nil || cfg.Handlers == nil || len(cfg.Handlers.byTopic) == 0 {
		return nil, fmt.Errorf("new processor: a store and at least one handler are required")
	}
	if cfg.HandlerTimeout <= 0 {
		cfg.HandlerTimeout = 5 * time.Minute
	}
	if cfg.AbandonAfter <= 0 {
		cfg.AbandonAfter = 5 * time.Second
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Stage) {}
	}
	return &Processor{cfg}, nil
}

// Topics lists the topics that have a handler.
func (p *Processor) Topics() []string { return p.cfg.Handlers.Topics() }

// Store is the store that the processor writes to.
func (p *Processor) Store() *dedup.Store { return p.cfg.Store }

// Batch is a run of messages of one partition.
type Batch struct {
	// Position moves to Next when the batch commits.
	Position *dedup.Position
	Next     int64
	// Messages are in the order of their offsets. Empty: the position moves over what the broker keeps for
	// itself.
	Messages []dedup.Message
}

// Result counts what became of a batch's messages, each once for every handler of its topic.
type Result struct {
	New        int
	Duplicates int
	// Dead are new messages without a usable ID: they went to the dead letters and to no handler.
	Dead int
}

// Process takes one batch through its transaction. On error nothing of it has taken effect, with one exception:
// where the connection broke during the commit it is unknown, and the next call from the same position returns a
// *dedup.MovedError if it did.
//
// Errors: a *HandlerError where a handler failed, panicked or was cut off; dedup.ErrFenced and *dedup.MovedError;
// anything else is Postgres or the way to it.
func (p *Processor) Process(ctx context.Context, b Batch) (Result, error) {
	var targets []registered
	if len(b.Messages) > 0 {
		topic := b.Messages[0].Topic
		if targets = p.cfg.Handlers.byTopic[topic]; len(targets) == 0 {
			return Result{}, fmt.Errorf("process %s: the topic has no handler", topic)
		}
	}
	batch := &dedup.Batch{Position: b.Position, Next: b.Next}
	var err error
	if batch.Entries, err = p.entries(ctx, b.Messages, targets); err != nil {
		return Result{}, err
	}
	tx, err := p.cfg.Store.Accept(ctx, batch)
	if err != nil {
		return Result{}, err
	}
	defer tx.Rollback(ctx)
	p.cfg.Observe(StageAccepted)
	for i, target := range targets {
		entries := batch.Entries[i*len(b.Messages) : (i+1)*len(b.Messages)]
		if err := p.call(ctx, tx, target, fresh(b.Messages, entries)); err != nil {
			return Result{}, err
		}
	}
	p.cfg.Observe(StageHandled)
	if err := tx.Commit(ctx); err != nil {
		return Result{}, err
	}
	p.cfg.Observe(StageCommitted)
	return count(batch.Entries), nil
}

// entries lays out the messages once for each handler: all of the first handler, then all of the second.
func (p *Processor) entries(ctx context.Context, ms []dedup.Message, targets []registered) ([]dedup.Entry, error) {
	entries := make([]dedup.Entry, 0, len(ms)*len(targets))
	if len(ms) == 0 {
		return entries, nil
	}
	tenants, ofMessage := tenantsOf(ms)
	keys := make([]dedup.ScopeKey, 0, len(tenants)*len(targets))
	for _, target := range targets {
		for _, tenant := range tenants {
			keys = append(keys, dedup.ScopeKey{Handler: target.name, Tenant: tenant})
		}
	}
	scopes, err := p.cfg.Store.Scopes(ctx, keys)
	if err != nil {
		return nil, err
	}
	for t := range targets {
		for i := range ms {
			scope := scopes[t*len(tenants)+ofMessage(i)]
			entries = append(entries, dedup.Entry{Scope: scope, Message: &ms[i]})
		}
	}
	return entries, nil
}

// tenantsOf lists the tenants of a batch, and gives the place of each message's tenant in that list.
func tenantsOf(ms []dedup.Message) (tenants []string, ofMessage func(i int) int) {
	tenants = []string{ms[0].Tenant}
	single := !slices.ContainsFunc(ms, func(m dedup.Message) bool { return m.Tenant != tenants[0] })
	if single {
		return tenants, func(int) int { return 0 }
	}
	places := map[string]int{tenants[0]: 0}
	for i := range ms {
		if _, ok := places[ms[i].Tenant]; !ok {
			places[ms[i].Tenant] = len(tenants)
			tenants = append(tenants, ms[i].Tenant)
		}
	}
	return tenants, func(i int) int { return places[ms[i].Tenant] }
}

// fresh gives the messages that a handler is to see: new ones with a usable ID.
func fresh(ms []dedup.Message, entries []dedup.Entry) []dedup.Message {
	wanted := func(i int) bool { return entries[i].Outcome == dedup.New && ms[i].Reason == "" }
	first := 0
	for first < len(ms) && wanted(first) {
		first++
	}
	if first == len(ms) {
		return ms // the good path copies nothing
	}
	out := slices.Clone(ms[:first])
	for i := first + 1; i < len(ms); i++ {
		if wanted(i) {
			out = append(out, ms[i])
		}
	}
	return out
}

func count(entries []dedup.Entry) Result {
	var r Result
	for i := range entries {
		switch {
		case entries[i].Outcome != dedup.New:
			r.Duplicates++
		case entries[i].Message.Reason != "":
			r.Dead++
		default:
			r.New++
		}
	}
	return r
}
