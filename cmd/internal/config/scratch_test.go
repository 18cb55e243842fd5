package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestScratchUsesOtherServersAndNeedsNothingOfTheConfigsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "firstseen.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`
postgres: {dsn: "postgres://shop:${NOT_SET}@db.example/shop", schema: seen, max_connections: 1}
kafka: {brokers: [kafka.example:9092], tls: {enabled: true, ca_file: /nowhere}, sasl: {mechanism: plain}}
group: shop
dead_letter_topic: dead
batch: {messages: 70}
timeouts: {handler: 10m, session: 1ms}
http: {listen: ":8080", read_token: "${NOT_SET_EITHER}"}
outbox: {destinations: [{name: events, topics: [orders.events]}]}
topics:
  - name: orders
    handlers:
      - {name: book, function: book, retry: {base: 1h, max_attempts: 3}}
      - name: notify
        ordering: none
        webhook: {url: "https://hooks.example", secret: "${NOR_THIS}", secret_file: /nowhere, concurrency: 3,
          headers: {Authorization: "${NOR_THIS}"}, proxy: "http://proxy.example"}
`), 0o600))
	c, err := LoadScratch(path, nil, Scratch{DSN: "postgres://localhost/scratch", Brokers: []string{"localhost:1"},
		ClientID: "crash-1", Batch: 2, WebhookTimeout: time.Second,
		Webhook: func(handler string) string { return "http://127.0.0.1:1/" + handler }})
	require.NoError(t, err)
	require.Equal(t, "localhost:5432/scratch", c.Postgres.Place())
	require.Equal(t, "seen", c.Postgres.Schema)
	require.Equal(t, Kafka{Brokers: List{"localhost:1"}, ClientID: "crash-1"}, c.Kafka)
	require.Empty(t, c.HTTP.Listen)
	require.Empty(t, c.Outbox.Destinations)
	require.Empty(t, c.DeadLetterTopic)
	require.Equal(t, 2, c.Batch.Messages)
	require.Len(t, c.Topics, 1)
	require.Len(t, c.Topics[0].Handlers, 2)
	require.Equal(t, 10*time.Millisecond, c.Topics[0].Handlers[0].Retry.Base)
	require.Equal(t, Webhook{URL: "http://127.0.0.1:1/notify", Timeout: time.Second, Concurrency: 3, AllowPrivate: true},
		c.Topics[0].Handlers[1].Webhook)
	require.Equal(t, c.Topics[0].Handlers[1:], c.Webhooks())
	require.LessOrEqual(t, c.Timeouts.Handler, 20*time.Second)

	_, err = Load(path, nil)
	require.Error(t, err, "the config's own servers")
}

func TestScratchFindsFaultsOfWhatIsTried(t *testing.T) {
	path := filepath.Join(t.TempDir(), "firstseen.yaml")
	require.NoError(t, os.WriteFile(path, []byte("group: shop\ntopics: [{name: orders, handlers: [{name: book}]}]\n"), 0o600))
	_, err := LoadScratch(path, nil, Scratch{DSN: "postgres://localhost", Brokers: []string{"localhost:1"}})
	require.ErrorContains(t, err, "topics[0].handlers[0]")
}
