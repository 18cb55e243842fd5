package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/identity"
)

const complete = `
postgres: {dsn: "postgres://app:${PW}@db:5432/shop", schema: seen, max_connections: 45, prepared_statements: false, capacity: 2GiB}
kafka:
  brokers: [kafka-1:9092, "kafka-2:9092"]
  client_id: billing
  sasl: {mechanism: oauthbearer, oauth: {token_url: "https://issuer/token", client_id: app, client_secret: "${PW}", scopes: [kafka],
    parameters: {audience: kafka}, extensions: {logicalCluster: lkc-1}}}
registry: {url: "https://registry:8081", username: app, password: "${PW}", tls: {server_name: registry}, timeout: 2s}
group: billing
inbox: shared
topics:
  - name: orders
    id: [json:/event/id, "hash:/a,/b", position]
    no_id: ["-", "null"]
    tenant_header: tenant
    fingerprint: json
    format: confluent
    handlers:
      - {name: book, function: app.book_order}
      - name: notify
        webhook: {url: "https://hooks.example.com/in", secret: "${SIGN}", headers: {Authorization: "Bearer ${TOKEN}"}, timeout: 3s,
          concurrency: 4, allow_private: true, proxy: "http://proxy:3128"}
        retry: {base: 2s, cap: 1m, max_attempts: 5, max_age: 24h}
        ordering: none
  - {name: refunds, id: cloudevents, handlers: [{name: book, function: app.book_order}]}
start_at: latest
on_loss: hold
on_reset: restart
on_postgres_behind: committed
max_parked: 5000
batch: {messages: 500, bytes: 1MiB, transactions: 8}
fetch: {buffer: 128MiB, wait: 250ms, bytes: 64KiB}
timeouts: {session: 30s, rebalance: 40s, heartbeat: 1s, join_backoff: 2s, request: 5s, drain: 10s, postgres: 20s, handler: 1m,
  commit_interval: 3s, metadata_interval: 4s, pattern_interval: 10s}
log: {level: debug, format: json}
http: {listen: "127.0.0.1:8080", read_token: "${READ}", write_token: a-token-for-writers, rate: 50}
ingress: {listen: "127.0.0.1:8090", tokens: {shop: a-token-for-the-shop}, tenants: {shop: acme}, topics: [orders, refunds],
  queued: [refunds], conflict: refuse, body_limit: 64KiB, max_messages: 10, concurrency: 3, body_timeout: 2s, work_timeout: 3s}
outbox:
  destinations:
    - {name: events, topics: [events, audit], workers: 3, max_parked: 50, retry: {base: 2s, cap: 1m, max_attempts: 7, max_age: 24h}}
    - {name: crm, topics: [crm], webhook: {url: "https://hooks.example.com/crm", secret: "${SIGN}", timeout: 3s, concurrency: 4}}
    - {name: tried, topics: [tried], log: true}
  batch: 100
  poll: 1s
  listen: true
  send_timeout: 30s
health:
  window: 10m
  degraded: {backlog: 10, oldest_age: 1m, failure_ratio: 0, dead_letters: 5}
  unhealthy: {backlog: 1000, oldest_age: 1h, failure_ratio: 1, dead_letters: 50}
retention: {ids: 90d, handlers: {book: 1d12h, notify: 0}, inbox: 30d, outbox_keys: 60d, interval: 10m, force: true}
`

var completeEnviron = []string{"PW=pw", "SIGN=" + signing, "TOKEN=t0ken", "READ=a-token-for-readers"}

// signing is a webhook's secret.
const signing = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // of the published test vector

const minimal = `
postgres: {dsn: "postgres://app@db/shop"}
kafka: {brokers: [kafka-1:9092]}
group: billing
topics: [{name: orders, handlers: [{name: book, function: book_order}]}]
`

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func loadText(t *testing.T, text string, environ ...string) (Config, error) {
	t.Helper()
	return Load(write(t, "firstseen.yaml", text), environ)
}

