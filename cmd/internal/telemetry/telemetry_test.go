package telemetry

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/instruments"
)

// begin starts telemetry with what the environment says, and gives what it logs.
func begin(t *testing.T, environ ...string) (*Telemetry, *bytes.Buffer) {
	t.Helper()
	for i := 0; i < len(environ); i += 2 {
		t.Setenv(environ[i], environ[i+1])
	}
	out := &bytes.Buffer{}
	started, err := Start(context.Background(),
		Config{Version: "v1.2.3", Logger: slog.New(slog.NewTextHandler(out, nil))})
	require.NoError(t, err)
	return started, out
}

// use counts something and makes a span.
func (t *Telemetry) use() (traced bool) {
	_, span := t.TracerProvider.Tracer("test").Start(context.Background(), "span")
	instruments.Rebalances.Counter(t.MeterProvider.Meter("test")).Add(context.Background(), 1)
	defer span.End()
	return span.IsRecording()
}

func (t *Telemetry) scrape() string {
	answer := httptest.NewRecorder()
	t.Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

func TestMetricsAreThereForPrometheusWithoutAnyEnvironment(t *testing.T) {
	started, _ := begin(t)
	defer started.Stop()
	require.False(t, started.use(), "without a collector nothing is traced")
	text := started.scrape()
	for _, line := range []string{"firstseen_rebalances_total 1\n", `service_version="v1.2.3"`, "# TYPE firstseen_rebalances_total counter\n", "go_goroutines ",
		"process_resident_memory_bytes ", `service_name="firstseen"`} {
		require.Contains(t, text, line)
	}
	require.NotContains(t, text, "otel_scope")
}

// collector notes what is sent to it, by path.
type collector struct {
	mu   sync.Mutex
	sent map[string][]string // bodies
	head http.Header
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[r.URL.Path] = append(c.sent[r.URL.Path], string(body))
	c.head = r.Header
}

func collecting(t *testing.T) (*collector, string) {
	c := &collector{sent: map[string][]string{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return c, server.URL
}

func TestStopSendsTheCollectorWhatIsLeft(t *testing.T) {
	c, url := collecting(t)
	started, log := begin(t, "OTEL_EXPORTER_OTLP_ENDPOINT", url, "OTEL_EXPORTER_OTLP_HEADERS", "api-key=k",
		"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging", "OTEL_SERVICE_NAME", "orders-inbox")
	require.True(t, started.use())
	started.Stop()
	require.Empty(t, log.String())
	for _, path := range []string{"/v1/traces", "/v1/metrics"} {
		require.Len(t, c.sent[path], 1, path)
		require.Contains(t, c.sent[path][0], "orders-inbox")
		require.Contains(t, c.sent[path][0], "staging")
	}
	require.Contains(t, c.sent["/v1/metrics"][0], "firstseen.rebalances")
	require.Equal(t, "k", c.head.Get("api-key"))
}

func TestEnvironmentChoosesWhatIsSent(t *testing.T) {
	c, url := collecting(t)
	for name, try := range map[string]struct {
		environ         []string
		metrics, traces bool
	}{
		"no traces":      {[]string{"OTEL_TRACES_EXPORTER", "none"}, true, false},
		"no metrics":     {[]string{"OTEL_METRICS_EXPORTER", "none"}, false, true},
		"nothing at all": {[]string{"OTEL_SDK_DISABLED", "true"}, false, false},
		"sampled out":    {[]string{"OTEL_TRACES_SAMPLER", "always_off"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			clear(c.sent)
			started, _ := begin(t, append(try.environ, "OTEL_EXPORTER_OTLP_ENDPOINT", url)...)
			started.use()
			started.Stop()
			require.Equal(t, try.metrics, len(c.sent["/v1/metrics"]) > 0, "metrics")
			require.Equal(t, try.traces, len(c.sent["/v1/traces"]) > 0, "traces")
		})
	}
}

func TestEndpointOfOneSignalIsForThatSignal(t *testing.T) {
	c, url := collecting(t)
	started, _ := begin(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url+"/only/traces")
	started.use()
	started.Stop()
	require.Len(t, c.sent, 1)
	require.Len(t, c.sent["/only/traces"], 1)
}

func TestFaultsInTheEnvironmentAreReportedTogether(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_METRICS_EXPORTER", "prometheus")
	_, err := Start(context.Background(), Config{})
	require.ErrorContains(t, err, `OTEL_METRICS_EXPORTER: "prometheus" is not known: say otlp or none`)
	require.ErrorContains(t, err, `OTEL_EXPORTER_OTLP_PROTOCOL, for traces: "grpc" is not spoken: say http/protobuf`)
}

// silent accepts connections and answers nothing.
func silent(t *testing.T) (url string) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return "http://" + ln.Addr().String()
}

func TestCollectorThatIsAwayHoldsNobodyUp(t *testing.T) {
	for name, url := range map[string]string{"refuses": "http://127.0.0.1:1", "says nothing": silent(t)} {
		t.Run(name, func(t *testing.T) {
			started, log := begin(t, "OTEL_EXPORTER_OTLP_ENDPOINT", url, "OTEL_METRIC_EXPORT_INTERVAL", "20",
				"OTEL_METRIC_EXPORT_TIMEOUT", "20", "OTEL_BSP_SCHEDULE_DELAY", "20", "OTEL_BSP_EXPORT_TIMEOUT", "20",
				"OTEL_BSP_MAX_QUEUE_SIZE", "16", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
			started.patience = 200 * time.Millisecond
			for range 10_000 {
				started.use()
			}
			require.Contains(t, started.scrape(), "firstseen_rebalances_total 10000\n")
			started.Stop()
			require.LessOrEqual(t, strings.Count(log.String(), "the program goes on"), 1, "one a minute at most")
			require.Contains(t, log.String(), "were not sent")
		})
	}
}

func TestStopGivesUpOnWhatDoesNotEnd(t *testing.T) {
	out := &bytes.Buffer{}
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	(&Telemetry{log: slog.New(slog.NewTextHandler(out, nil)), patience: time.Millisecond,
		stop: []func(context.Context) error{hangs, hangs}}).Stop()
	require.Contains(t, out.String(), "the last metrics and traces were not sent")
}

func TestErrorsOfTheSDKAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &bytes.Buffer{}
		c := newThrottledErrors(slog.New(slog.NewTextHandler(out, nil)))
		for range 90 {
			c.Handle(io.ErrUnexpectedEOF)
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, strings.Count(out.String(), "were not sent"))
		require.Contains(t, out.String(), "others_before=59")
	})
}
