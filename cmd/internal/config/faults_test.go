package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const withoutTopics = `
postgres: {dsn: "postgres://app@db/shop"}
kafka: {brokers: ["kafka-1:9092"]}
group: g
`

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	for _, c := range []struct {
		name, text string
		environ    []string
		want       []string // the start of each fault, in order
	}{
		{name: "nothing is there", text: "", want: []string{
			"postgres.dsn: is required", "kafka.brokers: is required", "group: is required", "topics: is required"}},
		{name: "types", text: `
postgres: {dsn: [1], schema: 5, max_connections: 4.5, prepared_statements: perhaps}
kafka: kafka-1:9092
group: 12
topics: orders
batch: {messages: many, bytes: 4 MB/s, transactions: 0}
fetch: {wait: 500, buffer: -1MiB, bytes: 3GiB}
timeouts: {drain: soon, handler: 0s}
`, want: []string{
			"postgres.dsn: is not a text", "postgres.schema: is not a text",
			"postgres.max_connections: is not a whole number",
			`postgres.prepared_statements: "perhaps" is neither true nor false`,
			"kafka: is not a section", "group: is not a text", "topics: is not a list",
			`batch.messages: "many" is not a whole number`, `batch.bytes: "4 MB/s" is not a size`,
			"fetch.wait: is not a duration", `timeouts.drain: "soon" is not a duration`,
			"batch.transactions: must be above 0", `fetch.buffer: "-1MiB" must be above 0`,
			`timeouts.handler: "0s" must be above 0`,
			"fetch.bytes: is too large",
		}},
		{name: "values", text: `
postgres: {dsn: "postgres://a:b#c@d:e/f", schema: Seen, max_connections: 4}
kafka:
  brokers: [kafka-1, "kafka-2:0", kafka-3:9092]
  tls: {ca_file: /none/ca.pem, insecure_skip_verify: true}
  sasl: {mechanism: gssapi}
group: g
topics:
  - handlers: [{function: f}, {name: h}]
  - {name: a b, id: [header, key, key]}
  - {name: t, id: [key, key], handlers: [{name: h, function: f}, {name: h, function: "g()"}]}
  - {name: t, handlers: [{name: h, function: other}]}
start_at: noon
on_loss: restart
on_reset: continue
on_postgres_behind: hold
timeouts: {session: 20s, heartbeat: 10s}
log: {level: loud, format: xml}
`, want: []string{
			"postgres.dsn: can't be read", `postgres.schema: "Seen" must be`, "postgres.max_connections: 4 is too few",
			`kafka.brokers[0]: "kafka-1" is not an address`, `kafka.brokers[1]: "kafka-2:0" is not an address`,
			"kafka.tls.ca_file: has no effect while TLS is off", "kafka.tls.insecure_skip_verify: has no effect",
			`kafka.sasl.mechanism: "gssapi" is none of plain, scram-sha-256, scram-sha-512, oauthbearer, aws-msk-iam`,
			"topics[0].name: is required", "topics[0].handlers[0].name: is required",
			"topics[0].handlers[1].function: is required",
			"topics[1].name: is no name of a topic", `topics[1].id[0]: identity source "header"`,
			"topics[1].handlers: is required",
			`topics[2].id: identity source 2: "key" is there twice`,
			"topics[2].handlers[0].name: is the name of a handler with another",
			"topics[2].handlers[1].function: is no name of a function",
			"topics[2].handlers[1].name: is the name of another handler",
			"topics[3].name: is the topic of topics[2] already",
			"topics[3].handlers[0].name: is the name of a handler with another",
			`start_at: "noon" is none of earliest, latest`, `on_loss: "restart" is none of continue, hold`,
			`on_reset: "continue" is none of hold, restart`,
			`on_postgres_behind: "hold" is none of position, committed`,
			`log.level: "loud" is none of`, `log.format: "xml" is none of text, json`,
			"timeouts.heartbeat: 10s is too long", "timeouts.session: the shorter",
		}},
		{name: "what fails at run time only", text: `
postgres: {dsn: "postgres://app@db/shop"}
kafka: {brokers: ["kafka-1:9092"]}
group: "a\0b"
inbox: "` + strings.Repeat("i", 1001) + `"
topics: [{name: t, handlers: [{name: "` + strings.Repeat("h", 3000) + `", function: f}]}]
fetch: {wait: 25d}
timeouts: {session: 60d, rebalance: 60d}
`, want: []string{
			"group: can't be kept: the name is not UTF-8, or has a NUL",
			"inbox: can't be kept: the name has 1001 bytes",
			"topics[0].handlers[0].name: can't be kept: the name has 3000 bytes; at most 1000",
			"fetch.wait: 25d is too long",
			"timeouts.session: 60d is too long; Kafka's protocol has at most 24d20h31m23s",
			"timeouts.rebalance: 60d is too long"}},
		{name: "octal", text: minimal +
			"batch: {messages: 010, transactions: \"010\"}\nmax_parked: 0644\nhttp: {rate: +007}\n",
			want: []string{
				"batch.messages: begins with a zero", "max_parked: begins with a zero",
				"http.rate: begins with a zero", `batch.transactions: "010" begins with a zero`}},
		{name: "sizes without a unit", text: minimal + "batch: {bytes: 4194304}\nfetch: {buffer: \"64\"}\n", want: []string{
			"batch.bytes: is not a size; write a number with its unit, B, KiB, MiB or GiB, like 4MiB",
			`fetch.buffer: "64" is not a size`}},
		{name: "octal in a list",
			text: "topics: [{name: t, handlers: [{name: h, function: f, retry: {max_attempts: 017}}]}]\n" +
				withoutTopics, want: []string{"topics[0].handlers[0].retry.max_attempts: begins with a zero"}},
		{name: "octal in plain variables", text: minimal + "http: {rate: \"${RATE}\"}\n", environ: []string{
			"FIRSTSEEN_BATCH_MESSAGES=010", "FIRSTSEEN_HEALTH_UNHEALTHY_FAILURE_RATIO=+01", "RATE=0644"},
			want: []string{
				`batch.messages (FIRSTSEEN_BATCH_MESSAGES): "010" begins with a zero`,
				"http.rate: begins with a zero",
				`health.unhealthy.failure_ratio (FIRSTSEEN_HEALTH_UNHEALTHY_FAILURE_RATIO): "+01" begins with a zero`}},
		{name: "octal in a variable", text: minimal,
			environ: []string{"FIRSTSEEN_TOPICS=[{name: t, handlers: [{name: h, function: f, retry: {max_attempts: 017}}]}]"},
			want:    []string{"topics[0].handlers[0].retry.max_attempts: begins with a zero"}},
		{name: "two documents", text: minimal + "---\ngroup: other\n", want: []string{
			"holds more than one YAML document"}},
		{name: "drain", text: minimal + "timeouts: {drain: 30s}\n", want: []string{
			"timeouts.drain: 30s is too long; with these session, rebalance, heartbeat and request timeouts it can be 26s at most"}},
		{name: "unknown keys", text: minimal + `
brokers: [a:1]
Batch: {messages: 1}
consumer_groups: g
fetch: {max_bytes: 1MiB, nothing_like_it: 1}
timeouts: {sessionTimeout: 1s, requests: 1s}
"user:pa ss@host": x
`, want: []string{
			"Batch: unknown key; did you mean batch?", "brokers: unknown key; did you mean kafka.brokers?",
			"consumer_groups: unknown key; did you mean group?",
			"fetch.max_bytes: unknown key; did you mean fetch.bytes?",
			"fetch.nothing_like_it: unknown key; the keys here are buffer, wait, bytes",
			"timeouts.requests: unknown key; did you mean timeouts.request?",
			"timeouts.sessionTimeout: unknown key; did you mean timeouts.session?",
			"has an unknown key; the keys here are",
		}},
		{name: "environment", text: minimal, environ: []string{"FIRSTSEEN_KAFKA_BROKER=a:1",
			"FIRSTSEEN_BATCH_MESSAGES=x",
			"FIRSTSEEN_TOPICS=[", "FIRSTSEEN_HOST_NAME=x", "FIRSTSEEN_POSTGRES_DSN_FILE=/none"}, want: []string{
			"FIRSTSEEN_KAFKA_BROKER: unknown environment variable; did you mean FIRSTSEEN_KAFKA_BROKERS?",
			"topics (FIRSTSEEN_TOPICS): is not YAML",
			"FIRSTSEEN_HOST_NAME: unknown environment variable; it is FIRSTSEEN_ and a key",
			`batch.messages (FIRSTSEEN_BATCH_MESSAGES): "x" is not a whole number`,
			"postgres.dsn_file (FIRSTSEEN_POSTGRES_DSN_FILE): is given beside postgres.dsn",
		}},
		{name: "references", text: minimal + "inbox: ${NONE}\nlog: {level: '${LEVEL', format: '$${x}'}\n",
			want: []string{
				"inbox: ${NONE} is not set in the environment", "log.level: has a ${ that is no ${NAME}",
				`log.format: "${x}" is none of text, json`}},
		{name: "no yaml", text: "group: a\n  b: c",
			want: []string{"not valid YAML: line 2: mapping values are not allowed in this context"}},
		{name: "no keys", text: "- a", want: []string{"not valid YAML: the file must hold keys"}},
		{name: "twice", text: "group: a\ngroup: b",
			want: []string{"not valid YAML: line 2: mapping key \"group\" already defined at line 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := loadText(t, c.text, c.environ...)
			got := faults(t, err)
			for i := range min(len(got), len(c.want)) {
				require.True(t, strings.HasPrefix(got[i], c.want[i]),
					"want %q\ngot  %q\nall %s", c.want[i], got[i], err)
			}
			require.Len(t, got, len(c.want), "%s", err)
		})
	}
}