// faults are the lines of a config's error, without the file's path.
// faults are what is wrong, without the places in the file.
func faults(t *testing.T, err error) []string {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		f.Line = 0
		lines[i] = f.String()
	}
	return lines
}

func TestEveryKeyReachesTheConfig(t *testing.T) {
	got, err := loadText(t, complete, completeEnviron...)
	require.NoError(t, err)
	book := []Handler{{Name: "book", Function: "app.book_order", Ordering: "key",
		Retry: Retry{time.Second, 5 * time.Minute, 10, 0}}}
	require.Equal(t, Config{
		Postgres: Postgres{DSN: "postgres://app:pw@db:5432/shop",
			Schema: "seen", MaxConnections: 45, Capacity: 2 << 30},
		Kafka: Kafka{Brokers: List{"kafka-1:9092", "kafka-2:9092"}, ClientID: "billing",
			SASL: SASL{Mechanism: "oauthbearer", OAuth: OAuth{TokenURL: "https://issuer/token", ClientID: "app",
				ClientSecret: "pw", Scopes: List{"kafka"}, Parameters: Names{"audience": "kafka"},
				Extensions: Names{"logicalCluster": "lkc-1"}}}},
		Registry: Registry{URL: "https://registry:8081", Username: "app", Password: "pw",
			TLS: RegistryTLS{ServerName: "registry"}, Timeout: 2 * time.Second},
		Group: "billing", Inbox: "shared",
		Topics: []Topic{
			{Name: "orders", ID: Sources{"json:/event/id", "hash:/a,/b", "position"}, NoID: Sources{"-", "null"},
				TenantHeader: "tenant", Fingerprint: "json", Format: "confluent",
				Handlers: append(book[:1:1], Handler{Name: "notify", Ordering: "none",
					Webhook: Webhook{URL: "https://hooks.example.com/in",
						Secret: signing, Headers: map[string]Secret{"Authorization": "Bearer t0ken"},
						Timeout: 3 * time.Second, Concurrency: 4, AllowPrivate: true, Proxy: "http://proxy:3128"},
					Retry: Retry{2 * time.Second, time.Minute, 5, 24 * time.Hour}})},
			{Name: "refunds", ID: Sources{"cloudevents"}, NoID: identity.NoIDs, Format: "auto", Handlers: book},
		},
		StartAt: "latest", OnLoss: "hold", OnReset: "restart", OnPostgresBehind: "committed", MaxParked: 5000,
		Batch: Batch{Messages: 500, Bytes: 1 << 20, Transactions: 8},
		Fetch: Fetch{Buffer: 128 << 20, Wait: 250 * time.Millisecond, Bytes: 65536},
		Timeouts: Timeouts{30 * time.Second, 40 * time.Second, time.Second, 2 * time.Second, 5 * time.Second,
			10 * time.Second, 20 * time.Second, time.Minute, 3 * time.Second, 4 * time.Second, 10 * time.Second},
		Log: Log{"debug", "json"},
		HTTP: HTTP{Listen: "127.0.0.1:8080", ReadToken: "a-token-for-readers",
			WriteToken: "a-token-for-writers", Rate: 50},
		Ingress: Ingress{Listen: "127.0.0.1:8090", Tokens: map[string]Secret{"shop": "a-token-for-the-shop"},
			Tenants: Names{"shop": "acme"}, Topics: List{"orders", "refunds"}, Queued: List{"refunds"}, Conflict: "refuse",
			BodyLimit: 64 << 10, MaxMessages: 10, Concurrency: 3, BodyTimeout: 2 * time.Second, WorkTimeout: 3 * time.Second},
		Outbox: Outbox{Batch: 100, Poll: time.Second, Listen: true, SendTimeout: 30 * time.Second, Destinations: []Destination{
			{Name: "events", Topics: List{"events", "audit"}, Workers: 3, MaxParked: 50,
				Retry: SendRetry{2 * time.Second, time.Minute, 7, 24 * time.Hour}},
			{Name: "crm", Topics: List{"crm"}, Workers: 2, MaxParked: 1000, Webhook: Webhook{URL: "https://hooks.example.com/crm",
				Secret: signing, Timeout: 3 * time.Second, Concurrency: 4}, Retry: SendRetry{10 * time.Second, 5 * time.Minute, 5, 0}},
			{Name: "tried", Topics: List{"tried"}, Log: true, Workers: 2, MaxParked: 1000,
				Retry: SendRetry{10 * time.Second, 5 * time.Minute, 5, 0}}}},
		Health: Health{Window: 10 * time.Minute, Degraded: Degraded{10, time.Minute, 0, 5},
			Unhealthy: Unhealthy{1000, time.Hour, 1, 50}},
		Retention: Retention{IDs: 90 * day, Handlers: Ages{"book": 36 * time.Hour, "notify": 0}, Inbox: 30 * day,
			OutboxKeys: 60 * day, Interval: 10 * time.Minute, Force: true},
	}, got)
}

