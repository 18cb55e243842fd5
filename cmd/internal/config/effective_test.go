package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func effective(t *testing.T, text string, environ ...string) Effective {
	t.Helper()
	e, err := LoadEffective(write(t, "firstseen.yaml", text), environ)
	require.NoError(t, err)
	return e
}

// requireLine wants a line, whatever its indentation.
func requireLine(t *testing.T, text, line string) {
	t.Helper()
	for l := range strings.Lines(text) {
		if strings.TrimLeft(strings.TrimSpace(l), "- ") == line {
			return
		}
	}
	require.Fail(t, "no such line", "%s\n%s", line, text)
}

func TestPrintSaysWhereEachValueCameFrom(t *testing.T) {
	dsn := write(t, "dsn", "postgres://app:"+password+"@db/shop\n")
	text := strings.Replace(minimal, `dsn: "postgres://app@db/shop"`, "dsn_file: "+dsn+", schema: '${S}_x'", 1)
	e := effective(t, text+"fetch: {wait: '${W}ms'}\n", "S=seen", "W=250", "FIRSTSEEN_BATCH_MESSAGES=7",
		"FIRSTSEEN_KAFKA_BROKERS=a:1,b:2", "FIRSTSEEN_RETENTION_HANDLERS={book: 90d}")
	got := e.YAML()
	requireLine(t, got, "# file: "+e.loader.path)
	requireLine(t, got, `dsn: "***" # dsn_file `+dsn)
	requireLine(t, got, "dsn_file: "+yamlText(dsn)+" # file")
	requireLine(t, got, `schema: "${S}_x" # file, ${S}`)
	requireLine(t, got, "wait: 250ms # file, ${W}")
	requireLine(t, got, "messages: 7 # FIRSTSEEN_BATCH_MESSAGES")
	requireLine(t, got, `brokers: [a:1, b:2] # FIRSTSEEN_KAFKA_BROKERS`)
	requireLine(t, got, "handlers: # FIRSTSEEN_RETENTION_HANDLERS")
	requireLine(t, got, "book: 90d")
	requireLine(t, got, "drain: 15s # default")
	requireLine(t, got, "max_connections: 8 # default")
	requireLine(t, got, "inbox: billing # default")
	requireLine(t, got, "name: orders # file")
	requireLine(t, got, "max_attempts: 10 # default")

	var asJSON struct {
		File    string
		Config  map[string]any
		Origins map[string]string
	}
	require.NoError(t, json.Unmarshal(e.JSON(), &asJSON))
	require.Equal(t, e.loader.path, asJSON.File)
	require.EqualValues(t, 7, asJSON.Config["batch"].(map[string]any)["messages"])
	require.Equal(t, "FIRSTSEEN_BATCH_MESSAGES", asJSON.Origins["batch.messages"])
	require.Equal(t, "dsn_file "+dsn, asJSON.Origins["postgres.dsn"])
	require.Equal(t, "default", asJSON.Origins["topics[0].handlers[0].retry.max_attempts"])
	require.Equal(t, map[string]any{"book": "90d"}, asJSON.Config["retention"].(map[string]any)["handlers"])
}

func TestPrintWithoutAFileSaysSo(t *testing.T) {
	t.Chdir(t.TempDir())
	e, err := LoadEffective("", []string{"FIRSTSEEN_POSTGRES_DSN=postgres://a@b/c", "FIRSTSEEN_KAFKA_BROKERS=a:1",
		"FIRSTSEEN_GROUP=g", "FIRSTSEEN_TOPICS=[{name: t, handlers: [{name: h, function: f}]}]"})
	require.NoError(t, err)
	requireLine(t, e.YAML(), "# file: none, there is no firstseen.yaml here")
	requireLine(t, e.YAML(), "name: h # FIRSTSEEN_TOPICS")
	require.Contains(t, string(e.JSON()), `"file": null`)
	_, err = LoadEffective("", nil)
	require.Len(t, faults(t, err), 4)
}

// What is printed is a config again, but for its secrets.
func TestPrintIsReadBackAsTheSameConfig(t *testing.T) {
	text := strings.NewReplacer("https://hooks.example.com/in", "https://hooks.example.com",
		"https://hooks.example.com/crm", "https://hooks.example.com").Replace(complete)
	e := effective(t, text, completeEnviron...)
	e.config.Postgres.DSN, e.config.HTTP.ReadToken, e.config.HTTP.WriteToken = "", "", ""
	e.config.Topics[0].Handlers[1].Webhook.Secret, e.config.Topics[0].Handlers[1].Webhook.Proxy = "", ""
	e.config.Topics[0].Handlers[1].Webhook.Headers = nil
	e.config.Outbox.Destinations[1].Webhook.Secret = ""
	e.config.Ingress, e.config.Registry.Password = defaults().Ingress, ""
	e.config.Kafka.SASL.OAuth.ClientSecret = hidden
	again, err := loadText(t, e.YAML(), "FIRSTSEEN_POSTGRES_DSN=postgres://a@b/c")
	require.NoError(t, err)
	again.Postgres.DSN, again.Registry.Password = "", ""
	require.Equal(t, e.config, again)
}

// fill sets every secret, wherever it is, and counts them.
func fill(v reflect.Value, secret string) (n int) {
	switch {
	case v.Type() == reflect.TypeFor[Secret]():
		v.SetString(secret)
		return 1
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			n += fill(field, secret)
		}
	case isSecret(v.Type()) && v.Kind() == reflect.Slice:
		v.Set(reflect.ValueOf([]Secret{Secret(secret)}))
		return 1
	case isSecret(v.Type()) && v.Kind() == reflect.Map:
		v.Set(reflect.ValueOf(map[string]Secret{"Authorization": Secret(secret)}))
		return 1
	case isSections(v.Type()):
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0), secret)
	}
	return n
}

func TestPrintShowsNoSecretOfAnyKey(t *testing.T) {
	var c Config
	n := fill(reflect.ValueOf(&c).Elem(), password)
	secrets := 0
	for _, k := range keys {
		if k.secret {
			secrets++
		}
	}
	require.Equal(t, secrets, n)
	e := Effective{c, &loader{}}
	require.NotContains(t, e.YAML(), password)
	require.Equal(t, n, strings.Count(e.YAML(), hidden))
	require.NotContains(t, string(e.JSON()), password)
	require.Equal(t, n, strings.Count(string(e.JSON()), hidden))
}

// Each text puts the password where a reference or a mistake may.
func TestPrintShowsNoSecretThatIsElsewhere(t *testing.T) {
	for _, text := range []string{
		minimal + "inbox: '${PW}'\n",
		minimal + "kafka: {brokers: ['${PW}:1', b:2], client_id: 'x${PW}'}\n",
		minimal + "kafka: {brokers: '${PW}:1'}\n",
		hook("webhook: {url: 'https://h/${PW}'}"),
		hook("webhook: {url: 'https://h/services/" + password + "?token=" + password + "'}"),
		hook("webhook: {url: 'https://h', headers: {'X-Key': '${PW}'}}"),
		withTopics("[{name: '${PW}', id: ['header:${PW}', key], tenant_header: '${PW}', handlers: [{name: '${PW}', function: '${PW}'}]}]"),
		withTopics("[{name: orders, id: 'header:${PW}', handlers: [{name: h, function: f}]}]"),
	} {
		if strings.Count(text, "kafka:") == 2 {
			text = strings.Replace(text, "kafka: {brokers: [kafka-1:9092]}\n", "", 1)
		}
		e := effective(t, text, "PW="+password)
		require.NotContains(t, e.YAML(), password)
		require.NotContains(t, string(e.JSON()), password)
	}
}
