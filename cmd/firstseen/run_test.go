package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/migrations"
)

// shop is a database with a function as a handler, a broker with a topic, and a config for both.
type shop struct {
	settings string // of the topic, with a comma
	t        *testing.T
	db       *deduptest.DB
	addr     string
	topic    string
	group    string
}

func newShop(t *testing.T, handler string) *shop {
	t.Helper()
	return newShopOn(t, deduptest.New(t), handler)
}

func newShopOn(t *testing.T, db *deduptest.DB, handler string) *shop {
	t.Helper()
	s := &shop{t: t, db: db, addr: consumertest.NewFake(t).Addr, topic: consumertest.Name(t),
		group: consumertest.Name(t)}
	consumertest.CreateTopic(t, s.addr, s.topic, 2)
	_, err := s.db.Pool.Exec(t.Context(), `create schema billing; create table billing.booked (id uuid)`)
	require.NoError(t, err)
	_, err = s.db.Pool.Exec(t.Context(), handler)
	require.NoError(t, err)
	return s
}

const booking = `create function billing.book_order(m firstseen.message) returns void language sql as $$
	insert into billing.booked values (m.id) $$`

func (s *shop) config(dsn string) string {
	return fmt.Sprintf(`
postgres: {dsn: %q}
kafka: {brokers: [%q]}
group: %s
topics: [{name: %s, %s handlers: [{name: book, function: billing.book_order}]}]
`, dsn, s.addr, s.group, s.topic, s.settings)
}

func (s *shop) produce(from, to int) {
	s.t.Helper()
	var records []*kgo.Record
	for i := from; i < to; i++ {
		id := strconv.Itoa(i)
		records = append(records, &kgo.Record{Topic: s.topic, Key: []byte(id),
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}})
	}
	consumertest.Produce(s.t, s.addr, records...)
}

func (s *shop) booked() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.Pool.QueryRow(s.t.Context(), `select count(*) from billing.booked`).Scan(&n))
	return n
}

func (s *shop) requireAllCommitted() {
	s.t.Helper()
	for partition := range int32(2) {
		require.Equal(s.t, consumertest.EndOffset(s.t, s.addr, s.topic, partition),
			consumertest.CommittedOffset(s.t, s.addr, s.group, s.topic, partition))
	}
}

func TestRunConsumesOnceAndEndsCleanlyOnSIGTERM(t *testing.T) {
	s := newShop(t, booking)
	s.produce(0, 100)
	s.produce(50, 150) // half of them again
	p := start(t, s.config(s.db.DSN), "run")
	eventually(t, func() bool { return s.booked() == 150 })
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.Contains(t, p.log.String(), "ended: offsets are committed and the group is left")
	require.Equal(t, 150, s.booked())
	s.requireAllCommitted()
}

func TestRunFinishesTheOpenBatchOnSIGTERM(t *testing.T) {
	t.Parallel()
	s := newShop(t, `create function billing.book_order(m firstseen.message) returns void language plpgsql as $$
		begin perform pg_sleep(2); insert into billing.booked values (m.id); end $$`)
	s.produce(0, 1)
	p := start(t, s.config(s.db.DSN), "run")
	s.awaitSleep()
	p.signal(syscall.SIGINT)
	require.Equal(t, exitOK, p.exit())
	require.Equal(t, 1, s.booked())
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(signal.String(), func(t *testing.T) {
			s := newShop(t, `create function billing.book_order(m firstseen.message) returns void language sql as 'select pg_sleep(600)'`)
			s.produce(0, 1)
			p := start(t, s.config(s.db.DSN), "run")
			s.awaitSleep()
			p.signal(syscall.SIGTERM)
			p.awaitLog("a second signal ends at once")
			eventually(t, func() bool { // what comes within the first one's moment is that one still
				_ = p.cmd.Process.Signal(signal)
				return p.ended()
			})
			require.Equal(t, code, p.exit())
		})
	}
}

// timeout(1) sends SIGTERM to the program, and again to its group.
func TestSignalThatIsSentTwiceAtOnceIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, over := make(chan os.Signal), make(chan struct{})
		second := make(chan os.Signal)
		go func() { second <- nextSignal(signals, over, sameSignal) }()
		signals <- syscall.SIGTERM
		time.Sleep(sameSignal)
		signals <- syscall.SIGTERM
		time.Sleep(time.Millisecond)
		signals <- syscall.SIGINT
		require.Equal(t, syscall.SIGINT, <-second)
	})
}