func TestWhatIsLeftOutOrEmptyHasItsDefault(t *testing.T) {
	got, err := loadText(t, minimal+"inbox:\nbatch:\ntimeouts: {drain: }\n")
	require.NoError(t, err)
	require.Equal(t, "billing", got.Inbox)
	require.True(t, got.Postgres.PreparedStatements)
	withNull := strings.Replace(minimal, `shop"`, `shop", prepared_statements: `, 1)
	got, err = loadText(t, withNull)
	require.NoError(t, err)
	require.True(t, got.Postgres.PreparedStatements)
}

func TestEnvironmentWinsOverTheFile(t *testing.T) {
	got, err := loadText(t, minimal,
		"FIRSTSEEN_POSTGRES_DSN=postgres://other@db/other", "FIRSTSEEN_KAFKA_BROKERS=a:1, b:2",
		"FIRSTSEEN_POSTGRES_PREPARED_STATEMENTS=false", "FIRSTSEEN_BATCH_MESSAGES=7", "FIRSTSEEN_BATCH_BYTES=2MiB",
		"FIRSTSEEN_TIMEOUTS_DRAIN=3s", "FIRSTSEEN_GROUP=", "FIRSTSEEN_LOG_LEVEL=warn",
		"FIRSTSEEN_RETENTION_HANDLERS={h: 2d}", "FIRSTSEEN_HEALTH_DEGRADED_FAILURE_RATIO=0.2",
		`FIRSTSEEN_TOPICS=[{name: other, id: key, handlers: [{name: h, function: f}]}]`,
		"FIRSTSEEN_SERVICE_HOST=10.0.0.1", "FIRSTSEEN_PORT=tcp://10.0.0.1:80",
		"FIRSTSEEN_ADMIN_PORT_80_TCP_ADDR=10.0.0.1",
		"FIRSTSEEN_TEST_POSTGRES=x", "OTHER=y")
	require.NoError(t, err)
	require.Equal(t, "postgres://other@db/other", got.Postgres.DSN.Reveal())
	require.Equal(t, List{"a:1", "b:2"}, got.Kafka.Brokers)
	require.False(t, got.Postgres.PreparedStatements)
	require.Equal(t, Batch{Messages: 7, Bytes: 2 << 20, Transactions: 4}, got.Batch)
	require.Equal(t, 3*time.Second, got.Timeouts.Drain)
	require.Equal(t, "billing", got.Group)
	require.Equal(t, "other", got.Topics[0].Name)
	require.Equal(t, Sources{"key"}, got.Topics[0].ID)
	require.Equal(t, "f", got.Topics[0].Handlers[0].Function)
	require.Equal(t, Ages{"h": 2 * day}, got.Retention.Handlers)
	require.InDelta(t, 0.2, got.Health.Degraded.FailureRatio, 0)
}

