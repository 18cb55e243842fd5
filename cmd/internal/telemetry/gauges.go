package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/dedup/operate"
)

const scope = "github.com/firstseen/firstseen/cmd/internal/telemetry"

// How often Postgres is asked, and how long it may take to answer. A scrape never waits for it.
const (
	backlogEvery, backlogLimit = 15 * time.Second, 5 * time.Second
	sizeEvery, sizeLimit       = 5 * time.Minute, 20 * time.Second
)

// GaugesConfig says whose gauges they are. All is required.
type GaugesConfig struct {
	Inbox  *operate.Inbox
	Window *Window
	// Capacity gives the size of Postgres' disk in bytes; 0: not known.
	Capacity func() int64

	MeterProvider metric.MeterProvider
	Logger        *slog.Logger
}

// Gauges show what is known only by asking: what lies in Postgres, and what a Window saw.
type Gauges struct {
	cfg     GaugesConfig
	backlog *poll[[]operate.Backlog]
	size    *poll[operate.Size]
}

// NewGauges makes Gauges. They are there while Run runs.
func NewGauges(cfg GaugesConfig) *Gauges {
	return &Gauges{
		cfg: cfg,
		backlog: &poll[[]operate.Backlog]{what: "backlog", every: backlogEvery, limit: backlogLimit,
			ask: cfg.Inbox.Backlog, log: cfg.Logger},
		size: &poll[operate.Size]{what: "size", every: sizeEvery,
			limit: sizeLimit, ask: cfg.Inbox.Size, log: cfg.Logger},
	}
}

// Run asks now and then until ctx ends, and moves the window.
func (g *Gauges) Run(ctx context.Context) {
	defer g.observe()()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { g.cfg.Window.Run(ctx) })
	turn := make(chan struct{}, 1) // one question at a time
	wg.Go(func() { g.backlog.run(ctx, turn) })
	wg.Go(func() { g.size.run(ctx, turn) })
}

// gaugeInstruments are their instruments.
type gaugeInstruments struct {
	pending, oldest, dead, rows, bytes, used, growth, days, age, throughput, failures metric.Float64Observable
}

// observe tells the last answers until stop is called.
func (g *Gauges) observe() (stop func()) {
	m := g.cfg.MeterProvider.Meter(scope)
	into := &gaugeInstruments{
		pending: instruments.Pending.Gauge(m), oldest: instruments.OldestAge.Gauge(m), dead: instruments.Dead.Gauge(m),
		rows: instruments.Rows.Gauge(m), bytes: instruments.Bytes.Gauge(m), used: instruments.DiskUsed.Gauge(m),
		growth: instruments.Growth.Gauge(m), days: instruments.DaysLeft.Gauge(m), age: instruments.PollAge.Gauge(m),
		throughput: instruments.Throughput.Gauge(m), failures: instruments.FailureRatio.Gauge(m),
	}
	registration, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		now := time.Now()
		rates := g.cfg.Window.Rates()
		o.ObserveFloat64(into.throughput, rates.Throughput)
		o.ObserveFloat64(into.failures, rates.FailureRatio)
		if found, ok := latest(o, into.age, g.backlog, now); ok {
			into.inbox(o, found, now)
		}
		if size, ok := latest(o, into.age, g.size, now); ok {
			into.disk(o, size, g.cfg.Capacity())
		}
		return nil
	}, into.pending, into.oldest, into.dead, into.rows, into.bytes, into.used, into.growth, into.days, into.age,
		into.throughput, into.failures)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() { _ = registration.Unregister() }
}

// latest is a poll's last answer, and tells its age. It is no longer one when it is old.
func latest[T any](o metric.Observer, age metric.Float64Observable, p *poll[T], now time.Time) (answer T, ok bool) {
	answer, at := p.last()
	if at.IsZero() {
		return answer, false
	}
	old := now.Sub(at)
	o.ObserveFloat64(age, old.Seconds(), instruments.Observe(instruments.Figure.String(p.what))...)
	return answer, old < 5*p.every
}

func (g *gaugeInstruments) inbox(o metric.Observer, found []operate.Backlog, now time.Time) {
	for i := range found {
		b := &found[i]
		of := func(more ...attribute.KeyValue) []metric.ObserveOption {
			return instruments.Observe(append(more, instruments.Handler.String(b.Handler))...)
		}
		age := 0.0
		if !b.OldestAt.IsZero() {
			age = max(0, now.Sub(b.OldestAt).Seconds())
		}
		o.ObserveFloat64(g.pending, float64(b.Pending), of(instruments.State.String("pending"))...)
		o.ObserveFloat64(g.pending, float64(b.Failed), of(instruments.State.String("failed"))...)
		o.ObserveFloat64(g.oldest, age, of()...)
		o.ObserveFloat64(g.dead, float64(b.Dead), of()...)
	}
}

func (g *gaugeInstruments) disk(o metric.Observer, size operate.Size, capacity int64) {
	for _, t := range size.Tables {
		of := instruments.Observe(instruments.Table.String(t.Name))
		o.ObserveFloat64(g.rows, float64(t.Rows), of...)
		o.ObserveFloat64(g.bytes, float64(t.Bytes), of...)
	}
	o.ObserveFloat64(g.used, float64(size.Used))
	if size.Growth == (operate.Growth{}) {
		return
	}
	o.ObserveFloat64(g.growth, float64(size.Growth.IDBytes),
		instruments.Observe(instruments.Table.String("message_dedup"))...)
	o.ObserveFloat64(g.growth, float64(size.Growth.InboxBytes),
		instruments.Observe(instruments.Table.String("inbox"))...)
	if daily := size.Growth.IDBytes + size.Growth.InboxBytes; capacity > 0 && daily > 0 {
		o.ObserveFloat64(g.days, max(0, float64(capacity-size.Used)/float64(daily)))
	}
}

// poll asks for something now and then, in bounded time, and keeps the last answer.
type poll[T any] struct {
	what         string
	every, limit time.Duration
	ask          func(context.Context) (T, error)
	log          *slog.Logger

	failing bool

	mu     sync.Mutex
	answer T
	at     time.Time
}

// run asks at once and then in its interval until ctx ends. Who shares a turn with others never asks beside one of
// them.
func (p *poll[T]) run(ctx context.Context, turn chan struct{}) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case turn <- struct{}{}:
		}
		p.once(ctx)
		<-turn
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *poll[T]) once(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	answer, err := p.ask(limited)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if !p.failing {
			p.log.Warn("a figure for metrics is missing; asking again",
				"figure", p.what, "every", p.every, "error", err)
		}
		p.failing = true
		return
	}
	p.failing = false
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer, p.at = answer, time.Now()
}

// last is the last answer and when it came; zero: none yet.
func (p *poll[T]) last() (T, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer, p.at
}
