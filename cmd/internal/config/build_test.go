package config

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

func TestConsumerGetsWhatTheConfigSays(t *testing.T) {
	c, err := loadText(t, complete, completeEnviron...)
	require.NoError(t, err)
	log := slog.Default()
	got, err := c.Consumer(log)
	require.NoError(t, err)
	require.Len(t, got.Topics, 2)
	require.Equal(t, "tenant", got.Topics[0].TenantHeader)
	require.Equal(t, identity.FingerprintJSON, got.Topics[0].Fingerprint)
	require.NotNil(t, got.Topics[1].Identity)
	require.Equal(t, "OAUTHBEARER", got.SASL.Name())
	got.Topics, got.SASL = nil, nil
	require.Equal(t, consumer.Config{
		Connection: consumer.Connection{Brokers: []string{"kafka-1:9092", "kafka-2:9092"}, ClientID: "billing",
			RequestTimeout: 5 * time.Second}, Group: "billing",
		StartAt: consumer.Latest, OnLoss: consumer.Hold, OnReset: consumer.Restart,
		OnPostgresBehind: consumer.Committed,
		MaxParked:        5000,
		MaxBatch:         500, MaxBatchBytes: 1 << 20, Transactions: 8,
		BufferBytes: 128 << 20, FetchWait: 250 * time.Millisecond,
		FetchBytes: 65536, SessionTimeout: 30 * time.Second, RebalanceTimeout: 40 * time.Second,
		HeartbeatInterval: time.Second, JoinBackoff: 2 * time.Second,
		DrainTimeout: 10 * time.Second, CommitInterval: 3 * time.Second,
		MetadataInterval: 4 * time.Second, PatternInterval: 10 * time.Second, Logger: log,
	}, got)
	require.Equal(t, dedup.Config{Inbox: "shared", Schema: "seen", AnswerTimeout: c.Timeouts.Postgres,
		IdleAfter: c.Timeouts.Handler + c.Timeouts.Postgres, Patience: -1}, c.Store(), "idle no longer than a handler may take")
}

func TestPoolHasAConnectionForEachTransactionAndMore(t *testing.T) {
	c, err := loadText(t, minimal)
	require.NoError(t, err)
	pool, err := c.Pool()
	require.NoError(t, err)
	require.EqualValues(t, 8, pool.MaxConns)
	require.Equal(t, pgx.QueryExecModeCacheStatement, pool.ConnConfig.DefaultQueryExecMode)
	require.Equal(t, "firstseen billing", pool.ConnConfig.RuntimeParams["application_name"])

	c, err = loadText(t, complete, completeEnviron...)
	require.NoError(t, err)
	pool, err = c.Pool()
	require.NoError(t, err)
	require.EqualValues(t, 45, pool.MaxConns)
	require.Equal(t, pgx.QueryExecModeCacheDescribe, pool.ConnConfig.DefaultQueryExecMode)
}

func TestPoolKnowsHowLongPostgresMayBeSilent(t *testing.T) {
	c, err := loadText(t, minimal, "FIRSTSEEN_TIMEOUTS_POSTGRES=4s")
	require.NoError(t, err)
	pool, err := c.Pool()
	require.NoError(t, err)
	require.Equal(t, 4*time.Second, pool.ConnConfig.ConnectTimeout)
}

func TestTLSReachesTheConsumer(t *testing.T) {
	cert, key := selfSigned(t)
	c, err := loadText(t, minimal, "FIRSTSEEN_KAFKA_TLS_ENABLED=true", "FIRSTSEEN_KAFKA_TLS_CA_FILE="+cert,
		"FIRSTSEEN_KAFKA_TLS_CERT_FILE="+cert, "FIRSTSEEN_KAFKA_TLS_KEY_FILE="+key,
		"FIRSTSEEN_KAFKA_TLS_SERVER_NAME=kafka", "FIRSTSEEN_KAFKA_TLS_INSECURE_SKIP_VERIFY=true")
	require.NoError(t, err)
	got, err := c.Consumer(slog.Default())
	require.NoError(t, err)
	require.Equal(t, "kafka", got.TLS.ServerName)
	require.True(t, got.TLS.InsecureSkipVerify)
	require.NotNil(t, got.TLS.RootCAs)
	require.Len(t, got.TLS.Certificates, 1)
}

func TestTLSFilesThatCannotServeAreFaults(t *testing.T) {
	cert, key := selfSigned(t)
	on := "FIRSTSEEN_KAFKA_TLS_ENABLED=true"
	_, err := loadText(t, minimal, on, "FIRSTSEEN_KAFKA_TLS_CA_FILE="+key, "FIRSTSEEN_KAFKA_TLS_KEY_FILE="+key)
	require.Equal(t, []string{"kafka.tls.ca_file: " + key + " holds no certificate in PEM",
		"kafka.tls.cert_file: is required beside key_file"}, faults(t, err))
	_, err = loadText(t, minimal, on, "FIRSTSEEN_KAFKA_TLS_CA_FILE=/none", "FIRSTSEEN_KAFKA_TLS_CERT_FILE="+cert)
	require.Equal(t, []string{"kafka.tls.ca_file: open /none: no such file or directory",
		"kafka.tls.key_file: is required beside cert_file"}, faults(t, err))
	_, err = loadText(t, minimal, on, "FIRSTSEEN_KAFKA_TLS_CERT_FILE="+key, "FIRSTSEEN_KAFKA_TLS_KEY_FILE="+cert)
	require.Len(t, faults(t, err), 1)
}

func TestSASLReachesTheConsumer(t *testing.T) {
	for text, want := range map[string]string{"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256",
		"scram-sha-512": "SCRAM-SHA-512"} {
		c, err := loadText(t, minimal, "FIRSTSEEN_KAFKA_SASL_MECHANISM="+text, "FIRSTSEEN_KAFKA_SASL_USERNAME=u",
			"FIRSTSEEN_KAFKA_SASL_PASSWORD=p")
		require.NoError(t, err)
		got, err := c.Consumer(slog.Default())
		require.NoError(t, err)
		require.Equal(t, want, got.SASL.Name())
	}
}

func TestLogIsAsTheConfigSays(t *testing.T) {
	var out bytes.Buffer
	Fixed(Config{Log: Log{Level: "warn", Format: "json"}}).Logger(&out).Warn("seen")
	Fixed(Config{Log: Log{Level: "warn"}}).Logger(&out).Info("hidden")
	Fixed(Config{}).Logger(&out).Info("text")
	require.Contains(t, out.String(), `"msg":"seen"`)
	require.NotContains(t, out.String(), "hidden")
	require.Contains(t, out.String(), "msg=text")
}
