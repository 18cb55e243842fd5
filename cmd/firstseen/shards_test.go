package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// spread is a topic of four partitions, the first two of which are at home in shard a, the others in shard b: two
// servers.
type spread struct {
	t            *testing.T
	addr         string
	topic, group string
	second       *pgserver.Server // of shard b
	dsns         map[string]string
	pools        map[string]*pgxpool.Pool
	sent         map[string]int // to each shard
}

func newSpread(t *testing.T) *spread {
	s := &spread{t: t, addr: consumertest.StartKafka(t).Addr, topic: consumertest.Name(t), group: consumertest.Name(t),
		second: deduptest.StartServer(t, pgserver.Config{}), dsns: map[string]string{}, pools: map[string]*pgxpool.Pool{},
		sent: map[string]int{}}
	consumertest.CreateTopic(t, s.addr, s.topic, 4)
	s.dsns["a"], s.dsns["b"] = deduptest.NewDatabase(t), s.second.DSN("postgres")
	for name, dsn := range s.dsns {
		s.pools[name] = deduptest.OpenPool(t, dsn, nil)
	}
	return s
}

// config has the map that is given, and the shards' own databases.
func (s *spread) config(shards string) string {
	return s.configOf(fmt.Sprintf("{shards: %s, shard_dsns: {a: %q, b: %q}}", shards, s.dsns["a"], s.dsns["b"]))
}

func (s *spread) configOf(postgres string) string {
	return fmt.Sprintf(`
postgres: %s
kafka: {brokers: [%q]}
group: %s
topics: [{name: %s, handlers: [{name: book, function: billing.book}, {name: again, function: billing.again}]}]
http: {listen: "127.0.0.1:0"}
timeouts: {session: 25s, rebalance: 25s, drain: 5s}
`, postgres, s.addr, s.group, s.topic)
}

const theMap = `{a: "0-1", b: "2-"}`

// run runs a command with a config, and requires its exit code.
func (s *spread) run(code int, config string, args ...string) (stdout, stderr string) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "firstseen.yaml")
	require.NoError(s.t, os.WriteFile(path, []byte(config), 0o600))
	stdout, stderr, got := command(s.t, append(args, "--config", path)...)
	require.Equal(s.t, code, got, stdout+stderr)
	return stdout, stderr
}

func (s *spread) runJSON(args ...string) (byShard map[string]map[string]any) {
	s.t.Helper()
	stdout, _ := s.run(exitOK, s.config(theMap), append(args, "--json")...)
	require.NoError(s.t, json.Unmarshal([]byte(stdout), &byShard), stdout)
	require.Len(s.t, byShard, 2)
	return byShard
}

// migrate makes both schemas, and what the handlers of the config work on.
func (s *spread) migrate() {
	stdout, _ := s.run(exitOK, s.config(theMap), "migrate", "up")
	require.Contains(s.t, stdout, "shard a:\napplied ")
	require.Contains(s.t, stdout, "the shards of "+s.group+" are declared: a: 0-1; b: 2-\n")
	for _, pool := range s.pools {
		_, err := pool.Exec(s.t.Context(), `create schema billing;
			create table billing.booked (handler text, id uuid, "partition" int);
			create function billing.book(m firstseen.message) returns void language sql as $$
				insert into billing.booked values ('book', m.id, m."partition") $$;
			create function billing.again(m firstseen.message) returns void language sql as $$
				insert into billing.booked values ('again', m.id, m."partition") $$`)
		require.NoError(s.t, err)
	}
}

// produce sends n messages to each of some partitions.
func (s *spread) produce(n int, partitions ...int32) {
	s.t.Helper()
	for _, p := range partitions {
		consumertest.ProduceTo(s.t, s.addr, consumertest.RecordsTo(s.topic, p, n)...)
		s.sent[shardOfTheMap(p)] += n
	}
}

func shardOfTheMap(partition int32) string {
	if partition < 2 {
		return "a"
	}
	return "b"
}

