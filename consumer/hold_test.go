package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// noticed is a consumer whose whole log is kept.
func (s *stage) noticed(change func(*consumer.Config)) (book *consumertest.Log, stop func()) {
	book = &consumertest.Log{}
	return book, s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.Logger, hc.Logger = book.Logger(), book.Logger()
		if change != nil {
			change(cc)
		}
	}))
}

// complaints counts the lines that somebody has to read.
func complaints(l *consumertest.Log) int {
	return l.Times(slog.LevelWarn, "") + l.Times(slog.LevelError, "")
}

// lasts has an outage go on for some seconds, in which nothing else can be waited for.
func lasts() { time.Sleep(8 * time.Second) }

func TestAnOutageOfPostgresIsSaidWhenItBeginsAndWhenItIsOver(t *testing.T) {
	t.Parallel()
	s, server := newStageOnOwnServer(t, consumertest.NewFake(t).Addr, 8)
	s.fill(5)
	book, _ := s.noticed(nil)
	s.caughtUp()
	before := complaints(book)
	require.NoError(t, server.Stop(pgserver.Immediate))
	s.fill(5)
	for p := range int32(8) {
		s.heldBy(consumer.HeldPostgres, p)
	}
	lasts()
	require.True(t, book.Has(slog.LevelError, "waiting: Postgres does not answer", "hold", "postgres"))
	require.LessOrEqual(t, complaints(book)-before, 4, "the first, and those that came after it")
	require.NoError(t, server.Start(t.Context()))
	s.pool.Reset()
	s.caughtUp()
	s.eventually(func() bool { return len(s.latest.Status().Holds) == 0 }, "something is still held")
	s.logged(book, slog.LevelInfo, "goes on again", "hold", "postgres", "partition", s.topic)
	require.LessOrEqual(t, complaints(book)-before, 6)
}

func TestAnOutageOfKafkaIsSaidWhenItBeginsAndWhenItIsOver(t *testing.T) {
	t.Parallel()
	broker := consumertest.StartKafka(t)
	s := newStage(t, broker.Addr, 4)
	s.fill(5)
	book, stop := s.noticed(
		func(c *consumer.Config) { c.SessionTimeout, c.RequestTimeout = 9500*time.Millisecond, time.Second })
	s.caughtUp()
	before := complaints(book)
	broker.Kill()
	s.eventually(func() bool { return !s.latest.Status().KafkaSince.IsZero() && len(s.latest.Status().Holds) > 0 },
		"Kafka's end is not told")
	lasts()
	require.LessOrEqual(t, complaints(book)-before, 8)
	require.NoError(t, broker.Start())
	s.fill(5)
	s.caughtUp()
	s.eventually(func() bool { return len(s.latest.Status().Holds) == 0 }, "something is still held")
	s.logged(book, slog.LevelInfo, "goes on again", "hold", "kafka", "group", s.group)
	stop()
	require.True(t, book.Has(slog.LevelInfo, "ended: offsets are committed and the group is left"))
}

func TestTheLastLineSaysWhatKafkaWasTold(t *testing.T) {
	t.Parallel()
	t.Run("Kafka was never reached", func(t *testing.T) {
		s := newStage(t, consumertest.NewFake(t).Addr, 1)
		book, stop := s.noticed(func(c *consumer.Config) { c.Brokers = []string{"127.0.0.1:1"} })
		s.logged(book, slog.LevelError, "Kafka does not answer", "group", s.group)
		stop()
		require.True(t, book.Has(slog.LevelInfo, "ended; the group was never joined"))
		require.Zero(t, book.Times(slog.LevelInfo, "offsets are committed"))
	})
	t.Run("Kafka is gone", func(t *testing.T) {
		fake := consumertest.NewFake(t)
		s := newStage(t, fake.Addr, 2)
		s.fill(5)
		book, stop := s.noticed(func(c *consumer.Config) { c.CommitInterval = time.Hour })
		s.effects(10)
		fake.Cluster.Close()
		stop()
		require.True(t, book.Has(slog.LevelWarn, "Kafka was not told everything", "partitions_not_committed", "2",
			"group_not_left", "refused"))
		require.Zero(t, book.Times(slog.LevelInfo, "offsets are committed"))
	})
}

// permitted is a rule by which the stage's user may do something.
func permitted(kind kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
	return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: operation, Allow: true}
}

// topicsAre waits until these are the topics, each with what holds it.
func (s *stage) topicsAre(want map[string]string) {
	s.t.Helper()
	var found map[string]string
	require.Eventually(s.t, func() bool {
		found = map[string]string{}
		for _, topic := range s.latest.Status().Topics {
			found[topic.Name] = topic.Held
		}
		return maps.Equal(want, found)
	}, waitLimit, waitTick, "%v", &found)
}

