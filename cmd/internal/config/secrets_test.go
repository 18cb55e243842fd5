package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

const password = "hunter2"

func TestSecretsComeFromFilesAndReferences(t *testing.T) {
	sasl := write(t, "sasl", password+"\r\n")
	dsn := write(t, "dsn", " postgres://a:b@c/d \n")
	text := strings.Replace(minimal, `dsn: "postgres://app@db/shop"`, "dsn_file: "+dsn, 1)
	text = strings.Replace(text, "kafka: {",
		"kafka: {sasl: {mechanism: plain, username: u, password_file: "+sasl+"}, ", 1)
	got, err := loadText(t, text)
	require.NoError(t, err)
	require.Equal(t, password, got.Kafka.SASL.Password.Reveal())
	require.Equal(t, "postgres://a:b@c/d", got.Postgres.DSN.Reveal())
	text = strings.Replace(text, "password_file: "+sasl, "password: '${A}${B}$${C}$D'", 1)
	got, err = loadText(t, text, "A=hun", "B=te=r2", "D=no")
	require.NoError(t, err)
	require.Equal(t, "hunte=r2${C}$D", got.Kafka.SASL.Password.Reveal())
}

func TestByteOrderMarkOfAnEditorIsNoPartOfASecret(t *testing.T) {
	environ := []string{"FIRSTSEEN_KAFKA_SASL_MECHANISM=plain", "FIRSTSEEN_KAFKA_SASL_USERNAME=u"}
	got, err := loadText(t, "\ufeff"+minimal,
		append(environ, "FIRSTSEEN_KAFKA_SASL_PASSWORD_FILE="+write(t, "pw", "\ufeff"+password+"\r\n"))...)
	require.NoError(t, err)
	require.Equal(t, password, got.Kafka.SASL.Password.Reveal())
	name := write(t, "wide", "\xff\xfeh\x00")
	_, err = loadText(t, minimal, append(environ, "FIRSTSEEN_KAFKA_SASL_PASSWORD_FILE="+name)...)
	require.Contains(t, faults(t, err), "kafka.sasl.password_file (FIRSTSEEN_KAFKA_SASL_PASSWORD_FILE): the file "+
		name+" is UTF-16; write it as UTF-8")
}

func TestSecretFilesThatCannotServe(t *testing.T) {
	_, err := loadText(t, minimal+"\n", "FIRSTSEEN_KAFKA_SASL_MECHANISM=plain", "FIRSTSEEN_KAFKA_SASL_USERNAME=u",
		"FIRSTSEEN_KAFKA_SASL_PASSWORD_FILE=/none/pw")
	require.Equal(t, []string{"kafka.sasl.password_file (FIRSTSEEN_KAFKA_SASL_PASSWORD_FILE): open /none/pw: no such file or directory"}, faults(t, err))
	_, err = loadText(t, minimal, "FIRSTSEEN_KAFKA_SASL_PASSWORD=x",
		"FIRSTSEEN_KAFKA_SASL_PASSWORD_FILE="+write(t, "pw", "\n"))
	require.Equal(t, []string{
		"kafka.sasl.password_file (FIRSTSEEN_KAFKA_SASL_PASSWORD_FILE): is given beside kafka.sasl.password (FIRSTSEEN_KAFKA_SASL_PASSWORD); keep one of the two",
		"kafka.sasl.mechanism: is required; write one of plain, scram-sha-256, scram-sha-512, oauthbearer, aws-msk-iam, or take the other keys out",
	}, faults(t, err))
}

