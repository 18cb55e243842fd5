package config

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireFaults loads the minimal config with more, and wants these starts of faults.
func requireFaults(t *testing.T, more string, want ...string) {
	t.Helper()
	requireFaultsOf(t, minimal+more, want...)
}

func requireFaultsOf(t *testing.T, text string, want ...string) {
	t.Helper()
	_, err := loadText(t, text)
	if len(want) == 0 {
		require.NoError(t, err, text)
		return
	}
	got := faults(t, err)
	require.Len(t, got, len(want), "%s\n%s", text, err)
	for i := range want {
		require.True(t, strings.HasPrefix(got[i], want[i]), "want %q\ngot %q", want[i], got[i])
	}
}

func TestFaultsOfHTTP(t *testing.T) {
	cert, key := selfSigned(t)
	pair := "cert_file: " + cert + ", key_file: " + key
	requireFaults(t, "http: {listen: '127.0.0.1:8080', "+pair+", client_ca_file: "+cert+", writers: [ops]}\n")
	requireFaults(t, "http: {listen: ':0'}\n")
	requireFaults(t, "http: {listen: '[::1]:8080', rate: 1}\n")
	requireFaults(t, "http: {mask: {values: [/customer/*/iban, 'orders:/a', /], headers: [x-patient], keys: ['*'], show_errors: true}}\n")
	requireFaults(t, "http: {mask: {values: [iban, /a~2], headers: ['']}}\n",
		`http.mask.values: "iban" is no place in a value; write a JSON pointer`, `http.mask.values: "/a~2" is no JSON pointer`,
		"http.mask.headers: ")
	requireFaults(t, "http: {listen: localhost}\n", `http.listen: "localhost" is not an address; write host:port`)
	requireFaults(t, "http: {listen: 'localhost:http'}\n", "http.listen: ")
	requireFaults(t, "http: {listen: 'localhost:65536', rate: 0}\n", "http.rate: must be above 0", "http.listen: ")
	requireFaults(t, "http: {cert_file: "+cert+"}\n", "http.key_file: is required beside cert_file")
	requireFaults(t, "http: {key_file: "+key+"}\n", "http.cert_file: is required beside key_file")
	requireFaults(t, "http: {client_ca_file: "+cert+", writers: ops}\n", "http.client_ca_file: needs http.cert_file")
	requireFaults(t, "http: {"+pair+", client_ca_file: "+key+"}\n",
		"http.client_ca_file: "+key+" holds no certificate")
	requireFaults(t, "http: {"+pair+", writers: ops}\n", "http.writers: has no effect")
	requireFaults(t, "http: {cert_file: "+key+", key_file: "+key+"}\n", "http.cert_file: with key_file: ")
}

func TestFaultsOfTokens(t *testing.T) {
	requireFaults(t, "http: {read_token: a-token-for-readers, write_token: a-token-for-writers}\n")
	requireFaults(t, "http: {read_token: fifteen-letters, write_token: a-token-for-writers}\n",
		"http.read_token: has 15 characters; make it at least 16")
	requireFaults(t, "http: {read_token: one-and-the-same, write_token: one-and-the-same}\n",
		"http.write_token: is the same as http.read_token")
	requireFaults(t, "http: {write_token: 'with some spaces'}\n", "http.write_token: has a space")
	requireFaults(t, "http: {write_token: 'a-töken-for-writers'}\n", "http.write_token: has a space or a character")
	requireFaults(t, "http: {read_token_file: /none}\n", "http.read_token_file: open /none")
	file := write(t, "token", "one-and-the-same\n")
	requireFaults(t, "http: {read_token: one-and-the-same, write_token_file: "+file+"}\n",
		"http.write_token: is the same")
	requireFaults(t, "http: {write_token: one-and-the-same, write_token_file: "+file+"}\n",
		"http.write_token_file: is given beside http.write_token")
}

