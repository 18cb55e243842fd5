package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// soakFor is how long the soak goes on: FIRSTSEEN_TEST_SOAK, or a taste of it.
func soakFor(t *testing.T) time.Duration {
	text := os.Getenv("FIRSTSEEN_TEST_SOAK")
	if text == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, "FIRSTSEEN_TEST_SOAK")
	return d
}

// soak is a topic with two handlers, two members that are killed now and then, and all that an operator may do, at
// once. book fails now and then, and on poison until it is healed; echo is what is run again by intention.
type soak struct {
	t       *testing.T
	db      *deduptest.DB
	addr    string
	topic   string
	config  string // path of the file
	ctx     context.Context
	kafka   *kgo.Client
	members [2]member

	mu     sync.Mutex
	counts map[string]int // what was done, by command, and how it ended
}

// member is one `firstseen run` after the other.
type member struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	dead   map[string]bool // client IDs of those that were killed
	listen string
	log    deduptest.Log
}

const soakHandlers = `
create schema billing;
create table billing.booked (id uuid);
create table billing.echoed (id uuid);
create table billing.healed (at timestamptz);
create function billing.book(m firstseen.message) returns void language plpgsql as $$
begin
	if m.payload = 'poison' and not exists (select from billing.healed) then raise 'poison'; end if;
	if random() < 0.002 then raise 'now and then'; end if;
	insert into billing.booked values (m.id);
end $$;
create function billing.echo(batch firstseen.message[]) returns void language sql as $$
	insert into billing.echoed select m.id from unnest(batch) m $$`

func newSoak(ctx context.Context, t *testing.T) *soak {
	s := &soak{t: t, ctx: ctx, db: deduptest.New(t), addr: consumertest.StartKafka(t).Addr,
		topic: consumertest.Name(t), counts: map[string]int{}}
	consumertest.CreateTopic(t, s.addr, s.topic, 4)
	_, err := s.db.Pool.Exec(t.Context(), soakHandlers)
	require.NoError(t, err)
	s.kafka, err = kgo.NewClient(kgo.SeedBrokers(s.addr))
	require.NoError(t, err)
	t.Cleanup(s.kafka.Close)
	s.config = filepath.Join(t.TempDir(), "firstseen.yaml")
	s.configure("info")
	for i := range s.members {
		s.members[i].listen = freeAddress(t)
	}
	return s
}

