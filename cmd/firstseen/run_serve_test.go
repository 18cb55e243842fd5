package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var listens = regexp.MustCompile(`admin server listens" address=(\S+)`)

// ask gives the status and the body of an answer of the program's HTTP server.
func (p *program) ask(path string) (status int, body string) {
	p.t.Helper()
	response, err := http.Get("http://" + p.logged(listens) + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(content)
}

func TestRunAnswersProbesAndTheAdminAPI(t *testing.T) {
	s := newShop(t, `create function billing.book_order(m firstseen.message) returns void language sql as 'select pg_advisory_xact_lock(7)'`)
	s.produce(0, 1)
	hold, err := s.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), `select pg_advisory_xact_lock(7)`)
	require.NoError(t, err)
	p := start(t, s.config(s.db.DSN)+"http: {listen: \"127.0.0.1:0\", page: true}\n", "run")
	eventually(t, func() bool { status, _ := p.ask("/readyz"); return status == http.StatusOK })
	eventually(t, func() bool {
		_, body := p.ask("/api/v1/partitions")
		return regexp.MustCompile(`"topic":"` + s.topic).MatchString(body)
	})
	for path, want := range map[string]string{"/livez": `"ok"`, "/healthz": `"kafka"`, "/metrics": "go_goroutines",
		"/api/v1/status": `"state":"consuming"`, "/api/v1/backlog": `"handlers"`, "/api/v1/size": "message_dedup", "/ui/": s.topic} {
		status, body := p.ask(path)
		require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
		require.Contains(t, body, want, path)
	}
	eventually(t, func() bool {
		status, body := p.ask("/api/v1/doctor")
		return status == http.StatusOK && strings.Contains(body, `"check":"kafka.lag"`) && strings.Contains(body, `"looking_since":null`)
	})
	eventually(t, func() bool {
		var n int
		require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where wait_event = 'advisory' and datname = current_database()`).Scan(&n))
		return n > 0
	})
	p.signal(syscall.SIGTERM)
	p.awaitLog("ending: open batches are finished")
	status, body := p.ask("/readyz") // a batch is open still
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	require.NoError(t, hold.Rollback(t.Context()))
	require.Equal(t, exitOK, p.exit())
}

func TestRunAnswersProbesWhileItWaitsForPostgres(t *testing.T) {
	s := newShop(t, booking)
	p := start(t, s.config("postgres://app:hunter2@127.0.0.1:1/app")+"http: {listen: \"127.0.0.1:0\", page: true}\n", "run")
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/healthz": 200,
		"/api/v1/status": 200, "/api/v1/pauses": 503, "/ui/": 200, "/ui/pauses": 503} {
		status, body := p.ask(path)
		require.Equal(t, want, status, "%s: %s", path, body)
		require.NotContains(t, body, "hunter2")
	}
	eventually(t, func() bool {
		status, body := p.ask("/api/v1/doctor")
		require.NotContains(t, body, "hunter2")
		return status == http.StatusOK && strings.Contains(body, `"check":"postgres.reachable","level":"fault"`)
	})
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	other := start(t, s.config(s.db.DSN)+"http: {listen: \"256.0.0.1:0\"}\n", "run")
	require.Equal(t, exitFailure, other.exit())
	require.Contains(t, other.log.String(), "listen at http.listen")
}

func TestRunRefusesAFaultInOpenTelemetrysEnvironmentAndShowsNoValue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "firstseen.yaml")
	require.NoError(t, os.WriteFile(file, []byte("postgres: {dsn: 'postgres://127.0.0.1:1/app'}\nkafka: {brokers: "+
		"['127.0.0.1:1']}\ngroup: g\ntopics: [{name: orders, handlers: [{name: book, function: book}]}]\n"), 0o600))
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://ann:hush%zz@collector:4318")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Authorization hush")
	_, stderr, code := command(t, "run", "--config", file)
	require.Equal(t, exitUsage, code, stderr)
	require.Contains(t, stderr, "OTEL_EXPORTER_OTLP_ENDPOINT: is no URL of a collector")
	require.Contains(t, stderr, "OTEL_EXPORTER_OTLP_TRACES_HEADERS: header 1 is not NAME=VALUE")
	require.NotContains(t, stderr, "hush")
}