func TestVariableOfEachKeyIsItsOwn(t *testing.T) {
	seen := map[string]string{}
	for _, k := range keys {
		if v := k.variable(); v != "" {
			require.Empty(t, seen[v], "%s and %s", seen[v], k.path)
			require.False(t, foreign.MatchString(v), v)
			seen[v] = k.path
		}
	}
	require.Len(t, seen, 124) // all leaves but those in lists, and the lists
}

func TestFileIsFoundByFlagVariableAndDefault(t *testing.T) {
	path := write(t, "x.yaml", minimal)
	_, err := Load("", []string{FileVariable + "=" + path})
	require.NoError(t, err)
	t.Chdir(filepath.Dir(write(t, DefaultFile, minimal)))
	_, err = Load("", nil)
	require.NoError(t, err)
	_, err = Load("missing.yaml", nil)
	require.ErrorContains(t, err, "missing.yaml: no such file")
}

func TestExampleOfTheReadmeIsAConfig(t *testing.T) {
	path := filepath.Join("..", "..", "..", "testdata", "firstseen.yaml")
	got, err := Load(path, []string{"POSTGRES_PASSWORD=secret"})
	require.NoError(t, err)
	require.Len(t, got.Topics, 2)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(text), "\n"), 15)
}

func TestPostgresAloneNeedsNoOtherSection(t *testing.T) {
	path := write(t, "x.yaml", "postgres: {dsn: 'postgres://a@b/c', schema: s}\ngroup:\n")
	got, err := LoadPostgres(path, nil, Postgres{}, true)
	require.NoError(t, err)
	require.Equal(t, "s", got.Schema)
	got, err = LoadPostgres(path, nil, Postgres{DSN: "postgres://d@e/f", Schema: "t"}, true)
	require.NoError(t, err)
	require.Equal(t, "postgres://d@e/f", got.DSN.Reveal())
	require.Equal(t, "t", got.Schema)
	_, err = LoadPostgres(write(t, "y.yaml", "postgres: {schema: s}\nkafka: {broker: x}\n"), nil, Postgres{}, true)
	require.Equal(t, []string{
		"kafka.broker: unknown key; did you mean kafka.brokers?",
		"postgres.dsn: is required; write postgres://USER:PASSWORD@HOST:5432/DATABASE, or give postgres.dsn_file",
	}, faults(t, err))
}

func TestPostgresAloneNeedsNoOtherSecret(t *testing.T) {
	const others = "kafka: {sasl: {password: '${P}'}}\nhttp: {write_token: '${W}'}\ningress: {tokens: {shop: '${T}'}}\n" +
		"topics: [{name: orders, handlers: [{name: notify, webhook: {url: 'https://x', secret: '${S}'}}]}]\n"
	_, err := LoadPostgres(write(t, "x.yaml", "postgres: {dsn: 'postgres://a@b/c'}\n"+others), nil, Postgres{}, true)
	require.NoError(t, err)
	path := write(t, "y.yaml", "postgres: {dsn: 'postgres://${D}@b/c'}\ninbox: ${I}\n"+others)
	_, err = LoadPostgres(path, nil, Postgres{}, true)
	got := faults(t, err)
	require.Len(t, got, 2, "what says where to look: %s", err)
	require.Contains(t, got[0], "inbox: ${I} is not set")
	require.Contains(t, got[1], "postgres.dsn: ${D} is not set")
}

func TestEntriesOfTheEnvironmentComeBesideThoseOfTheFile(t *testing.T) {
	text := withTopics("[{name: orders, handlers: [{name: a, function: f}, {name: b.c, function: f}]}]")
	c, err := loadText(t, text+"retention: {handlers: {a: 1d, b.c: 2d}}\n", "FIRSTSEEN_RETENTION_HANDLERS={b.c: 3d}")
	require.NoError(t, err)
	require.Equal(t, Ages{"a": day, "b.c": 3 * day}, c.Retention.Handlers)
}
