package telemetry

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// aFile gives the name of a file that is no PEM.
func aFile(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "hush.pem")
	require.NoError(t, os.WriteFile(name, []byte("hush"), 0o600))
	return name
}

func TestWhatAnExporterCannotReadIsAFaultThatShowsNoValue(t *testing.T) {
	url := "http://127.0.0.1:1"
	for name, try := range map[string]struct {
		variable, value, want string
	}{
		"header without =":        {"HEADERS", "a=b,Authorization hush", "header 2 is not NAME=VALUE"},
		"header's name":           {"HEADERS", "Authorization hush==", "header 1 is not NAME=VALUE"},
		"header's escape":         {"HEADERS", "Authorization=hush%zz", "header 1 is not NAME=VALUE"},
		"endpoint's userinfo":     {"ENDPOINT", "http://ann:hush%zz@collector:4318", "is no URL of a collector"},
		"endpoint with a user":    {"ENDPOINT", "http://ann:hush@collector:4318", "has a user in it"},
		"endpoint without scheme": {"ENDPOINT", "hush:4318", "is no URL of a collector"},
		"endpoint without host":   {"ENDPOINT", "http:///hush", "is no URL of a collector"},
		"timeout":                 {"TIMEOUT", "hush", "is no number of milliseconds"},
		"no certificate file":     {"CERTIFICATE", "/nowhere/hush", "read the file: no such file"},
		"no certificate in it":    {"CERTIFICATE", aFile(t), "holds no certificate"},
		"client key alone":        {"CLIENT_KEY", "/nowhere/hush", "one is set without the other"},
	} {
		for _, signal := range []string{"", "TRACES_", "METRICS_"} {
			t.Run(name+" "+signal, func(t *testing.T) {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
				t.Setenv("OTEL_EXPORTER_OTLP_"+signal+try.variable, try.value)
				out := &bytes.Buffer{}
				_, err := Start(context.Background(), Config{Logger: slog.New(slog.NewTextHandler(out, nil))})
				require.ErrorContains(t, err, try.want)
				require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_"+signal+try.variable)
				require.NotContains(t, err.Error()+out.String(), "hush")
			})
		}
	}
}

func TestClientCertificateMustBeReadable(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/nowhere/hush")
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", aFile(t))
	_, err := Start(context.Background(), Config{})
	require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: read the file")
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", aFile(t))
	_, err = Start(context.Background(), Config{})
	require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY: tls: ")
	require.NotContains(t, err.Error(), "hush")
}

func TestFaultsOfASignalThatIsNotSentDoNotMatter(t *testing.T) {
	started, _ := begin(t, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Authorization hush")
	started.Stop()
	started, _ = begin(t, "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER", "none",
		"OTEL_METRICS_EXPORTER", "none")
	started.Stop()
}

func TestTheSDKsOwnLogShowsNoValue(t *testing.T) {
	started, log := begin(t, "OTEL_EXPORTER_OTLP_HEADERS", "Authorization hush")
	defer started.Stop()
	_, err := newMetricExporter(context.Background())
	require.NoError(t, err)
	require.Contains(t, log.String(), `level=ERROR msg="OpenTelemetry: parse headers"`)
	require.NotContains(t, log.String(), "hush")
}