func TestServerSpeaksTLSAsTheConfigSays(t *testing.T) {
	plainHTTP, err := HTTP{Listen: ":0"}.TLS(slog.Default())
	require.NoError(t, err)
	require.Nil(t, plainHTTP)
	cert, key := selfSigned(t)
	c, err := HTTP{CertFile: cert, KeyFile: key, ClientCAFile: cert}.TLS(slog.Default())
	require.NoError(t, err)
	require.Len(t, c.Certificates, 1)
	require.NotNil(t, c.ClientCAs)
	_, err = HTTP{CertFile: cert, KeyFile: "/none"}.TLS(slog.Default())
	require.ErrorContains(t, err, "http.key_file")
}

func TestFaultsOfHealth(t *testing.T) {
	requireFaults(t,
		"health: {degraded: {failure_ratio: 0}, unhealthy: {failure_ratio: 1, backlog: 100000, oldest_age: 5m}}\n")
	requireFaults(t, "health: {degraded: {failure_ratio: 1.5}, unhealthy: {failure_ratio: -0.1}}\n",
		"health.unhealthy.failure_ratio: must not be negative", "health.degraded.failure_ratio: 1.5 is not a share")
	requireFaults(t,
		"health: {window: 0s, degraded: {failure_ratio: many, backlog: 0}, unhealthy: {failure_ratio: .nan}}\n",
		`health.degraded.failure_ratio: "many" is not a number`, "health.unhealthy.failure_ratio: is not a number",
		`health.window: "0s" must be above 0`, "health.degraded.backlog: must be above 0")
	requireFaults(t, "health: {unhealthy: {backlog: 99999, oldest_age: 4m, failure_ratio: 0.01}}\n",
		"health.unhealthy.backlog: is below health.degraded.backlog", "health.unhealthy.oldest_age: is below",
		"health.unhealthy.failure_ratio: is below")
	requireFaults(t, "health: {degraded: {failure_ratio: '1e-3'}}\n")
}

func TestFaultsOfRetention(t *testing.T) {
	requireFaults(t, "retention: {ids: 0, inbox: 0d, outbox_keys: 0, handlers: {book: 0}, force: true}\n")
	requireFaults(t, "retention: {ids: -1d, inbox: -1h, handlers: {book: -1s}, interval: 0s}\n",
		`retention.ids: "-1d" must not be negative`, "retention.handlers[book]: must not be negative",
		`retention.inbox: "-1h" must not be negative`, `retention.interval: "0s" must be above 0`)
	requireFaults(t, "retention: {inbox: 23h}\n", `retention.inbox: "23h" is not in whole days`)
	requireFaults(t, "retention: {inbox: 1d}\n")
	requireFaults(t, "retention: {handlers: {book: often, other: 1d}}\n",
		"retention.handlers[book]: is not a duration", "retention.handlers[other]: no topic has a handler")
	requireFaults(t, "retention: {handlers: {other: 1d}}\n",
		"retention.handlers[other]: no topic has a handler of that name; the handlers are book")
	requireFaults(t, "retention: {ids: 90}\n", "retention.ids: is not a duration")
}

func TestZeroRatioIsKept(t *testing.T) {
	c, err := loadText(t, minimal+"health: {degraded: {failure_ratio: 0, oldest_age: 1d}}\n")
	require.NoError(t, err)
	require.Zero(t, c.Health.Degraded.FailureRatio)
	require.Equal(t, 24*time.Hour, c.Health.Degraded.OldestAge)
}

func TestDeadLetterTopicReachesTheConsumer(t *testing.T) {
	c, err := loadText(t, minimal+"dead_letter_topic: orders.dead\n")
	require.NoError(t, err)
	got, err := c.Consumer(slog.Default())
	require.NoError(t, err)
	require.Equal(t, "orders.dead", got.DeadTopic)

	c, err = loadText(t, minimal, "FIRSTSEEN_DEAD_LETTER_TOPIC=dead")
	require.NoError(t, err)
	require.Equal(t, "dead", c.DeadLetterTopic)
}

func TestDeadLetterTopicMustBeAnotherTopicWithAName(t *testing.T) {
	_, err := loadText(t, minimal+"dead_letter_topic: orders\n")
	require.ErrorContains(t, err, "dead_letter_topic (line 6, column 1): is the topic of topics[0]")
	_, err = loadText(t, minimal+"dead_letter_topic: dead letters\n")
	require.ErrorContains(t, err, "dead_letter_topic (line 6, column 1): is no name of a topic")
}
