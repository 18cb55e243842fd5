package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers"
)

// killerEnv has TestKillerChild be a consumer: it holds broker, group, topic, DSN, the greatest batch, the time
// between commits, and how many handlers there are: all but the first do nothing.
const killerEnv = "FIRSTSEEN_TEST_KILLER"

const killerAttempts = 3

// killer is a handler that counts its tries where a SIGKILL does not undo it, and does what the value says: kill:k
// kills the process on the first k tries, later:k fails once and then kills it k times, sleep:d sleeps.
type killer struct{ pool *pgxpool.Pool }

func (k killer) Handle(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	what, argument, _ := strings.Cut(string(m.Value), ":")
	if what == "sleep" {
		return obey(ctx, tx, m)
	}
	var try int
	err := k.pool.QueryRow(ctx,
		`insert into tries values ($1, 1) on conflict (message_id) do update set n = tries.n + 1 returning n`,
		m.ID).Scan(&try)
	if err != nil {
		return handlers.Unavailable(err)
	}
	times, _ := strconv.Atoi(argument)
	switch {
	case what == "later" && try == 1:
		return errors.New("told to fail")
	case what == "later" && try <= times+1, what == "kill" && try <= times:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return obey(ctx, tx, m)
}

// TestKillerChild is no test but the process that the tests below start.
func TestKillerChild(t *testing.T) {
	spec := strings.Split(os.Getenv(killerEnv), " ")
	if len(spec) != 7 {
		t.Skip("not started as a child")
	}
	addr, group, topic, dsn := spec[0], spec[1], spec[2], spec[3]
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, dsn)
	require.NoError(t, err)
	defer pool.Close()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: group, EvictAfter: 500 * time.Millisecond})
	require.NoError(t, err)
	registry := &handlers.Registry{}
	require.NoError(t, registry.Add(
		handlers.Registration{Name: "effect", Topics: []string{topic}, Handler: handlers.Each(killer{pool}),
			Retry: handlers.Retry{Base: time.Millisecond, Cap: time.Millisecond, MaxAttempts: killerAttempts}}))
	if spec[6] == "2" {
		nothing := handlers.HandlerFunc(func(context.Context, pgx.Tx, dedup.Message) error { return nil })
		require.NoError(t, registry.Register("other", handlers.Each(nothing), topic))
	}
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry,
		Logger: logger(), LanePoll: 50 * time.Millisecond})
	require.NoError(t, err)
	cfg := quick(addr, group)
	cfg.ClientID = "killer"
	cfg.MaxBatch, _ = strconv.Atoi(spec[4])
	if every, err := time.ParseDuration(spec[5]); err == nil && every > 0 {
		cfg.CommitInterval = every
	}
	c, err := consumer.New(cfg, processor)
	require.NoError(t, err)
	require.NoError(t, c.Run(ctx))
}

func (s *stage) startKiller(maxBatch int) *childProcess {
	s.t.Helper()
	log := filepath.Join(s.t.TempDir(), "child.log")
	p, err := child.Start(child.Spec{Path: os.Args[0], Args: []string{"-test.run=^TestKillerChild$"}, LogFile: log,
		Env: []string{testLog + "=1", killerEnv + "=" + strings.Join([]string{s.addr, s.group, s.topic, s.dsn,
			strconv.Itoa(maxBatch), s.commitEvery.String(), strconv.Itoa(max(1, s.killerHandlers))}, " ")}})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { p.Stop(syscall.SIGKILL, time.Second) })
	return &childProcess{Process: p, t: s.t, log: log}
}

// inTransaction counts the transactions that are open while their handlers are at work.
func (s *stage) inTransaction() int {
	s.t.Helper()
	return s.count(`select count(*) from pg_stat_activity a
		where datname = current_database() and state = 'idle in transaction' and exists (
			select from pg_locks l where l.pid = a.pid and l.relation = 'firstseen.message_dedup'::regclass)`)
}

// atWork waits until a handler is at work.
func (s *stage) atWork() {
	s.t.Helper()
	s.eventually(func() bool { return s.inTransaction() > 0 }, "no handler is at work")
}

// supervise restarts the consumer whenever it dies, until everything is settled, and returns how often it died.
func (s *stage) supervise(maxBatch, messages int) (deaths int) {
	s.t.Helper()
	group := s.groupAdmin()
	end := time.Now().Add(90 * time.Second)
	for p := s.startKiller(maxBatch); ; {
		require.True(s.t, time.Now().Before(end), "not settled in time: %s", p.logs())
		select {
		case <-p.Done():
			p.awaitKilled()
			deaths++
			group.removeAllBut()
			p = s.startKiller(maxBatch)
		case <-time.After(50 * time.Millisecond):
		}
		settled := s.count(`select (select count(*) from firstseen.inbox) + (select count(*) from firstseen.dead_letters)`)
		if settled == messages && s.isCaughtUp() {
			p.signal(syscall.SIGTERM)
			<-p.Done()
			require.NoError(s.t, p.Err(), p.logs())
			return deaths
		}
	}
}

func newKillerStage(t *testing.T) *stage {
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.exec(`create table tries (message_id uuid primary key, n int not null)`)
	return s
}

