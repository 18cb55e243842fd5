package consumer_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

// stage is a database, a broker, a topic and a group for one test.
type stage struct {
	t              testing.TB
	addr           string
	topic          string
	partitions     int
	group          string
	commitEvery    time.Duration // of a killer's process; 0: as quick says
	killerHandlers int           // of a killer's process; 0: one
	dsn            string
	silence        time.Duration      // of Postgres; 0: the default
	idleAfter      time.Duration      // of lanes' transactions; 0: the default
	pool           *pgxpool.Pool      // the test's own, as superuser
	latest         *consumer.Consumer // the last one that was made
}

// effectsTable is what the test handler writes to. It has no unique key: a second effect must show. made_by is
// the connection's application_name: who made the effect.
const effectsTable = `create table effects (
	seq bigint generated always as identity, handler text, message_id uuid, key text, "offset" bigint, "partition" int,
	made_by text default current_setting('application_name'))`

func newStage(t testing.TB, addr string, partitions int) *stage {
	t.Helper()
	db := deduptest.New(t)
	return newStageOn(t, addr, partitions, db)
}

func newStageOn(t testing.TB, addr string, partitions int, db *deduptest.DB) *stage {
	t.Helper()
	s := &stage{t: t, addr: addr, partitions: partitions, topic: consumertest.Name(t), group: consumertest.Name(t),
		dsn: db.DSN, pool: db.Pool}
	consumertest.CreateTopic(t, addr, s.topic, partitions)
	s.exec(effectsTable)
	return s
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err)
}

func (s *stage) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// effect is a handler that leaves one row in effects for each message.
func effect(handler string) handlers.BatchHandler {
	return handlers.Queue(handlers.QueuedFunc(func(b *pgx.Batch, m dedup.Message) error {
		b.Queue(`insert into effects (handler, message_id, key, "offset", "partition") values ($1, $2, $3, $4, $5)`,
			handler, m.ID, string(m.Key), m.Offset, m.Partition)
		return nil
	}))
}

// consumer makes a consumer with short times. change, if given, sets anything else; a handler named effect is
// registered unless it registers one.
func (s *stage) consumer(change func(*consumer.Config, *handlers.Config)) *consumer.Consumer {
	s.t.Helper()
	ctx := context.Background()
	pool := deduptest.OpenPool(s.t, s.dsn, func(c *pgxpool.Config) { dedup.PreparePool(c, s.silence) })
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: s.group, EvictAfter: 500 * time.Millisecond,
		AnswerTimeout: s.silence, IdleAfter: s.idleAfter})
	require.NoError(s.t, err)
	hc := handlers.Config{Store: store, Handlers: &handlers.Registry{}, Logger: logger(),
		PausePoll: 50 * time.Millisecond}
	cc := quick(s.addr, s.group)
	if change != nil {
		change(&cc, &hc)
	}
	if len(hc.Handlers.Topics())+len(hc.Handlers.Patterns()) == 0 {
		require.NoError(s.t, hc.Handlers.Register("effect", effect("effect"), s.topic))
	}
	processor, err := handlers.NewProcessor(hc)
	require.NoError(s.t, err)
	s.latest, err = consumer.New(cc, processor)
	require.NoError(s.t, err)
	return s.latest
}

// quick is a config with short times.
func quick(addr, group string) consumer.Config {
	return consumer.Config{
		Connection: consumer.Connection{Brokers: []string{addr}, RequestTimeout: 2 * time.Second}, Group: group,
		Logger:         logger(),
		SessionTimeout: 15 * time.Second, RebalanceTimeout: 15 * time.Second,
		HeartbeatInterval: 200 * time.Millisecond,
		CommitInterval:    100 * time.Millisecond, MetadataInterval: time.Second,
		JoinBackoff: 200 * time.Millisecond, FetchWait: 100 * time.Millisecond,
	}
}

const testLog = "FIRSTSEEN_TEST_LOG"

// logger logs where testLog is set.
func logger() *slog.Logger {
	out := io.Discard
	if os.Getenv(testLog) != "" {
		out = os.Stderr
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// start runs a consumer until the returned function is called, which waits for its clean end.
func (s *stage) start(c *consumer.Consumer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(s.t, err)
		case <-time.After(40 * time.Second):
			s.t.Error("the consumer did not end within 40 s")
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// records makes n records with new IDs, spread over keys.
func (s *stage) records(n, keys int) []*kgo.Record { return consumertest.Records(s.topic, n, keys) }

// record makes one record; an empty id leaves the header out.
func (s *stage) record(key, value, id string) *kgo.Record {
	return consumertest.Record(s.topic, key, value, id)
}

// caughtUp waits until the group's offsets are at the topic's end.
func (s *stage) caughtUp() {
	s.t.Helper()
	deduptest.UntilDone(s.t, 90*time.Second, "the group's offsets did not reach the topic's end", s.offsets)
}

func (s *stage) isCaughtUp() bool {
	_, done := s.offsets()
	return done
}

// offsets are those that the group has committed; done: they are at the topic's end.
func (s *stage) offsets() (state string, done bool) {
	committed, done := make([]int64, s.partitions), true
	for p := range committed {
		end := consumertest.EndOffset(s.t, s.addr, s.topic, int32(p))
		committed[p] = consumertest.CommittedOffset(s.t, s.addr, s.group, s.topic, int32(p))
		done = done && (end == 0 || committed[p] == end)
	}
	return fmt.Sprint(committed), done
}

// requireOnce asserts that each of n messages took effect exactly once, and that each key's did so in the order of
// their offsets.
func (s *stage) requireOnce(n int) {
	s.t.Helper()
	deduptest.UntilDone(s.t, waitLimit, "what was set apart does not drain", func() (string, bool) {
		parked := s.parked()
		return fmt.Sprint(parked), parked == 0 || s.count(`select count(*) from firstseen.inbox`) >= n
	})
	require.Equal(s.t, n, s.count(`select count(distinct message_id) from effects`), "messages that took effect")
	require.Equal(s.t, n, s.count(`select count(*) from effects`), "effects")
	require.Equal(s.t, n, s.count(`select count(*) from firstseen.inbox`), "inbox rows")
	require.Zero(s.t, s.count(`select count(*) from (
		select "offset" < lag("offset") over (partition by handler, "partition", key order by seq) as back from effects) e where back`),
		"effects out of order within their key")
}
