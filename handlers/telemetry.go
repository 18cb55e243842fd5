package handlers

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

const scope = "github.com/firstseen/firstseen/handlers"

// What becomes of messages, as metrics say it.
const (
	outcomeNew       = "new"
	outcomeDuplicate = "duplicate"
	outcomeConflict  = "conflict"
	outcomeParked    = "parked"
	outcomeDead      = "dead"
	outcomeBuried    = "buried"
	outcomeHandled   = "handled" // of a parked message
	outcomeOK        = "ok"      // of a call
	outcomeFailed    = "failed"
)

// telemetry measures and traces. The attributes of all that is counted on the way of messages
// that are handled are made once.
type telemetry struct {
	tracer                          trace.Tracer
	messages, lanes, failures, dead metric.Int64Counter
	duration                        metric.Float64Histogram
	ofTopic                         sync.Map // topicOf → *topicOptions
	ofHandler                       map[*registered]*handlerOptions
}

type topicOf struct {
	target *registered
	topic  string
}

type topicOptions struct {
	fresh, duplicate, conflict, parked, dead, buried []metric.AddOption
}

type handlerOptions struct {
	span          string // a batch's turn at the handler
	handled, dead []metric.AddOption
	ok, failed    []metric.RecordOption
}

func newTelemetry(cfg Config) *telemetry {
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	meter := cfg.MeterProvider.Meter(scope)
	t := &telemetry{
		tracer:   cfg.TracerProvider.Tracer(scope),
		messages: instruments.Outcomes.Counter(meter), lanes: instruments.LaneOutcomes.Counter(meter),
		failures: instruments.Failures.Counter(meter), dead: instruments.DeadLetters.Counter(meter),
		duration:  instruments.HandlerDuration.Histogram(meter),
		ofHandler: map[*registered]*handlerOptions{},
	}
	for topic, targets := range cfg.Handlers.byTopic {
		for _, target := range targets {
			t.topic(topicOf{target, topic})
		}
	}
	for _, target := range cfg.Handlers.all {
		t.ofHandler[target] = newHandlerOptions(target.name)
	}
	t.begin()
	return t
}

func newTopicOptions(topic, handler string) *topicOptions {
	with := func(outcome string) []metric.AddOption {
		return instruments.Add(instruments.Topic.String(topic), instruments.Handler.String(handler),
			instruments.Outcome.String(outcome))
	}
	return &topicOptions{fresh: with(outcomeNew), duplicate: with(outcomeDuplicate), conflict: with(outcomeConflict),
		parked: with(outcomeParked), dead: with(outcomeDead), buried: with(outcomeBuried)}
}

func newHandlerOptions(handler string) *handlerOptions {
	name := instruments.Handler.String(handler)
	return &handlerOptions{
		span:    "handler " + handler,
		handled: instruments.Add(name, instruments.Outcome.String(outcomeHandled)),
		dead:    instruments.Add(name, instruments.Outcome.String(outcomeDead)),
		ok:      instruments.Record(name, instruments.Outcome.String(outcomeOK)),
		failed:  instruments.Record(name, instruments.Outcome.String(outcomeFailed)),
	}
}

// failedReasons lists the reasons for which a try fails.
var failedReasons = []string{
	reasonFailed, reasonUnavailable, reasonPermanent, reasonUndecodable, reasonExhausted, reasonTooOld, reasonEndedSession,
}

// deadReasons lists the reasons for which a message is dead.
var deadReasons = []string{
	reasonPermanent, reasonUndecodable, reasonExhausted, reasonTooOld, reasonEndedSession, string(ReasonKilled),
	string(identity.ReasonMissingID), string(identity.ReasonAmbiguousID), string(identity.ReasonIDTooLong),
	string(identity.ReasonIDNotScalar), string(identity.ReasonNilID), string(identity.ReasonNotJSON),
	string(identity.ReasonFramed), string(identity.ReasonBadTenant),
}

// topic are the options of a topic's messages for a handler. What is new, as where a pattern has matched the topic, is
// begun: see begin.
func (t *telemetry) topic(of topicOf) *topicOptions {
	if known, is := t.ofTopic.Load(of); is {
		return known.(*topicOptions)
	}
	o, ctx := newTopicOptions(of.topic, of.target.name), context.Background()
	for _, options := range [][]metric.AddOption{o.fresh, o.duplicate, o.conflict, o.parked, o.dead, o.buried} {
		t.messages.Add(ctx, 0, options...)
	}
	t.ofTopic.Store(of, o)
	return o
}

// Awaits has the counters of a topic's messages begin at 0, as those of topics with handlers by name do: a rate misses
// the first event of a counter that appears with it.
func (p *Processor) Awaits(topic string) {
	for _, target := range p.cfg.Handlers.of(topic) {
		p.telemetry.topic(topicOf{target, topic})
	}
}