func (s *shop) awaitSleep() {
	s.t.Helper()
	eventually(s.t, func() bool {
		var n int
		require.NoError(s.t, s.db.Pool.QueryRow(s.t.Context(), `select count(*) from pg_stat_activity
			where wait_event = 'PgSleep' and datname = current_database()`).Scan(&n))
		return n > 0
	})
}

func TestRunThroughAPoolerInTransactionMode(t *testing.T) {
	s := newShop(t, booking)
	pooler := deduptest.PgBouncer(t, s.db.DSN)
	s.produce(0, 100)
	config := strings.Replace(s.config(pooler.DSN), "postgres: {", "postgres: {prepared_statements: false, ", 1)
	p := start(t, config+"batch: {messages: 7}\n", "run")
	eventually(t, func() bool { return s.booked() == 100 })
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	s.requireAllCommitted()
}

func TestRunRefusesWhatTryingAgainDoesNotMend(t *testing.T) {
	s := newShop(t, booking)
	for name, c := range map[string]struct{ config, want string }{
		"no schema": {s.config(deduptest.NewDatabase(t)),
			"schema firstseen is not there: run `firstseen migrate up`"},
		"wrong password": {s.config(withLogin(t, s.db.DSN, "nobody", "hunter2")), "nobody"},
		"no database":    {s.config(withPath(t, s.db.DSN, "/none")), `database "none" does not exist`},
		"no function": {strings.Replace(s.config(s.db.DSN), "book_order", "none", 1),
			"handler book of topic " + s.topic + ": function billing.none: there is none of that name"},
		"wrong config":          {s.config(s.db.DSN) + "nonsense: 1", "column 1): unknown key"},
		"wrong type":            {s.config(s.db.DSN) + "inbox: 1", "column 1): is not a text"},
		"no such function name": {strings.Replace(s.config(s.db.DSN), "billing.book_order", "a..b", 1), "a..b"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, c.config, "run")
			want := exitFailure
			if strings.Contains(c.want, "unknown key") || strings.Contains(c.want, "is not a text") {
				want = exitUsage
			}
			require.Equal(t, want, p.exit())
			lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
			require.Contains(t, lines[len(lines)-1], "firstseen: ")
			require.Contains(t, lines[len(lines)-1], c.want)
			require.NotContains(t, p.log.String(), "hunter2")
		})
	}
}

func TestRunRefusesADatabaseThatIsNotInUTF8(t *testing.T) {
	t.Parallel()
	s := newShop(t, booking)
	name := s.db.Pool.Config().ConnConfig.Database + "_latin"
	s.exec(`create database ` + name + ` encoding 'LATIN1' locale 'C' template template0`)
	t.Cleanup(func() { _, _ = s.db.Pool.Exec(context.Background(), `drop database `+name+` with (force)`) })
	p := start(t, s.config(s.db.DSN+"&dbname="+name), "run")
	require.Equal(t, exitFailure, p.exit())
	require.Contains(t, p.log.String(), "the database's encoding is LATIN1, and firstseen needs UTF8")
}

func TestRunWaitsForPostgresAndEndsWhileItWaits(t *testing.T) {
	s := newShop(t, booking)
	p := start(t, s.config("postgres://app:hunter2@127.0.0.1:1/app"), "run")
	p.awaitLog("waiting: Postgres does not answer")
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.NotContains(t, p.log.String(), "hunter2")
}

// Whoever answers there: a connection is given up only after timeouts.postgres.
func TestRunSaysSoonThatPostgresDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t, booking)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	p := start(t, s.config("postgres://app@"+silent.Addr().String()+"/shop?sslmode=disable"), "run")
	p.awaitLog("no answer within 2s")
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
}

func TestRunMigratesFirstWhereAsked(t *testing.T) {
	s := newShop(t, booking)
	for _, schema := range []string{"firstseen", "seen"} {
		config := strings.Replace(s.config(deduptest.NewDatabase(t)), "postgres: {",
			"postgres: {schema: "+schema+", ", 1)
		p := start(t, config, "run", "--migrate")
		require.Equal(t, exitFailure, p.exit())
		require.Contains(t, p.log.String(), "schema migrated")
		require.Contains(t, p.log.String(), "function billing.book_order: there is none of that name")
	}
}