func (s *soak) configure(level string) {
	text := fmt.Sprintf(`
postgres: {dsn: %q}
kafka: {brokers: [%q]}
group: %s
batch: {messages: 200}
timeouts: {session: 20s, rebalance: 30s, heartbeat: 500ms, request: 3s}
topics:
  - name: %s
    handlers:
      - {name: book, function: billing.book, retry: {base: 50ms, cap: 1s, max_attempts: 4}}
      - {name: echo, function: billing.echo}
retention: {ids: 100d, inbox: 10d, interval: 2s}
log: {level: %s}
`, s.db.DSN, s.addr, s.topic, s.topic, level)
	assert.NoError(s.t, os.WriteFile(s.config+".new", []byte(text), 0o600))
	assert.NoError(s.t, os.Rename(s.config+".new", s.config)) // so that nobody reads half of it
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// keep has the member running until ctx ends, and then end in good order.
func (s *soak) keep(m *member) {
	for serial := 0; s.ctx.Err() == nil; serial++ {
		name := fmt.Sprintf("%s-%d", m.listen, serial)
		cmd := exec.Command(built(s.t), "run", "--config", s.config)
		cmd.Env = append(os.Environ(), "FIRSTSEEN_HTTP_LISTEN="+m.listen, "FIRSTSEEN_KAFKA_CLIENT_ID="+name)
		cmd.Stdout, cmd.Stderr = &m.log, &m.log
		if !assert.NoError(s.t, cmd.Start()) {
			return
		}
		m.set(cmd)
		stop := context.AfterFunc(s.ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
		err := cmd.Wait()
		stop()
		if !bySignal(err) && s.ctx.Err() == nil {
			assert.Fail(s.t, "a member ended by itself", "%v\n%s", err, tail(m.log.String()))
			return
		}
		m.bury(name)
	}
}

func (m *member) bury(clientID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead == nil {
		m.dead = map[string]bool{}
	}
	m.dead[clientID] = true
}

// expel takes members that were killed out of the group, which would wait for them until their session is over.
func (s *soak) expel() {
	groups, err := kadm.NewClient(s.kafka).DescribeGroups(s.ctx, s.topic)
	if err != nil {
		return
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = s.topic
	for _, member := range groups[s.topic].Members {
		if s.members[0].isDead(member.ClientID) || s.members[1].isDead(member.ClientID) {
			gone := kmsg.NewLeaveGroupRequestMember()
			gone.MemberID = member.MemberID
			leave.Members = append(leave.Members, gone)
		}
	}
	if len(leave.Members) > 0 {
		_, _ = leave.RequestWith(s.ctx, s.kafka) // it is tried again
	}
}

func (m *member) isDead(clientID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead[clientID]
}

func bySignal(err error) bool { return err != nil && strings.Contains(err.Error(), "signal: killed") }

func tail(text string) string { return text[max(0, len(text)-4000):] }

func (m *member) set(cmd *exec.Cmd) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cmd = cmd
}

func (m *member) signal(sig syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd != nil {
		_ = m.cmd.Process.Signal(sig)
	}
}

// operate runs a command line as an operator would, and holds its end against what may be.
func (s *soak) operate(may []int, args ...string) (stdout string) {
	stdout, stderr, code := command(s.t, append(args, "--config", s.config)...)
	name := strings.Join(args[:min(2, len(args))], " ")
	s.mu.Lock()
	s.counts[fmt.Sprintf("%s: %d", name, code)]++
	s.mu.Unlock()
	assert.Contains(s.t, may, code, "%s\n%s\n%s", strings.Join(args, " "), stdout, stderr)
	return stdout
}

// get asks a member, which may just be dead, and says whether it answered.
func (s *soak) get(m *member, path string, may ...int) (answered bool) {
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.listen+path, nil)
	if !assert.NoError(s.t, err) {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	s.mu.Lock()
	s.counts[fmt.Sprintf("GET %s: %d", path, answer.StatusCode)]++
	s.mu.Unlock()
	return assert.Contains(s.t, may, answer.StatusCode, "%s: %s", path, tail(string(body)))
}

// rounds are what goes on beside the traffic, each by itself, over and over.
func (s *soak) rounds() []func(i int) {
	ok, maybe := []int{exitOK}, []int{exitOK, exitFailure} // where there may be nothing to do it to
	return []func(i int){
		func(i int) { // members die
			s.rest(4 * time.Second)
			s.members[i%2].signal(syscall.SIGKILL)
		},
		func(int) { // and are given up by the group
			s.expel()
			s.rest(200 * time.Millisecond)
		},
		func(i int) { // the config is loaded anew
			s.configure([]string{"info", "warn"}[i%2])
			if m := &s.members[i%2]; s.get(m, "/livez", http.StatusOK) { // before that a SIGHUP is its end
				m.signal(syscall.SIGHUP)
			}
			s.rest(time.Second)
		},
		func(i int) { // somebody pauses this and that
			what := [][]string{{"topic", s.topic}, {"handler", "book"},
				{"partition", s.topic + "/" + strconv.Itoa(i%4)}}[i%3]
			s.operate(ok, append([]string{"pause", "--why", "soak"}, what...)...)
			s.operate(ok, "pause", "list")
			s.rest(time.Second)
			s.operate(ok, append([]string{"resume", "--why", "soak"}, what...)...)
			s.rest(time.Second)
		},
		func(i int) { // somebody looks
			m := &s.members[i%2]
			s.get(m, "/livez", http.StatusOK)
			s.get(m, "/readyz", http.StatusOK, http.StatusServiceUnavailable)
			s.get(m, "/healthz", http.StatusOK, http.StatusServiceUnavailable)
			s.get(m, "/metrics", http.StatusOK)
			for _, path := range []string{"status", "partitions", "pauses", "backlog", "messages?status=failed",
				"messages?status=processed", "dead-letters", "conflicts", "size", "audit"} {
				s.get(m, "/api/v1/"+path, http.StatusOK, http.StatusServiceUnavailable, http.StatusTooManyRequests)
			}
			s.rest(time.Second)
		},
		func(int) { // and looks from the shell
			for _, line := range []string{"status", "offsets show", "dead list", "conflicts list", "inbox list",
				"size", "retention plan", "config print", "explain " + s.topic + "/0/5"} {
				s.operate(ok, strings.Fields(line)...)
			}
			s.operate([]int{0, 4, 5}, "doctor")
			s.rest(time.Second)
		},
		func(int) { // the topic is replayed, which changes nothing
			s.operate(ok, "replay", s.topic, "--from", "earliest", "--dry-run")
			s.operate(ok, "replay", s.topic, "--from", "earliest", "--fresh")
			// refused while the group has members
			s.operate(maybe, "offsets", "reset", s.topic, "--to", "earliest", "--why", "soak")
			s.rest(time.Second)
		},
		func(i int) { // something is run again by intention
			s.operate(ok, "rerun", "--handler", "echo", "--id", strconv.Itoa(i), "--why", "soak", "--yes")
			s.operate(maybe, "dead", "redrive", "--handler", "book", "--why", "soak")
			s.operate(maybe, "retention", "run", "--why", "soak") // no ID is forgotten while the topic is replayed
			s.rest(time.Second)
		},
	}
}

func (s *soak) rest(d time.Duration) {
	select {
	case <-s.ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}

// perBurst is how many different messages are sent at once.
const perBurst = 100

// messages are those of a burst: a third of them twice, one in 500 poison.
func (s *soak) messages(burst int) (records []*kgo.Record) {
	for i := burst * perBurst; i < (burst+1)*perBurst; i++ {
		value := "ok"
		if i%500 == 250 {
			value = "poison"
		}
		r := kgo.Record{Topic: s.topic, Key: []byte(strconv.Itoa(i % 97)), Value: []byte(value),
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(strconv.Itoa(i))}}}
		records = append(records, &r)
		if i%3 == 0 {
			again := r
			records = append(records, &again)
		}
	}
	return records
}

// produce sends bursts until ctx ends, from the second on, and gives how many different messages there are then.
func (s *soak) produce(ctx context.Context) (unique int) {
	burst := 1
	for ; ctx.Err() == nil; burst++ {
		consumertest.Produce(s.t, s.addr, s.messages(burst)...)
		s.rest(100 * time.Millisecond)
	}
	return burst * perBurst
}

func (s *soak) count(sql string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.Pool.QueryRow(s.t.Context(), sql).Scan(&n))
	return n
}

