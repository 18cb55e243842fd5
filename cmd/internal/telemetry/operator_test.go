package telemetry

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/firstseen/firstseen/dedup/instruments"
)

// vocabulary is what queries may name: metrics as Prometheus shows them, and labels.
func vocabulary(t *testing.T) (metrics, labels map[string]bool) {
	metrics, labels = map[string]bool{}, map[string]bool{}
	for _, s := range catalogue(t) {
		suffixes := []string{""}
		if s.Kind == instruments.Histogram {
			suffixes = []string{"_bucket", "_sum", "_count"}
		}
		for _, suffix := range suffixes {
			metrics[s.name+suffix] = true
		}
		for _, l := range s.labels {
			labels[l] = true
		}
	}
	return metrics, labels
}

var (
	ours    = regexp.MustCompile(`\b(firstseen|messaging)_[a-z_]+`)
	text    = regexp.MustCompile(`"[^"]*"`)
	process = regexp.MustCompile(`\bprocess_[a-z_]+`)
)

// requireKnown checks that a query names a metric, and none and no label that does not exist. It gives the metrics.
func requireKnown(t *testing.T, query string, metrics, labels map[string]bool) (named []string) {
	t.Helper()
	for _, name := range ours.FindAllString(text.ReplaceAllString(query, `""`), -1) {
		require.True(t, metrics[name] || labels[name], "%s in %s", name, query)
		if metrics[name] {
			named = append(named, name)
		}
	}
	require.NotEmpty(t, append(named, process.FindString(query)), query)
	return named
}

func TestDashboardAsksForMetricsThatExist(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(docs, "grafana.json"))
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &dashboard))
	metrics, labels := vocabulary(t)
	var rows []string
	shown := map[string]bool{}
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			for _, name := range requireKnown(t, target.Expr, metrics, labels) {
				shown[name] = true
			}
		}
	}
	require.Equal(t, []string{"Flow", "Lag", "Failures", "Postgres", "Kafka", "Process", "HTTP", "Outbox"}, rows)
	for _, s := range catalogue(t) {
		require.True(t, shown[s.name] || shown[s.name+"_bucket"] || shown[s.name+"_sum"], "%s is on no panel", s.name)
	}
}

// alert is a rule of the alerts.
type alert struct {
	Alert, Expr string
	Labels      struct{ Severity string }
	Annotations struct{ Summary, Description string }
}

func alerts(t *testing.T) []alert {
	raw, err := os.ReadFile(filepath.Join(docs, "alerts.yaml"))
	require.NoError(t, err)
	var parsed map[string]any
	require.NoError(t, yaml.Unmarshal(raw, &parsed))
	again, err := json.Marshal(parsed)
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, json.Unmarshal(again, &file))
	return file.Groups[0].Rules
}

func TestAlertsAskForMetricsThatExistAndSayWhatToDo(t *testing.T) {
	metrics, labels := vocabulary(t)
	for _, rule := range alerts(t) {
		requireKnown(t, rule.Expr, metrics, labels)
		require.Contains(t, []string{"page", "ticket"}, rule.Labels.Severity, rule.Alert)
		require.NotEmpty(t, rule.Annotations.Summary, rule.Alert)
		require.NotEmpty(t, rule.Annotations.Description, rule.Alert)
		for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).
			FindAllStringSubmatch(rule.Annotations.Summary, -1) {
			require.Contains(t, rule.Expr, label[1], "%s: its result has no label %s", rule.Alert, label[1])
		}
	}
}

// What promtool thinks of the alerts. Where it is not installed the test is skipped, or fails if
// FIRSTSEEN_REQUIRE_PROMTOOL is set.
func TestAlertsComeWhenTheyShould(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		require.Empty(t, os.Getenv("FIRSTSEEN_REQUIRE_PROMTOOL"),
			"FIRSTSEEN_REQUIRE_PROMTOOL is set and promtool is not installed")
		t.Skip("promtool is not on the PATH")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"check", "rules", filepath.Join(docs, "alerts.yaml")},
		{"test", "rules", filepath.Join("testdata", "alerts_test.yaml")},
	} {
		out, err := exec.CommandContext(ctx, promtool, args...).CombinedOutput()
		require.NoError(t, err, "promtool %s: %s", strings.Join(args, " "), out)
	}
}