func TestFaultsSayWhereTheFileHasWhatIsWrong(t *testing.T) {
	_, err := loadText(t, `postgres: {schema: Big}
kafka:
  brokers: [a:1, b]
grup: billing
topics:
  - name: orders
    handlers:
      - {name: book, function: f}
      - name: notify
        webhook: {url: ftp://h, "x y": 1}
http: {rate: 0}
retention: {handlers: {book: -1s, other: 1d}}
log: [info]
"not shown": 1
`, "FIRSTSEEN_HTTP_RATE=none")
	var e *Error
	require.ErrorAs(t, err, &e)
	at := map[string][]int{}
	for _, f := range e.Faults {
		at[f.Key] = []int{f.Line, f.Column}
	}
	require.Equal(t, map[string][]int{
		"postgres.dsn": {1, 1}, "postgres.schema": {1, 12}, // what is missing is told of where it belongs
		"kafka.brokers[1]": {3, 18}, "grup": {4, 1}, "group": {0, 0},
		"topics[].handlers[].webhook":       {10, 33}, // the unknown key itself, which may not be shown
		"topics[0].handlers[1].webhook.url": {10, 19},
		"http.rate (FIRSTSEEN_HTTP_RATE)":   {0, 0},
		"log":                               {13, 1},
		"":                                  {14, 1},
		"retention.handlers[book]":          {12, 24}, "retention.handlers[other]": {12, 35},
	}, at, "%v", err)
	require.ErrorContains(t, err, "\n  postgres.schema (line 1, column 12): ")
	require.ErrorContains(t, err, "\n  line 14, column 1: has an unknown key; ")
}