// TestEverythingAtOnceWhileMembersAreKilled does for a while all that an operator can do, with traffic and deaths
// beside it, and then counts: each effect once, and once more for each time that it was asked for.
func TestEverythingAtOnceWhileMembersAreKilled(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	s := newSoak(ctx, t)
	var members, rounds sync.WaitGroup
	for i := range s.members {
		members.Go(func() { s.keep(&s.members[i]) })
	}
	defer members.Wait()
	defer end()
	consumertest.Produce(t, s.addr, s.messages(0)...)
	eventually(t, func() bool { return s.count(`select count(distinct id) from billing.echoed`) == perBurst })
	busy, stop := context.WithTimeout(ctx, soakFor(t))
	defer stop()
	for _, round := range s.rounds() {
		rounds.Go(func() {
			for i := 0; busy.Err() == nil && !t.Failed(); i++ {
				round(i)
			}
		})
	}
	unique := s.produce(busy)
	rounds.Wait()
	s.settle(unique)
	t.Log("unique messages:", unique, s.counts)
}

// settle lets everything come to its end, and holds it against what was sent.
func (s *soak) settle(unique int) {
	_, err := s.db.Pool.Exec(s.t.Context(), `insert into billing.healed values (now())`)
	require.NoError(s.t, err)
	deduptest.UntilDone(s.t, 2*testLimit, "messages do not settle", func() (string, bool) {
		s.operate([]int{exitOK, exitFailure}, "dead", "redrive", "--handler", "book", "--why", "healed")
		booked := s.count(`select count(distinct id) from billing.booked`)
		echoed := s.count(`select count(distinct id) from billing.echoed`)
		parked := s.count(`select count(*) from firstseen.parked`)
		return fmt.Sprintf("%d booked and %d echoed of %d, %d parked", booked, echoed, unique, parked),
			booked == unique && echoed == unique && parked == 0
	})
	require.Equal(s.t, unique, s.count(`select count(*) from billing.booked`))
	require.Equal(s.t, unique+s.count(`select count(*) from firstseen.audit where action = 'rerun'`),
		s.count(`select count(*) from billing.echoed`))
	require.Zero(s.t, s.count(`select count(*) from firstseen.dead_letters`))
}
