package idempotency

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/dedup/instruments"
)

// Event tells the log of a request with a key: never its key, its body or a token.
type Event struct {
	// Name is one of the names below.
	Name string
	// RequestID is the answer's X-Request-Id.
	RequestID string
	// Tenant and Scope are the caller's; Route is method and route.
	Tenant, Scope, Route string
}

// The names of events.
const (
	EventMiss       = "idempotency_miss"        // the handler runs
	EventHit        = "idempotency_hit"         // an answer is given again
	EventConflict   = "idempotency_conflict"    // the key is another request's
	EventInProgress = "idempotency_in_progress" // a twin is being worked on
)

// scopeName is the instrumentation scope of the counter.
const scopeName = "github.com/firstseen/firstseen/dedup/idempotency"

// events go to the log, to Config.OnEvent and to the counter of requests.
type events struct {
	log     *slog.Logger
	hear    func(Event)
	counter metric.Int64Counter
}

func newEvents(c Config) events {
	return events{log: c.Logger, hear: c.OnEvent,
		counter: instruments.IdempotentRequests.Counter(c.MeterProvider.Meter(scopeName))}
}

// levels: a conflict is a client's fault, for somebody to look at.
var levels = map[string]slog.Level{EventConflict: slog.LevelWarn}

// outcomes are the events as values of the counter.
var outcomes = map[string]string{EventMiss: "miss", EventHit: "hit", EventConflict: "conflict",
	EventInProgress: "in_progress"}

// Outcomes that are no events: the requests were refused before anything was known of their keys.
const (
	unavailable = "unavailable"
	busy        = "busy"
)

// tell tells of an event; counted is its route for the counter, where that is one of a few.
func (e *events) tell(ctx context.Context, event Event, counted string) {
	e.log.LogAttrs(ctx, levels[event.Name], event.Name, slog.String("request_id", event.RequestID),
		slog.String("tenant", event.Tenant), slog.String("scope", event.Scope), slog.String("route", event.Route))
	e.count(ctx, counted, outcomes[event.Name])
	e.hear(event)
}

func (e *events) count(ctx context.Context, route, outcome string) {
	e.counter.Add(ctx, 1, instruments.Add(instruments.Route.String(route), instruments.Outcome.String(outcome))...)
}