// Each text holds the password where a mistake may put it.
func TestPasswordIsInNoError(t *testing.T) {
	for _, text := range []string{
		"postgres: {dsn: 'postgres://u:hunter2#@db/x'}",
		"postgres: {dsn: 'postgres://u:hunter2@db:port/x'}",
		"postgres: {dsn: 'postgres://u:hunter2/hunter2@db/x?sslmode=hunter2'}",
		"postgres: {dsn: 'host=db password=hunter2 port=none'}",
		"postgres: {dsn: 'host=db password=hunter2 sslrootcert=/none'}",
		"postgres: {dsn: {hunter2: x}, dsn_file: x}",
		"postgres: 'postgres://u:hunter2@db/x'",
		"postgres://u:hunter2@db/x",
		"postgres: {'postgres://u:hunter2@db/x': }",
		"kafka: {sasl: {password: [hunter2]}}",
		"kafka: {sasl: {password: *hunter2}}",
		"kafka: {sasl: {password: @hunter2}}",
		"kafka: {sasl: {password: %hunter2}}",
		"kafka: {sasl: {mechanism: scram-sha-256, username: u, password: \"hunter2\\u0007\"}}",
		"kafka: {sasl: hunter2: x}",
		"kafka: {brokers: ['u:hunter2@kafka-1']}",
		"kafka: {brokers: ['${PW}']}\nlog: {level: '${PW}', format: '${PW}'}\nbatch: {messages: '${PW}', bytes: '${PW}'}\nkafka: 1",
		"kafka: {brokers: '${PW}'}",
		"log: {level: '${PW}'}\nbatch: {messages: '${PW}', bytes: '${PW}'}\nstart_at: '${PW}'\ntimeouts: {drain: '${PW}'}",
		"topics: [{name: 'a ${PW}', id: ['${PW}'], handlers: [{name: '${PW}', function: '${PW}()'}]}]",
		"topics: [{name: a, handlers: [{name: b, webhook: {url: 'https://u:hunter2@h/x', secret: hunter2, proxy: hunter2, headers: {a b: hunter2, X: \"hunter2\\n\"}}}]}]",
		"topics: [{name: a, handlers: [{name: b, webhook: {url: '://hunter2', secrets: hunter2, headers: hunter2}}]}]",
		"topics: [{name: a, handlers: [{name: b, webhook: 'https://hunter2', ordering: '${PW}', retry: '${PW}'}], fingerprint: '${PW}'}]",
		"topics: [{name: a, id: '${PW}'}]\npostgres: {schema: 'A${PW}'}",
	} {
		_, err := loadText(t, text, "PW="+password, "FIRSTSEEN_KAFKA_CLIENT_ID=x")
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), password, text)
		require.NotContains(t, fmt.Sprintf("%+v %#v", err, errors.Unwrap(err)), password, text)
	}
}

func TestPasswordIsInNoPrint(t *testing.T) {
	c, err := loadText(t, complete, "PW="+password, "SIGN="+signing, "TOKEN="+password,
		"READ=a-token-"+password+password)
	require.NoError(t, err)
	require.Equal(t, password, c.Kafka.SASL.OAuth.ClientSecret.Reveal())
	c.Kafka.SASL.Password, c.Kafka.SASL.OAuth.Token = password, password
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb, c)
	}
	fmt.Fprintln(&out, c.Summary())
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "config", c, "dsn", c.Postgres.DSN)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "config", c, "dsn", c.Postgres.DSN)
	require.NoError(t, json.NewEncoder(&out).Encode(c))
	require.NotContains(t, out.String(), password)
	require.NotContains(t, out.String(), signing[6:])
	require.NotContains(t, out.String(), fmt.Sprintf("%x", password))
}

func TestSizesAreReadAsWritten(t *testing.T) {
	for text, want := range map[string]Size{"2B": 2, "3KiB": 3 << 10, "4 MiB": 4 << 20, "5GiB": 5 << 30,
		"6kB": 6000, "7MB": 7e6, "8GB": 8e9, "9223372036854775807B": 9223372036854775807} {
		got, err := parseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "1", "67108864", "MiB", "1.5MiB", "4M", "4mib", "9223372036854775807KiB", "1e3"} {
		_, err := parseSize(text)
		require.Error(t, err, text)
	}
}

// What --check passes, the consumer takes: its limits are held here a second time.
func TestTimeoutsThatAreAcceptedSuitTheConsumer(t *testing.T) {
	var registry handlers.Registry
	require.NoError(t, registry.Register("book", handlers.BatchHandlerFunc(nil), "orders"))
	store, err := dedup.Open(t.Context(), deduptest.New(t).Pool, dedup.Config{Inbox: "billing"})
	require.NoError(t, err)
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	require.NoError(t, err)
	base, err := loadText(t, minimal)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		seconds := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Second
		}
		c := base
		given := Timeouts{Session: seconds("session", 90), Rebalance: seconds("rebalance", 90),
			Heartbeat: seconds("heartbeat", 5), Request: seconds("request", 20), Drain: seconds("drain", 60)}
		c.Timeouts.Session, c.Timeouts.Rebalance = cmp.Or(given.Session, c.Timeouts.Session),
			cmp.Or(given.Rebalance, c.Timeouts.Rebalance)
		c.Timeouts.Heartbeat, c.Timeouts.Request = cmp.Or(given.Heartbeat, c.Timeouts.Heartbeat),
			cmp.Or(given.Request, c.Timeouts.Request)
		c.Timeouts.Drain = given.Drain
		c.fillIn()
		l := &loader{}
		l.checkTimeouts(c.Timeouts)
		settings, err := c.Consumer(slog.Default())
		if err != nil {
			t.Fatal(err)
		}
		_, err = consumer.New(settings, processor)
		drains := !l.has("timeouts.drain") && !l.has("timeouts.session")
		if drains && err != nil {
			t.Fatalf("accepted here, refused there: %v", err)
		}
		if l.has("timeouts.drain") && err == nil {
			t.Fatalf("refused here, accepted there: %v", l.faults)
		}
	})
}
