package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// Relay sends what transactions have added. Any number of them, in any number of processes, share the work: the
// messages of a key are sent by one at a time, in their order. It is safe for concurrent use.
type Relay struct {
	cfg       Config
	store     *dedup.Store
	processor *handlers.Processor
	sql       statements
	workers   []*worker
	tender    *wait.Bell
	alone     bool // nobody else tells what waits

	partitionsEvery time.Duration // how often days of the inbox, which sent messages lie in, are made ahead

	mu     sync.Mutex
	shards map[place]*shard // that this relay has sent messages of, and nobody is at now
}

// New makes a Relay. It checks that the database's schema is this build's, and waits for Postgres as dedup.Open does.
func New(ctx context.Context, cfg Config) (*Relay, error) {
	alone := cfg.Holds == nil
	cfg = cfg.WithDefaults()
	cfg.Store.Holds = cmp.Or(cfg.Store.Holds, cfg.Holds)
	store, err := dedup.Open(ctx, cfg.Pool, cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("new relay: %w", err)
	}
	processor, err := cfg.processor(store)
	if err != nil {
		return nil, fmt.Errorf("new relay: %w", err)
	}
	r := &Relay{cfg: cfg, store: store, processor: processor, sql: newStatements(store.Config().Schema),
		tender: wait.NewBell(), alone: alone, partitionsEvery: time.Hour,
		shards: map[place]*shard{}}
	for i := range cfg.Destinations {
		d := &cfg.Destinations[i]
		for range d.Workers {
			r.workers = append(r.workers, &worker{Relay: r, to: d, bell: wait.NewBell(), told: cfg.dispatches(d)})
		}
	}
	return r, nil
}

// Processor is what settles the messages: its totals count them, and its holds say what waits.
func (r *Relay) Processor() *handlers.Processor { return r.processor }

// Destinations are those of the config. Nobody may change them.
func (r *Relay) Destinations() []Destination { return r.cfg.Destinations }

// Connections is how many connections the pool has to have.
func (r *Relay) Connections() int {
	return r.processor.Connections(len(r.workers)) + len(r.workers) + 1
}

// Wake has the outbox looked at now: call it once a transaction that has added has committed. It never waits.
func (r *Relay) Wake() {
	r.tender.Ring()
	r.wakeWorkers()
}

func (r *Relay) wakeWorkers() {
	for _, w := range r.workers {
		w.bell.Ring()
	}
}

// Run sends until ctx ends. What is being sent then is finished, for up to Config.DrainTimeout.
func (r *Relay) Run(ctx context.Context) {
	if err := r.processor.LookUpPauses(ctx); err != nil && ctx.Err() == nil {
		r.cfg.Logger.Warn("what is paused is not known yet", "error", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.processor.RunLanes(ctx) })
	running.Go(func() { r.tend(ctx) })
	if r.alone {
		running.Go(func() { r.cfg.Holds.Run(ctx) })
		running.Go(func() { r.store.KeepHoldsTold(ctx, r.consumer(), r.cfg.Holds, r.cfg.Logger) })
	}
	if r.cfg.Listen {
		running.Go(func() { r.listen(ctx) })
	}
	for _, w := range r.workers {
		running.Go(func() { w.run(ctx) })
	}
}

const (
	// busyPoll is the pause while messages come, and busyFor how long after the last one.
	busyPoll, busyFor = 10 * time.Millisecond, time.Second
	// lookEvery is the time between two looks at what nobody sends, and unsentAfter how long that has lain there then.
	lookEvery, unsentAfter = 30 * time.Second, time.Minute
)

