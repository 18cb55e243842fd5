package sender_test

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers/outbox"
)

//go:embed testdata/debezium.xml
var debeziumPom []byte

// debeziumJars is the folder with Debezium's jars, which Maven fetches at the first call on a machine.
func debeziumJars(t *testing.T) string {
	t.Helper()
	jars, err := child.Cache("debezium-3.6.1", func(dir string) error {
		mvn, err := exec.LookPath("mvn")
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(file, debeziumPom, 0o600); err != nil {
			return err
		}
		return child.Run(child.Spec{Path: mvn, LogFile: filepath.Join(t.TempDir(), "mvn"),
			Args: []string{"-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory=" + dir}}, 10*time.Minute)
	})
	if err != nil && os.Getenv("FIRSTSEEN_REQUIRE_KAFKA") == "" {
		t.Skipf("Debezium can't be fetched: %v", err)
	}
	require.NoError(t, err)
	return jars
}

// routed is the connector's settings of docs/OUTBOX.md, and the SQL that the page has beside them.
func routed(t *testing.T) (settings, sql string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/OUTBOX.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Debezium instead of a relay\n")
	require.True(t, found)
	for _, line := range regexp.MustCompile(`(?m)^    "(.*)": "(.*)",?$`).FindAllStringSubmatch(section, -1) {
		settings += line[1] + "=" + line[2] + "\n"
	}
	block := regexp.MustCompile("(?s)```sql\n(.*?)```").FindStringSubmatch(section)
	require.NotNil(t, block)
	return settings, block[1]
}

// connect runs Kafka Connect with Debezium's connector on a database until the test ends.
func connect(t *testing.T, addr, dsn string) (log string) {
	t.Helper()
	jars, dir := debeziumJars(t), t.TempDir()
	db, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	settings, _ := routed(t)
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	worker := write("worker.properties", fmt.Sprintf(`bootstrap.servers=%s
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename=%s
offset.flush.interval.ms=1000
listeners=http://127.0.0.1:0
`, addr, filepath.Join(dir, "offsets")))
	connector := write("connector.properties", fmt.Sprintf(`name=outbox
connector.class=io.debezium.connector.postgresql.PostgresConnector
plugin.name=pgoutput
topic.prefix=outbox
publication.autocreate.mode=filtered
database.hostname=%s
database.port=%d
database.user=%s
database.password=%s
database.dbname=%s
%s`, db.Host, db.Port, db.User, db.Password, db.Database, settings))
	java, err := exec.LookPath("java")
	require.NoError(t, err)
	log = filepath.Join(dir, "log")
	p, err := child.Start(child.Spec{Path: java, LogFile: log, Args: []string{"-Xmx384m", "-XX:+UseSerialGC",
		"-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.io.tmpdir=" + dir, "-cp", filepath.Join(jars, "*"),
		"org.apache.kafka.connect.cli.ConnectStandalone", worker, connector}})
	require.NoError(t, err)
	t.Cleanup(func() { p.Stop(syscall.SIGTERM, time.Minute) })
	return log
}

// The page's settings, with the real connector: whoever reads the log of Postgres sends what transactions add, and
// deleting rows as the page says takes nothing away.
func TestDebeziumsRouterSendsWhatIsAddedWithTheSettingsOfThePage(t *testing.T) {
	addr := consumertest.Kafka(t)
	server := deduptest.StartServer(t, pgserver.Config{Settings: map[string]string{"wal_level": "logical"}})
	db := deduptest.Migrated(t, server.DSN("postgres"))
	topic := consumertest.Name(t)
	consumertest.CreateTopic(t, addr, topic, 3)
	log := connect(t, addr, db.DSN)
	var w outbox.Writer
	ids := map[string]string{}
	add := func(ms ...outbox.Message) {
		added, err := w.AddAll(t.Context(), db.Pool, ms)
		require.NoError(t, err)
		for i := range added {
			ids[string(ms[i].Value)] = added[i].ID.String()
		}
	}
	message := func(i int) outbox.Message {
		return outbox.Message{Topic: topic, Key: fmt.Append(nil, "k", i%5), Value: fmt.Append(nil, i)}
	}
	for i := range 50 {
		add(message(i))
	}
	add(outbox.Message{Topic: topic, Value: []byte("later"), NotBefore: time.Now().Add(time.Second)})
	_, tidy := routed(t)
	var records []*kgo.Record
	require.Eventually(t, func() bool {
		if records = read(t, addr, topic); len(records) == 0 {
			return false // what is deleted before it has begun it never sees
		}
		_, err := db.Pool.Exec(t.Context(), strings.Replace(tidy, "interval '1 hour'", "interval '5 seconds'", 1))
		require.NoError(t, err)
		return len(records) >= 51
	}, 5*time.Minute, time.Second, "the connector's log is %s", log)
	for i := 50; i < 60; i++ {
		add(message(i))
	}
	require.Eventually(t, func() bool {
		records = read(t, addr, topic)
		return len(records) >= 61
	}, 3*time.Minute, time.Second)
	last := map[string]int{}
	for _, r := range records {
		value := string(r.Value)
		id := ""
		for _, h := range r.Headers {
			if h.Key == "id" {
				id = string(h.Value)
			}
		}
		require.Equal(t, ids[value], id, "the header id of %q", value)
		delete(ids, value)
		if value == "later" {
			require.Nil(t, r.Key)
			continue
		}
		var n int
		_, err := fmt.Sscan(value, &n)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("k", n%5), string(r.Key))
		require.LessOrEqual(t, last[string(r.Key)], n)
		last[string(r.Key)] = n
	}
	require.Empty(t, ids, "each came once")
}