func (s *stage) produceValues(values ...string) {
	s.t.Helper()
	rs := make([]*kgo.Record, len(values))
	for i, value := range values {
		rs[i] = s.record(fmt.Sprint("key-", i), value, uuid.NewString())
	}
	consumertest.Produce(s.t, s.addr, rs...)
}

func TestAMessageThatKillsTheProcessRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"first":  {"kill:99", "ok", "ok", "ok", "ok"},
		"middle": {"ok", "ok", "kill:99", "ok", "ok"},
		"last":   {"ok", "ok", "ok", "ok", "kill:99"},
	} {
		for _, maxBatch := range []int{0, 1} {
			t.Run(fmt.Sprint(name, "/", maxBatch), func(t *testing.T) {
				t.Parallel()
				s := newKillerStage(t)
				s.produceValues(values...)
				deaths := s.supervise(maxBatch, 5)
				t.Logf("%d deaths", deaths)
				require.GreaterOrEqual(t, deaths, killerAttempts)
				require.LessOrEqual(t, deaths, killerAttempts+2,
					"deaths that tell on nobody, but for a batch, are no attempts")
				s.requireOnceBut(4)
				require.Equal(t, 1,
					s.count(`select count(*) from firstseen.dead_letters where reason = 'killed' and attempts = $1`,
						killerAttempts))
			})
		}
	}
}

// Offsets are committed to Kafka now and then: each process begins with messages that the one before has handled.
func TestAMessageThatKillsTheProcessBeforeOffsetsAreCommittedRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	for _, maxBatch := range []int{0, 1} {
		s := newKillerStage(t)
		s.commitEvery = 1500 * time.Millisecond
		s.produceValues("ok", "ok", "kill:99", "ok")
		s.moveGroup(0, 0)
		deaths := s.supervise(maxBatch, 4)
		t.Logf("%d deaths", deaths)
		require.LessOrEqual(t, deaths, killerAttempts+2)
		s.requireOnceBut(3)
	}
}

// requireOnceBut is requireOnce for what is not in the dead letters.
func (s *stage) requireOnceBut(n int) {
	s.t.Helper()
	s.requireOnce(n)
	require.Zero(s.t, s.count(`select count(*) from firstseen.parked`))
}

func TestAMessageThatKillsTheProcessBehindOthersOfItsKeyRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	s := newKillerStage(t)
	rs := make([]*kgo.Record, 10)
	for i := range rs {
		rs[i] = s.record("key", "ok", uuid.NewString())
	}
	rs[7].Value = []byte("kill:99")
	consumertest.Produce(t, s.addr, rs...)
	deaths := s.supervise(0, 10)
	t.Logf("%d deaths", deaths)
	require.LessOrEqual(t, deaths, killerAttempts+2)
	s.requireOnceBut(9)
	require.Equal(t, 1, s.count(
		`select count(*) from firstseen.dead_letters where reason = 'killed' and attempts = $1`, killerAttempts))
}

func TestAMessageThatKillsTheProcessOnceOrTwiceIsHandled(t *testing.T) {
	t.Parallel()
	s := newKillerStage(t)
	s.produceValues("ok", "kill:2", "ok")
	require.Equal(t, 2, s.supervise(0, 3))
	s.requireOnceBut(3)
	require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
}

func TestAMessageThatKillsTheProcessFromItsLaneRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	s := newKillerStage(t)
	s.produceValues("ok", "later:99", "ok")
	deaths := s.supervise(0, 3)
	t.Logf("%d deaths", deaths)
	require.LessOrEqual(t, deaths, killerAttempts)
	s.requireOnceBut(2)
	require.Equal(t, 1, s.count(
		`select count(*) from firstseen.dead_letters where reason = 'killed' and attempts = $1`, killerAttempts))
}

func TestAShutdownIsNoAttempt(t *testing.T) {
	t.Parallel()
	s := newKillerStage(t)
	values := make([]string, 200)
	for i := range values {
		values[i] = "sleep:50ms"
	}
	s.produceValues(values...)
	p := s.startKiller(50)
	for range 3 {
		s.atWork()
		p.signal(syscall.SIGTERM)
		<-p.Done()
		require.NoError(t, p.Err(), p.logs())
		p = s.startKiller(50)
	}
	s.caughtUp()
	p.signal(syscall.SIGTERM)
	<-p.Done()
	s.requireOnceBut(200)
	require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
	require.Zero(t, s.count(`select count(*) from firstseen.inbox where attempts > 1`))
}

func TestAnOutageIsNoAttempt(t *testing.T) {
	t.Parallel()
	s, server := newStageOnOwnServer(t, consumertest.NewFake(t).Addr, 1)
	values := make([]string, 200)
	for i := range values {
		values[i] = "sleep:20ms"
	}
	s.produceValues(values...)
	stop := s.start(s.consumer(func(_ *consumer.Config, hc *handlers.Config) {
		hc.Logger = logger()
		require.NoError(t, hc.Handlers.Add(handlers.Registration{Name: "effect", Topics: []string{s.topic},
			Handler: handlers.Each(handlers.HandlerFunc(obey)), Retry: handlers.Retry{MaxAttempts: 1}}))
	}))
	s.atWork()
	require.NoError(t, server.Stop(pgserver.Immediate))
	time.Sleep(outage(t))
	require.NoError(t, server.Start(t.Context()))
	s.pool.Reset()
	s.caughtUp()
	stop()
	s.requireOnceBut(200)
	require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
}