// booked counts a handler's effects in a shard, and requires that each is of a partition that is at home there, and
// the only one of its message.
func (s *spread) booked(shard, handler string) (n int) {
	s.t.Helper()
	var once, home bool
	require.NoError(s.t, s.pools[shard].QueryRow(s.t.Context(), `select count(*), count(distinct id) = count(*),
		coalesce(bool_and(("partition" < 2) = ($2 = 'a')), true) from billing.booked where handler = $1`, handler, shard).
		Scan(&n, &once, &home))
	require.True(s.t, once)
	require.True(s.t, home)
	return n
}

func (s *spread) awaitAll(shards ...string) {
	s.t.Helper()
	for _, name := range shards {
		eventually(s.t, func() bool { return s.booked(name, "book") == s.sent[name] })
	}
}

func (s *spread) startShard(name string) *program {
	return start(s.t, s.config(theMap), "run", "--shard", name)
}

// Two servers, one group: what a partition brings takes effect in its shard and nowhere else, one shard's outage is the
// other's affair in nothing, and no config has a partition begin at another home.
func TestPartitionsAreSpreadOverTwoServers(t *testing.T) {
	s := newSpread(t)
	s.migrate()
	_, stderr := s.run(exitUsage, s.config(theMap), "run")
	require.Contains(t, stderr, "is required where there are shards; say which one by --shard, one of a, b")
	s.produce(20, 0, 1, 2, 3)
	both := consumertest.Record(s.topic, "k", "v", "in-both")
	twice := *both
	twice.Partition = 3
	consumertest.ProduceTo(t, s.addr, both, &twice)
	s.sent["a"]++
	s.sent["b"]++
	a, b := s.startShard("a"), s.startShard("b")
	s.awaitAll("a", "b")

	consumertest.AddPartitions(t, s.addr, s.topic, 1)
	s.produce(5, 4)
	s.awaitAll("b")

	t.Run("one is away", func(t *testing.T) { s.requireOnesOutageIsItsOwn(a, &b) })
	s.requireAllTold()
	for _, p := range []*program{a, b} {
		p.signal(syscall.SIGTERM)
		require.Equal(t, exitOK, p.exit())
	}
	for partition := range int32(5) {
		require.Equal(t, consumertest.EndOffset(t, s.addr, s.topic, partition),
			consumertest.CommittedOffset(t, s.addr, s.group, s.topic, partition))
	}
	s.requireReplayedOnce()
	s.requireOtherMapsRefused()
}

// requireOnesOutageIsItsOwn takes the second server away, kills the process that works on it, and brings both back.
func (s *spread) requireOnesOutageIsItsOwn(a *program, b **program) {
	t := s.t
	require.NoError(t, s.second.Stop(pgserver.Immediate))
	s.produce(10, 0, 1, 2, 3, 4)
	s.awaitAll("a")
	var health string
	eventually(t, func() bool {
		_, health = (*b).ask("/healthz")
		return strings.Contains(health, `"reason":"shard b: it does not answer`)
	})
	eventually(t, func() bool {
		_, health = (*b).ask("/healthz")
		return regexp.MustCompile(`partition ` + s.topic + `/[234] for \S+ \(postgres\)`).MatchString(health)
	})
	status, health := a.ask("/healthz")
	require.Equal(t, http.StatusOK, status)
	require.Regexp(t, `"name":"postgres","status":"ok","reason":"shard a: it answers"`, health)
	require.Regexp(t, `"name":"held","status":"ok"`, health)
	_, metrics := a.ask("/metrics")
	require.Regexp(t, `(?m)^firstseen_build_info\{.*firstseen_shard="a"`, metrics)
	stdout, stderr := s.run(exitFailure, s.config(theMap), "status")
	require.Contains(t, stdout, "shard a:\nCONSUMER")
	require.Contains(t, stderr, "shard b: ")

	(*b).signal(syscall.SIGKILL)
	(*b).exit()
	s.awaitAll("a")
	require.NoError(t, s.second.Start(t.Context()))
	s.pools["b"].Reset() // its connections are the old server's
	*b = s.startShard("b")
	s.awaitAll("a", "b")
}

