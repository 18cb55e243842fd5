package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// WithTrace has trace_id and span_id go with each record that is logged within a span.
func WithTrace(h slog.Handler) slog.Handler { return traced{h} }

type traced struct{ slog.Handler }

// Handle adds the span's IDs.
func (t traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return t.Handler.Handle(ctx, r)
}

// WithAttrs keeps the IDs coming.
func (t traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{t.Handler.WithAttrs(attrs)} }

// WithGroup keeps the IDs coming, within the group.
func (t traced) WithGroup(name string) slog.Handler { return traced{t.Handler.WithGroup(name)} }

// valueless logs what the SDK says of its own, but none of the values: it shows headers and addresses as they came.
type valueless struct{ slog.Handler }

// Handle leaves everything out but the message.
func (v valueless) Handle(ctx context.Context, r slog.Record) error {
	return v.Handler.Handle(ctx, slog.NewRecord(r.Time, r.Level, "OpenTelemetry: "+r.Message, r.PC))
}

// WithAttrs leaves them out.
func (v valueless) WithAttrs([]slog.Attr) slog.Handler { return v }

// WithGroup leaves it out.
func (v valueless) WithGroup(string) slog.Handler { return v }

// errorPause is the time between two errors of the SDK that are logged.
const errorPause = time.Minute

// throttledErrors logs the SDK's errors, which come again with every export that fails: one a minute at most, and how
// many came before it.
type throttledErrors struct {
	log *slog.Logger

	mu     sync.Mutex
	last   time.Time
	unsaid int
}

func newThrottledErrors(log *slog.Logger) *throttledErrors { return &throttledErrors{log: log} }

// Handle makes it an otel.ErrorHandler.
func (e *throttledErrors) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.last.IsZero() && time.Since(e.last) < errorPause {
		e.unsaid++
		return
	}
	e.log.Warn("metrics or traces were not sent; the program goes on", "error", err, "others_before", e.unsaid)
	e.last, e.unsaid = time.Now(), 0
}
