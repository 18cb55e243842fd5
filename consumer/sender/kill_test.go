package sender_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/sender"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// childEnv makes the test binary a process of the whole way, to be killed: it has its part, the broker, the database,
// the topic of commands and that of events.
const childEnv = "FIRSTSEEN_TEST_WAY"

// The parts: a first consumer, whose handler adds events to the outbox; relays; a second consumer, for whose effects
// all is done.
const (
	firstPart  = "first"
	relayPart  = "relay"
	secondPart = "second"
)

func runChild(spec string) int {
	ctx := context.Background()
	words := strings.Split(spec, " ")
	pool, err := childPool(ctx, words[2])
	if err == nil {
		err = runPart(ctx, words[0], words[1], pool, words[3], words[4])
	}
	fmt.Fprintln(os.Stderr, "child:", err)
	return 1
}

func childPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 12
	dedup.PreparePool(config, 10*time.Second)
	return pgxpool.NewWithConfig(ctx, config)
}

func runPart(ctx context.Context, part, addr string, pool *pgxpool.Pool, commands, events string) error {
	switch part {
	case firstPart:
		return consume(ctx, part, addr, pool, commands, outbox.Handler(new(outbox.Writer),
			func(_ context.Context, _ pgx.Tx, m dedup.Message) ([]outbox.Message, error) {
				event := outbox.Message{Topic: events, Key: m.Key, Value: m.Value, IdempotencyKey: m.ID.String()}
				return []outbox.Message{event, event}, nil // the second is a twin
			}))
	case secondPart:
		return consume(ctx, part, addr, pool, events, handlers.HandlerFunc(
			func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
				_, err := tx.Exec(ctx, `insert into effects (key, value) values ($1, $2::text::int)`, string(m.Key),
					string(m.Value))
				return err
			}))
	}
	kafka, err := sender.New(consumer.Connection{Brokers: []string{addr}})
	if err != nil {
		return err
	}
	relay, err := outbox.New(ctx, outbox.Config{Pool: pool, Batch: 100, IdlePoll: 50 * time.Millisecond,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Destinations: []outbox.Destination{{Name: "kafka", Topics: []string{events}, Sender: kafka}}})
	if err == nil {
		relay.Run(ctx)
	}
	return err
}

func consume(ctx context.Context, group, addr string, pool *pgxpool.Pool, topic string, h handlers.Handler) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: group, EvictAfter: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	var registry handlers.Registry
	if err := registry.Register("effect", handlers.Each(h), topic); err != nil {
		return err
	}
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry, Logger: log})
	if err != nil {
		return err
	}
	c, err := consumer.New(consumer.Config{Connection: consumer.Connection{Brokers: []string{addr},
		RequestTimeout: 2 * time.Second}, Group: group + " of " + topic, Topics: []consumer.Topic{{Name: topic}}, Logger: log,
		MaxBatch: 50, SessionTimeout: 15 * time.Second, RebalanceTimeout: 15 * time.Second,
		HeartbeatInterval: 200 * time.Millisecond, CommitInterval: 100 * time.Millisecond,
		JoinBackoff: 200 * time.Millisecond}, processor)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// way is the whole way: what is produced as commands takes effect in a table at its end.
type way struct {
	t                *testing.T
	server           *pgserver.Server
	db               *deduptest.DB
	addr             string
	commands, events string
	logs             string
	processes        []*child.Process
	parts            []string
	produced         int
}

const wayKeys = 20

func newWay(t *testing.T) *way {
	w := &way{t: t, addr: consumertest.Kafka(t), server: deduptest.StartServer(t, pgserver.Config{}),
		commands: consumertest.Name(t), events: consumertest.Name(t), logs: t.TempDir()}
	w.db = deduptest.Migrated(t, w.server.DSN("postgres"))
	_, err := w.db.Pool.Exec(t.Context(),
		`create table effects (n bigint generated always as identity, key text, value int)`)
	require.NoError(t, err)
	for _, topic := range []string{w.commands, w.events} {
		consumertest.CreateTopic(t, w.addr, topic, 4)
	}
	for _, part := range []string{firstPart, relayPart, relayPart, secondPart} {
		w.parts = append(w.parts, part)
		w.processes = append(w.processes, w.start(part))
	}
	t.Cleanup(func() {
		for _, p := range w.processes {
			p.Stop(syscall.SIGKILL, time.Minute)
		}
	})
	return w
}

func (w *way) start(part string) *child.Process {
	w.t.Helper()
	p, err := child.Start(child.Spec{Path: os.Args[0], LogFile: filepath.Join(w.logs, part),
		Env: []string{childEnv + "=" + strings.Join([]string{part, w.addr, w.db.DSN, w.commands, w.events}, " ")}})
	require.NoError(w.t, err)
	return p
}

// alive starts processes again that have ended by themselves, as where Postgres was away when they began.
func (w *way) alive() {
	for i, p := range w.processes {
		select {
		case <-p.Done():
			w.processes[i] = w.start(w.parts[i])
		default:
		}
	}
}

func (w *way) produce(n int) {
	w.t.Helper()
	var rs []*kgo.Record
	for range n {
		rs = append(rs, consumertest.Record(w.commands, "k"+strconv.Itoa(w.produced%wayKeys), strconv.Itoa(w.produced), ""))
		rs[len(rs)-1].Headers = []kgo.RecordHeader{{Key: "message-id", Value: fmt.Appendf(nil, "command %d", w.produced)}}
		w.produced++
	}
	consumertest.Produce(w.t, w.addr, rs...)
}

// count is -1 where Postgres does not answer.
func (w *way) count(sql string) (n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := w.db.Pool.QueryRow(ctx, sql).Scan(&n); err != nil {
		return -1
	}
	return n
}

func (w *way) effects() int { return w.count(`select count(*) from effects`) }

// effective waits until there are so many effects, for as long as more come.
func (w *way) effective(n int) {
	w.t.Helper()
	deduptest.UntilDone(w.t, 3*time.Minute, "too few take effect", func() (state string, done bool) {
		w.alive()
		now := w.effects()
		return fmt.Sprintf("%d of %d", now, n), now >= n
	})
}

// Handler, outbox, Kafka, another firstseen, table: each process is killed in its turn, and Postgres with them.
func TestWholeWayOfKilledProcessesAndCrashesOfPostgresTakesEffectOnceAndInOrder(t *testing.T) {
	w := newWay(t)
	w.produce(200)
	for kill := range deduptest.Kills(t, 5) {
		before := max(0, w.effects())
		w.produce(200)
		w.effective(before + 50)
		if victim := kill % 5; victim < len(w.processes) {
			w.processes[victim].Stop(syscall.SIGKILL, time.Minute)
		} else {
			require.NoError(t, w.server.Restart(t.Context(), pgserver.Immediate))
		}
	}
	w.effective(w.produced)
	require.Equal(t, w.produced, w.count(`select count(distinct value) from effects`))
	require.Equal(t, w.produced, w.effects(), "each once")
	require.Zero(t, w.count(`select count(*) from (
		select value < lag(value) over (partition by key order by n) as late from effects) e where late`))
	deduptest.UntilDone(t, time.Minute, "messages are left", func() (state string, done bool) {
		left := w.count(`select (select count(*) from firstseen.outbox) + (select count(*) from firstseen.parked)`)
		return strconv.Itoa(left), left == 0
	})
	require.Zero(t, w.count(`select count(*) from firstseen.dead_letters`))
	require.Equal(t, w.produced, w.count(`select count(*) from firstseen.outbox_keys`))
	t.Logf("%d commands, %d records of events", w.produced, len(read(t, w.addr, w.events)))
}
