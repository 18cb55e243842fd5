package telemetry

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

func TestRecordsWithinASpanNameIt(t *testing.T) {
	out := &bytes.Buffer{}
	log := slog.New(WithTrace(slog.NewTextHandler(out, nil))).With("handler", "h")
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	log.InfoContext(trace.ContextWithSpanContext(context.Background(), span), "within")
	log.Info("without")
	require.Contains(t, out.String(),
		"msg=within handler=h trace_id=01000000000000000000000000000000 span_id=0200000000000000\n")
	require.Contains(t, out.String(), "msg=without handler=h\n")
}