func TestCheckConnectsNowhereAndShowsNoSecret(t *testing.T) {
	path := filepath.Join("..", "..", "testdata", "firstseen.yaml")
	t.Setenv("POSTGRES_PASSWORD", "hunter2")
	stdout, stderr, code := command(t, "run", "--check", "--config", path)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "config ok: group billing reads 2 topics (orders, payments) from localhost:9092 (no TLS, "+
		"no SASL) and gives them to 3 handlers in localhost:5432/shop\n", stdout)
	t.Setenv("FIRSTSEEN_BATCH_MESSAGES", "-1")
	stdout, stderr, code = command(t, "run", "--check", "--config", path)
	require.Equal(t, exitUsage, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "batch.messages (FIRSTSEEN_BATCH_MESSAGES): \"-1\" must be above 0")
	require.NotContains(t, stderr, "hunter2")
}

func withLogin(t *testing.T, dsn, user, password string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.UserPassword(user, password)
	return u.String()
}

func withPath(t *testing.T, dsn, path string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.Path = path
	return u.String()
}

func TestRunTakesTheTimeLimitOfHandlersFromTheConfig(t *testing.T) {
	t.Parallel()
	s := newShop(t, `create function billing.book_order(m firstseen.message) returns void language plpgsql as $$
		begin perform pg_sleep(case when m.raw_id = '1' then 3600 else 0 end); insert into billing.booked values (m.id); end $$`)
	s.produce(0, 3)
	start(t, s.config(s.db.DSN)+"timeouts: {handler: 500ms}\n", "run")
	eventually(t, func() bool {
		var n int
		require.NoError(t, s.db.Pool.QueryRow(t.Context(),
			`select count(*) from firstseen.parked where raw_id = '1' and attempts > 0`).Scan(&n))
		return n == 1 && s.booked() == 2
	})
}

func TestRunKeepsToTheSchemaOfTheConfig(t *testing.T) {
	s := newShop(t, booking)
	_, err := migrations.Up(t.Context(), s.db.DSN, migrations.Config{Schema: "seen"})
	require.NoError(t, err)
	_, err = s.db.Pool.Exec(t.Context(),
		`drop schema firstseen cascade; `+strings.ReplaceAll(booking, "firstseen.", "seen."))
	require.NoError(t, err)
	s.produce(0, 3)
	p := start(t, strings.Replace(s.config(s.db.DSN), "postgres: {", "postgres: {schema: seen, ", 1)+
		"retention: {inbox: 1d}\n", "run")
	eventually(t, func() bool { return s.booked() == 3 })
	var n int
	require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select count(*) from seen.inbox`).Scan(&n))
	require.Equal(t, 3, n)
	_, stderr, code := command(t, "retention", "plan", "--config", p.config)
	require.Equal(t, exitOK, code, stderr)
}

// The database is out of reach, so that nothing else has to be started: the config is followed from the first line on.
func TestRunReloadsItsConfig(t *testing.T) {
	s := &shop{t: t, addr: "127.0.0.1:1", topic: "orders", group: "billing"}
	text := s.config("postgres://app:hunter2@127.0.0.1:1/app")
	p := start(t, text, "run")
	p.awaitLog("waiting: Postgres does not answer")

	p.reload(text + "http: {rate: 0}\nhelth: {}\n")
	p.awaitLog("config not reloaded: it has faults, and the one before stays")
	require.Regexp(t, `http\.rate \(line \d+, column 8\): must be above 0`, p.log.String())
	require.Regexp(t, `helth \(line \d+, column 1\): unknown key; did you mean health\?`, p.log.String())

	p.reload(text + "log: {level: error}\nmax_parked: 5\nhttp: {write_token: a-token-for-writers}\n")
	p.awaitLog(`changed="log.level, http.write_token"`)
	p.awaitLog("keys=max_parked")
	p.reload(text + "log: {level: debug}\nhttp: {rate: 3}\n")
	p.awaitLog(`changed="log.level, http.write_token, http.rate"`)
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.NotContains(t, p.log.String(), "hunter2")
	require.NotContains(t, p.log.String(), "a-token")
}

// reload gives the program another config, and the signal to read it.
func (p *program) reload(text string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(p.config, []byte(text), 0o600))
	p.signal(syscall.SIGHUP)
}