// requireAllTold asks the commands that go over all shards, and some that don't.
func (s *spread) requireAllTold() {
	t := s.t
	for shard, status := range s.runJSON("status") {
		for _, p := range status["positions"].([]any) {
			require.Equal(t, shard, shardOfTheMap(int32(p.(map[string]any)["partition"].(float64))))
		}
	}
	stdout, _ := s.run(exitOK, s.config(theMap), "explain", "in-both")
	require.Contains(t, stdout, "shard a:\nAsked for in-both")
	require.Contains(t, stdout, "shard b:\nAsked for in-both")
	require.Contains(t, stdout, "It came in partitions of 2 shards, and each has taken it for a message of its own")
	stdout, _ = s.run(exitOK, s.config(theMap), "explain", s.topic+"/3/0")
	require.NotContains(t, stdout, "shard a")
	_, stderr := s.run(exitFailure, s.config(theMap), "explain", "never-sent")
	require.Equal(t, "firstseen: message never-sent was never seen\n", stderr)

	found := s.runJSON("doctor", "--only", "shards", "--only", "kafka.positions", "--only", "kafka.owners")
	require.Regexp(t, `it is shard a of a: 0-1; b: 2-`, fmt.Sprint(found["a"]))
	require.Regexp(t, `partitions with a position: 2`, fmt.Sprint(found["a"]))
	require.Regexp(t, `partitions with a position: 3`, fmt.Sprint(found["b"]))
	_, stderr = s.run(exitUsage, s.config(theMap), "inbox", "list")
	require.Contains(t, stderr, "say which one by --shard, one of a, b")
	stdout, _ = s.run(exitOK, s.config(theMap), "offsets", "show", "--shard", "b")
	require.Contains(t, stdout, s.topic+"/4 ")
	require.NotContains(t, stdout, s.topic+"/1 ")
}

// requireReplayedOnce has a handler's memory be lost in both shards, and all messages be replayed.
func (s *spread) requireReplayedOnce() {
	t := s.t
	for _, pool := range s.pools {
		_, err := pool.Exec(t.Context(), `delete from billing.booked where handler = 'again'`)
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), `delete from firstseen.message_dedup where scope_id in (
			select scope_id from firstseen.scopes where handler = 'again')`)
		require.NoError(t, err)
	}
	ask := []string{"replay", s.topic, "--from", "earliest"}
	for shard, done := range s.runJSON(ask...) {
		require.EqualValues(t, s.sent[shard], done["new"], shard)
		require.EqualValues(t, s.sent[shard], done["duplicates"], shard)
		require.Equal(t, s.sent[shard], s.booked(shard, "again"))
		require.Equal(t, s.sent[shard], s.booked(shard, "book"))
	}
	stdout, _ := s.run(exitOK, s.config(theMap), ask...)
	require.Regexp(t, `(?s)shard a:\nreplay .* was finished before.*shard b:\nreplay .* was finished before`, stdout)
}

// requireOtherMapsRefused tries configs that are wrong: none has a partition begin elsewhere.
func (s *spread) requireOtherMapsRefused() {
	t := s.t
	for want, c := range map[string]struct {
		config string
		args   []string
	}{
		"are declared as a: 0-1; b: 2-, and the config has a: 0-2; b: 3-": {s.config(`{a: "0-2", b: "3-"}`),
			[]string{"run", "--shard", "a"}},
		"and not as a: 0-2; b: 3-": {s.config(`{a: "0-2", b: "3-"}`), []string{"run", "--migrate", "--shard", "a"}},
		"must stay at home in its shard b: " + s.topic + "/2": {s.config(`{a: "0-2", b: "3-"}`),
			[]string{"migrate", "up"}},
		"it is shard b of " + s.group + ", and the config takes it for shard a": {s.configOf(fmt.Sprintf(
			"{shards: %s, shard_dsns: {a: %q, b: %q}}", theMap, s.dsns["b"], s.dsns["a"])), []string{"run", "--shard", "a"}},
		"and the config has no postgres.shards": {s.configOf(fmt.Sprintf("{dsn: %q}", s.dsns["a"])), []string{"run"}},
	} {
		p := start(t, c.config, c.args...)
		require.Equal(t, exitFailure, p.exit(), want)
		require.Contains(t, p.log.String(), want)
	}
	for _, name := range []string{"a", "b"} {
		s.run(exitOK, s.config(theMap), "doctor", "--only", "shards.home", "--shard", name)
	}
}
