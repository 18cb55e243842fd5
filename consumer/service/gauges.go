package service

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

const scope = "github.com/firstseen/firstseen/consumer/service"

// How often Postgres is asked, where Config.Poll does not say, and how long it may take to answer. A scrape never waits
// for it.
const (
	pollEvery, backlogLimit = 15 * time.Second, 5 * time.Second
	sizeEvery, sizeLimit    = 20, 20 * time.Second // every so many polls
)

// gauges show what is known only by asking: what lies in Postgres, and what windows saw.
type gauges struct {
	meter           metric.Meter
	window, relayed *handlers.Window
	capacity        func() int64
	backlog         *poll[[]operate.Backlog]
	outbox          *poll[[]operate.OutboxTopic]
	size            *poll[operate.Size]
}

// newGauges makes gauges, which are there while run runs.
func newGauges(s *Service, p *attached) *gauges {
	every := s.cfg.Poll
	return &gauges{
		meter: s.cfg.MeterProvider.Meter(scope), window: p.window, relayed: p.relayed,
		capacity: func() int64 { return s.Settings().Capacity },
		backlog: &poll[[]operate.Backlog]{what: "backlog", every: every, limit: backlogLimit,
			ask: p.Inbox.Backlog, log: s.log},
		outbox: &poll[[]operate.OutboxTopic]{what: "outbox", every: every, limit: backlogLimit,
			ask: p.Inbox.OutboxTopics, log: s.log},
		size: &poll[operate.Size]{what: "size", every: sizeEvery * every, limit: sizeLimit, ask: p.Inbox.Size, log: s.log},
	}
}

// run asks now and then until ctx ends, and moves the windows.
func (g *gauges) run(ctx context.Context) {
	defer g.observe()()
	var wg sync.WaitGroup
	wg.Go(func() { g.window.Run(ctx) })
	turn := make(chan struct{}, 1) // one question at a time
	wg.Go(func() { g.backlog.run(ctx, turn) })
	wg.Go(func() { g.size.run(ctx, turn) })
	if g.relayed != nil {
		defer g.observeOutbox()()
		wg.Go(func() { g.relayed.Run(ctx) })
		wg.Go(func() { g.outbox.run(ctx, turn) })
	}
	wg.Wait()
}

// gaugeInstruments are their instruments.
type gaugeInstruments struct {
	pending, oldest, dead, rows, bytes, used, growth, days, age, throughput, failures metric.Float64Observable
}

// observe tells the last answers until stop is called.
func (g *gauges) observe() (stop func()) {
	m := g.meter
	into := &gaugeInstruments{
		pending: instruments.Pending.Gauge(m), oldest: instruments.OldestAge.Gauge(m), dead: instruments.Dead.Gauge(m),
		rows: instruments.Rows.Gauge(m), bytes: instruments.Bytes.Gauge(m), used: instruments.DiskUsed.Gauge(m),
		growth: instruments.Growth.Gauge(m), days: instruments.DaysLeft.Gauge(m), age: instruments.PollAge.Gauge(m),
		throughput: instruments.Throughput.Gauge(m), failures: instruments.FailureRatio.Gauge(m),
	}
	return instruments.Tell(m, func(o metric.Observer) {
		now := time.Now()
		rates := g.window.Rates()
		o.ObserveFloat64(into.throughput, rates.Throughput)
		o.ObserveFloat64(into.failures, rates.FailureRatio)
		if found, ok := latest(o, into.age, g.backlog, now); ok {
			into.inbox(o, found, now)
		}
		if size, ok := latest(o, into.age, g.size, now); ok {
			into.disk(o, size, g.capacity())
		}
	}, into.pending, into.oldest, into.dead, into.rows, into.bytes, into.used, into.growth, into.days, into.age,
		into.throughput, into.failures)
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
		o.ObserveFloat64(g.pending, float64(b.Pending), of(instruments.State.String("pending"))...)
		o.ObserveFloat64(g.pending, float64(b.Failed), of(instruments.State.String("failed"))...)
		o.ObserveFloat64(g.oldest, ageOf(b.OldestAt, now), of()...)
		o.ObserveFloat64(g.dead, float64(b.Dead), of()...)
	}
}

// ageOf is in seconds; 0 where there is nothing that is old.
func ageOf(oldest, now time.Time) float64 {
	if oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(oldest).Seconds())
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