// begin starts the counters at 0: a rate misses the first event of a counter that appears with it.
func (t *telemetry) begin() {
	ctx := context.Background()
	for target, o := range t.ofHandler {
		t.lanes.Add(ctx, 0, o.handled...)
		t.lanes.Add(ctx, 0, o.dead...)
		for _, reason := range failedReasons {
			t.failures.Add(ctx, 0, byReason(target, reason)...)
		}
		for _, reason := range deadReasons {
			t.dead.Add(ctx, 0, byReason(target, reason)...)
		}
	}
}

func byReason(target *registered, reason string) []metric.AddOption {
	return instruments.Add(instruments.Handler.String(target.name), instruments.Reason.String(reason))
}

// came counts what became of a batch's messages for one handler.
func (t *telemetry) came(target *registered, topic string, r Result) {
	o, ctx := t.topic(topicOf{target, topic}), context.Background()
	add := func(n int, options []metric.AddOption) {
		if n > 0 {
			t.messages.Add(ctx, int64(n), options...)
		}
	}
	add(r.New, o.fresh)
	add(r.Duplicates, o.duplicate)
	add(r.Conflicts, o.conflict)
	add(r.Parked, o.parked)
	add(r.Dead, o.dead)
	add(r.Buried, o.buried)
}

// left counts what became of parked messages.
func (t *telemetry) left(target *registered, handled, dead int) {
	o, ctx := t.ofHandler[target], context.Background()
	if handled > 0 {
		t.lanes.Add(ctx, int64(handled), o.handled...)
	}
	if dead > 0 {
		t.lanes.Add(ctx, int64(dead), o.dead...)
	}
}

func (t *telemetry) failed(target *registered, failed isolate.Tries) {
	for reason, n := range failed {
		t.failures.Add(context.Background(), int64(n), byReason(target, reason)...)
	}
}

func (t *telemetry) died(target *registered, entries []dedup.Entry) {
	reasons := map[string]int64{}
	for i := range entries {
		if e := &entries[i]; e.Outcome == dedup.New && e.State == dedup.Dead {
			reasons[e.Reason]++
		}
	}
	for reason, n := range reasons {
		t.dead.Add(context.Background(), n, byReason(target, reason)...)
	}
}

// took notes how long a call of a handler took.
func (t *telemetry) took(target *registered, since time.Time, failed bool) {
	o := t.ofHandler[target]
	options := o.ok
	if failed {
		options = o.failed
	}
	t.duration.Record(context.Background(), time.Since(since).Seconds(), options...)
}

var noSpan = trace.SpanFromContext(context.Background())

// child begins a span within one that is recorded, and none otherwise.
func (t *telemetry) child(ctx context.Context, name string) (context.Context, trace.Span) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, noSpan
	}
	return t.tracer.Start(ctx, name)
}

// turn begins the span of a handler's turn at the messages of a transaction.
func (t *telemetry) turn(ctx context.Context, target *registered, messages int) (context.Context, trace.Span) {
	ctx, span := t.child(ctx, t.ofHandler[target].span)
	if span.IsRecording() {
		span.SetAttributes(instruments.Handler.String(target.name), instruments.Messages.Int(messages))
	}
	return ctx, span
}

// endTurn ends it: as failed where the handler failed on messages, though the others go on.
func endTurn(span trace.Span, failed, of int, err error) {
	if failed > 0 && err == nil && span.IsRecording() {
		span.SetAttributes(instruments.Failed.Int(failed))
		span.SetStatus(codes.Error, fmt.Sprintf("failed on %d of %d messages", failed, of))
	}
	instruments.End(span, err)
}

// retry begins the span of a transaction over parked messages, linked to those that sent them.
func (t *telemetry) retry(ctx context.Context, target *registered, entries []dedup.Entry) (
	context.Context, trace.Span) {
	ctx, span := t.root(ctx, "retry", target)
	if span.IsRecording() {
		span.SetAttributes(instruments.Messages.Int(len(entries)))
		instruments.Link(span, instruments.OfEntries(entries))
	}
	return ctx, span
}

// deliver begins the span of a detached handler's call, linked to the one that sent the message.
func (t *telemetry) deliver(ctx context.Context, target *registered, m *dedup.Message) (context.Context, trace.Span) {
	ctx, span := t.root(ctx, "deliver", target)
	if span.IsRecording() {
		span.SetAttributes(instruments.Topic.String(m.Topic),
			instruments.Partition.String(strconv.Itoa(int(m.Partition))), instruments.Offset.Int64(m.Offset))
		instruments.Link(span, instruments.Of([]dedup.Message{*m}))
	}
	return ctx, span
}

func (t *telemetry) root(ctx context.Context, operation string, target *registered) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, operation+" "+target.name, trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(instruments.Operation.String(operation),
			instruments.Type.String("process"), instruments.Handler.String(target.name)))
}
