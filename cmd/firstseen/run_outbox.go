package main

import (
	"context"
	"sync"
	"time"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/sender"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// relaying sends out of the outbox. A nil one is none that was asked for: nothing comes of its methods.
type relaying struct {
	relay   *outbox.Relay
	kafka   *sender.Sender // nil: no destination is Kafka
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// send sends out of the outbox, and reads nothing, until ctx ends.
func (s *process) send(ctx context.Context) error {
	var store *dedup.Store
	err := s.reach(ctx, func(cfg config.Config) (err error) {
		store, err = dedup.Open(ctx, s.pool, cfg.Store())
		return err
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	account := memory.New(s.settings.BufferBytes)
	relay, err := s.openRelay(ctx, account, nil)
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer relay.stop()
	// no consumer tells what waits in the relay
	defer consumer.ObserveHolds(relay.processor().Holds(), s.settings.Group, s.measured.MeterProvider)()
	parts := service.Parts{Inbox: operate.Of(store), Memory: account, Status: relay.status(time.Now()),
		Totals: func() handlers.Totals { return handlers.Totals{} }, Consumer: s.settings}
	relay.addTo(&parts)
	s.around.Attach(parts)
	relay.start(ctx)
	<-ctx.Done()
	return nil
}

// openRelay connects to Postgres, for as long as it takes, and makes what sends out of the outbox; nil where the config
// has no destinations, and where ctx ends first. What waits is registered, or told by the relay where that is nil.
func (s *process) openRelay(ctx context.Context, account *memory.Account, registered *holds.Registry) (*relaying,
	error) {
	cfg := s.live.Load()
	if len(cfg.Outbox.Destinations) == 0 {
		return nil, nil
	}
	r := &relaying{}
	settings, err := cfg.ForOutbox(func() (_ handlers.Sender, err error) {
		r.kafka, err = sender.New(s.settings.Connection)
		return r.kafka, err
	}, s.log)
	if err != nil {
		return nil, err
	}
	settings.Pool, settings.Memory, settings.Holds = s.pool, account, registered
	err = dedup.Reach(ctx, s.waiting.Place(holds.StartKind, "postgres"), func() (err error) {
		r.relay, err = outbox.New(ctx, settings)
		return err
	})
	if err != nil {
		r.close()
		return nil, unlessEnded(ctx, err)
	}
	return r, nil
}

// processor settles what is sent; nil: nothing is.
func (r *relaying) processor() *handlers.Processor {
	if r == nil {
		return nil
	}
	return r.relay.Processor()
}

// addTo has what is sent told of.
func (r *relaying) addTo(parts *service.Parts) {
	if r != nil {
		parts.AddRelay(r.relay)
	}
}

// status is that of a program without a consumer.
func (r *relaying) status(since time.Time) func() consumer.Status {
	of := r.processor()
	return func() consumer.Status {
		return consumer.Status{State: service.Sending, Since: since, Pauses: of.Pauses(), Holds: of.Holds().List()}
	}
}

// start sends until stop is called, or ctx ends.
func (r *relaying) start(ctx context.Context) {
	if r == nil {
		return
	}
	ctx, r.cancel = context.WithCancel(ctx)
	r.running.Go(func() { r.relay.Run(ctx) })
}

// stop has what is being sent finished.
func (r *relaying) stop() {
	if r == nil {
		return
	}
	if r.cancel != nil {
		r.cancel()
	}
	r.running.Wait()
	r.close()
}

func (r *relaying) close() {
	if r.kafka != nil {
		r.kafka.Close()
	}
}
