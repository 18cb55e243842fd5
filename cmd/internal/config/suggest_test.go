package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnknownKeyIsMeantToBeTheNearest(t *testing.T) {
	for path, want := range map[string]string{
		"grup": "group", "kafka.broker": "kafka.brokers", "mesages": "", "batch.mesages": "batch.messages",
		"brokers":          "kafka.brokers",
		"postgres.brokers": "kafka.brokers", "log.rate": "http.rate", "http.readtoken": "http.read_token",
		"retention.id":                 "retention.ids",
		"health.degraded.failureRatio": "health.degraded.failure_ratio",
		"helth":                        "health", "http.hostname": "", "http.late": "http.rate",
		"topics[].handlers[].funktion": "topics[].handlers[].function", "start": "start_at", "xyz": "",
	} {
		section, name := split(path)
		require.Equal(t, want, nearestKey(section, name), path)
	}
}

func TestUnknownVariableIsMeantToBeTheNearest(t *testing.T) {
	for name, want := range map[string]string{
		"HOST_NAME": "", "HOSTNAME": "", "NAME": "", "VERSION": "", "DEBUG": "",
		"KAFKA_BROKER": "KAFKA_BROKERS", "BROKERS": "KAFKA_BROKERS", "DATABASE_SCHEMA": "POSTGRES_SCHEMA",
		"DSN":           "POSTGRES_DSN",
		"POSTGRESS_DSN": "POSTGRES_DSN", "LOGLEVEL": "LOG_LEVEL", "LOG_LVL": "LOG_LEVEL",
		"HTTP_RATES": "HTTP_RATE", "TOPIC": "TOPICS", "URL": "REGISTRY_URL",
		"KAFKA_SASL_PASWORD": "KAFKA_SASL_PASSWORD", "HEALTH_UNHEALTHY_BACKLOGS": "HEALTH_UNHEALTHY_BACKLOG",
		"RETENTION_ID": "RETENTION_IDS",
	} {
		fault := unknownVariable(prefix + name)
		if want == "" {
			require.Contains(t, fault.Text, "; it is FIRSTSEEN_ and a key", name)
			continue
		}
		require.Contains(t, fault.Text, "did you mean "+prefix+want+"?", name)
	}
}

func TestKeyWithADotIsToBeWrittenInItsSection(t *testing.T) {
	requireFaults(t, "batch.bytes: 1MiB\n",
		"batch.bytes: unknown key; write bytes on a line of its own below its section, indented")
}