// tend gives the workers what falls due, and looks now and then for what nobody gives them, and that days of the inbox
// are there.
func (r *Relay) tend(ctx context.Context) {
	hold := r.cfg.Holds.Place(holds.InboxKind, r.store.Inbox())
	defer hold.Leave()
	unsent := unsent{registry: r.cfg.Holds}
	defer unsent.leave()
	retry, looked, made := wait.NewBackoff(), time.Time{}, time.Now() // by New
	for ctx.Err() == nil {
		var err error
		if time.Since(looked) > lookEvery {
			err = r.look(ctx, &unsent)
			looked = time.Now()
		}
		if err == nil && time.Since(made) > r.partitionsEvery {
			_, err = r.store.MakePartitions(ctx)
			made = time.Now()
		}
		pause, releaseErr := r.release(ctx)
		if err = errors.Join(err, releaseErr); err != nil && ctx.Err() == nil {
			hold.Wait(holds.OfPostgres(err), err)
			retry.Wait(ctx)
			looked = time.Time{}
			continue
		}
		hold.End()
		retry = wait.NewBackoff()
		rest(ctx, r.tender, min(max(pause, busyPoll), r.cfg.IdlePoll))
	}
}

func rest(ctx context.Context, bell *wait.Bell, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-bell.C:
	case <-timer.C:
	}
}

// look makes sure that what this relay sends can be claimed, and shows what nobody sends.
func (r *Relay) look(ctx context.Context, unsent *unsent) error {
	topics := r.processor.Topics()
	err := r.store.Answered(ctx, 0, func(ctx context.Context) error {
		_, err := r.store.Pool().Exec(ctx, r.sql.open, topics)
		return err
	})
	if err != nil {
		return fmt.Errorf("open the outbox's shards: %w", err)
	}
	found := map[string]time.Time{}
	err = r.store.Answered(ctx, 0, func(ctx context.Context) error {
		rows, err := r.store.Pool().Query(ctx, r.sql.unsent, topics, time.Now().Add(-unsentAfter))
		if err != nil {
			return err
		}
		var topic string
		var since time.Time
		_, err = pgx.ForEachRow(rows, []any{&topic, &since}, func() error {
			found[topic] = since
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("look for topics without a sender: %w", err)
	}
	unsent.show(found)
	return nil
}

// unsent shows topics whose messages nobody sends.
type unsent struct {
	registry *holds.Registry
	places   map[string]*holds.Place
}

func (u *unsent) show(since map[string]time.Time) {
	for topic, place := range u.places {
		if _, still := since[topic]; !still {
			place.End()
			delete(u.places, topic)
		}
	}
	for topic, at := range since {
		if u.places == nil {
			u.places = map[string]*holds.Place{}
		}
		if u.places[topic] == nil {
			u.places[topic] = u.registry.Place(holds.TopicKind, topic)
		}
		u.places[topic].WaitSince(at, holds.NoSender, errNoSender)
	}
}

func (u *unsent) leave() {
	for _, place := range u.places {
		place.Leave()
	}
}

var errNoSender = errors.New("its messages lie in the outbox, and this relay has no destination for it")

// listen wakes the relay when somebody says that he has added.
func (r *Relay) listen(ctx context.Context) {
	retry := wait.NewBackoff()
	for ctx.Err() == nil {
		err := r.hear(ctx, func() { retry = wait.NewBackoff() })
		if ctx.Err() == nil {
			r.cfg.Logger.Debug("the outbox is not listened to for now", "error", err)
			retry.Wait(ctx)
		}
	}
}

// connect makes a connection as the pool would.
func (r *Relay) connect(ctx context.Context) (*pgx.Conn, error) {
	pool := r.store.Pool().Config()
	conf := pool.ConnConfig.Copy()
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, conf); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, conf)
}

// hear listens on a connection of its own. What came before it did is looked for.
func (r *Relay) hear(ctx context.Context, listening func()) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost with it
	if _, err = conn.Exec(ctx, `listen `+pgx.Identifier{channel(r.store.Config().Schema)}.Sanitize()); err != nil {
		return err
	}
	listening()
	for err == nil {
		r.Wake()
		_, err = conn.WaitForNotification(ctx)
	}
	return err
}