func TestTopicsThatCantBeReadAreToldForAsLongAsItLastsAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	name := consumertest.Name(t)
	good, denied, unread, missing := name+"-good", name+"-denied", name+"-unread", name+"-missing"
	fake := consumertest.NewFake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"),
		kfake.SeedTopics(1, good, denied, unread), kfake.User("PLAIN", user, password,
			permitted(kmsg.ACLResourceTypeGroup, name, kmsg.ACLOperationRead),
			permitted(kmsg.ACLResourceTypeTopic, good, kmsg.ACLOperationRead),
			permitted(kmsg.ACLResourceTypeTopic, missing, kmsg.ACLOperationRead),
			permitted(kmsg.ACLResourceTypeTopic, unread, kmsg.ACLOperationDescribe)))
	root, err := kgo.NewClient(kgo.SeedBrokers(fake.Addr),
		kgo.SASL(plain.Auth{User: "root", Pass: "root"}.AsMechanism()))
	require.NoError(t, err)
	defer root.Close()
	admin := kadm.NewClient(root)
	produce := func(topics ...string) {
		t.Helper()
		for _, topic := range topics {
			require.NoError(t, root.ProduceSync(t.Context(), (&stage{topic: topic}).records(5, 5)...).FirstErr())
		}
	}
	produce(good, denied, unread)
	db := deduptest.New(t)
	s := &stage{t: t, addr: fake.Addr, group: name, topic: good, partitions: 1, dsn: db.DSN, pool: db.Pool}
	s.exec(effectsTable)
	book := &consumertest.Log{}
	s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.SASL, cc.MetadataInterval, cc.Logger = mechanisms(t)[0].consumer(password),
			200*time.Millisecond, book.Logger()
		require.NoError(t, hc.Handlers.Register("effect", effect("effect"), good, denied, unread, missing))
	}))
	s.topicsAre(map[string]string{good: "", denied: holds.Denied, unread: holds.Denied, missing: holds.Missing})
	s.effects(5)
	produce(good)
	s.effects(10)
	s.logged(book, slog.LevelError, "the topic does not exist", "topic", missing, "do", "create it")
	s.logged(book, slog.LevelError, "the brokers deny the topic", "topic", denied)
	s.logged(book, slog.LevelError, "the brokers deny the topic", "partition", unread+"/0")
	s.topicsAre(map[string]string{good: "", denied: holds.Denied, unread: holds.Denied, missing: holds.Missing})
	s.eventually(func() bool {
		return s.count(`select count(*) from firstseen.holds where holds @> '[{"code": "topic_denied"}]'`) == 1
	}, "not told to Postgres")
	s.statusOf(0, func(p consumer.PartitionStatus) bool { return p.Committed == 10 })

	_, err = admin.CreateACLs(t.Context(),
		kadm.NewACLs().Topics(denied, unread).Allow("User:"+user).AllowHosts("*").Operations(kadm.OpRead))
	require.NoError(t, err)
	_, err = admin.CreateTopic(t.Context(), 1, 1, nil, missing)
	require.NoError(t, err)
	produce(missing)
	s.topicsAre(map[string]string{good: "", denied: "", unread: "", missing: ""})
	s.effects(25)
	s.eventually(func() bool { return len(s.latest.Status().Holds) == 0 }, "something is still held")
	s.logged(book, slog.LevelInfo, "goes on again", "topic", denied)
	s.logged(book, slog.LevelInfo, "goes on again", "hold", holds.Missing)
	s.eventually(func() bool { return s.count(`select count(*) from firstseen.holds`) == 0 }, "told to Postgres still")
}

// A header that nobody sends: the whole topic dies, and somebody has to hear of it.
func TestATopicWithoutUsableIDsIsLoggedByBatchAndReasonWithWhatToSet(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	nameless := s.records(60, 5)
	for _, r := range nameless {
		r.Headers = nil
	}
	nameless[59].Headers = []kgo.RecordHeader{{Key: "id", Value: []byte("a")}, {Key: "id", Value: []byte("b")}}
	consumertest.Produce(t, s.addr, nameless...)
	book, stop := s.noticed(nil)
	s.caughtUp()
	stop()
	require.True(t, book.Has(slog.LevelWarn, "messages without a usable ID went to the dead letters", "topic", s.topic,
		"reason", "missing_id", "first", s.topic+"/0@0", "why", "looked for header:message-id, then header:id",
		"do", "set the topic's id"))
	require.True(t, book.Has(slog.LevelWarn, "messages without a usable ID went to the dead letters", "reason",
		"ambiguous_id", "messages", "1", "why", "ambiguous_id by header:id, of header:message-id, then header:id"))
	require.LessOrEqual(t, book.Times(slog.LevelWarn, "messages without"), 10, "by batch, not by message")
	require.Equal(t, 59, s.count(`select count(*) from firstseen.dead_letters where reason = 'missing_id' and error = 'looked for header:message-id, then header:id'`))
	require.Equal(t, 1, s.count(
		`select count(*) from firstseen.dead_letters where reason = 'ambiguous_id' and error like '%by header:id%'`))
}

func TestAReplayThatWaitsIsToldToo(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	var rs []*kgo.Record
	for i := range 60 {
		rs = append(rs, s.record(fmt.Sprint("key-", i), "fail:99", uuid.NewString()))
	}
	consumertest.Produce(t, s.addr, rs...)
	book := &consumertest.Log{}
	obeying := s.obeying(newObedient(), handlers.Retry{Base: time.Hour, Cap: time.Hour})
	r := s.replayer(func(rc *replay.ReaderConfig, hc *handlers.Config) { obeying(nil, hc); rc.Logger = book.Logger() })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := r.reader.Replay(ctx, r.processor, r.replay(func(c *replay.Config) { c.MaxParked = 15 }))
		ended <- err
	}()
	held := `select count(*) from firstseen.holds where consumer like 'replay/%' and holds @> '[{"code": "max_parked", "kind": "replay"}]'`
	s.eventually(func() bool { return s.count(held) == 1 }, "not told to Postgres")
	s.logged(book, slog.LevelError, "too many of the partition's messages are parked", "replay", s.topic)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Zero(t, s.count(`select count(*) from firstseen.holds`))
	require.Equal(t, 1, book.Times(slog.LevelError, "too many of the partition's messages are parked"))
}
