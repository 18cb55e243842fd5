package ingress

import (
	"log/slog"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/instruments"
)

const scopeName = "github.com/firstseen/firstseen/handlers/ingress"

// events log and count messages with a key, by the names that package idempotency has for requests; requests counts
// all requests.
type events struct {
	miss, hit, conflict event
	requests            metric.Int64Counter
}

type event struct {
	name    string
	level   slog.Level
	counter metric.Int64Counter
	counted []metric.AddOption
}

func newEvents(c Config) *events {
	counter := instruments.IdempotentRequests.Counter(c.MeterProvider.Meter(scopeName))
	of := func(name, outcome string, level slog.Level) event {
		return event{name, level, counter, instruments.Add(instruments.Route.String(messagesPath),
			instruments.Outcome.String(outcome))}
	}
	return &events{requests: instruments.IngressRequests.Counter(c.MeterProvider.Meter(scopeName)),
		miss:     of(idempotency.EventMiss, "miss", slog.LevelInfo),
		hit:      of(idempotency.EventHit, "hit", slog.LevelInfo),
		conflict: of(idempotency.EventConflict, "conflict", slog.LevelWarn)}
}

// count counts a request by its answer; code is that of its problem, if it has one.
func (x *exchange) count(status int, code string) {
	var attributes []attribute.KeyValue
	if x.topic != nil {
		attributes = append(attributes, instruments.Topic.String(x.topic.name))
	}
	if code != "" {
		attributes = append(attributes, instruments.Reason.String(code))
	}
	x.events.requests.Add(x.r.Context(), 1, instruments.Add(append(attributes, instruments.Status.Int(status))...)...)
}

// tell tells of each message with a key whether it was there; never the key.
func (x *exchange) tell(w *work) {
	ctx, told := x.r.Context(), map[uuid.UUID]bool{}
	for _, one := range w.posted {
		if one.idempotencyKey == "" {
			continue
		}
		e := x.events.hit
		switch m := w.known[one.id]; {
		case w.created[one.id] && !told[one.id]:
			e = x.events.miss
		case m != nil && m.kept && (m.Topic != x.topic.name || x.topic.RefuseOther && isOther(m, one.item)):
			e = x.events.conflict
		}
		told[one.id] = true
		x.cfg.Logger.Log(ctx, e.level, e.name, "request_id", x.requestID, "tenant", x.caller.Tenant, "scope", x.topic.name)
		e.counter.Add(ctx, 1, e.counted...)
	}
}
