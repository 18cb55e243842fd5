package consumer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// grave is a stage whose handler gives up whatever is not for the key "n2", and its dead letter topic.
type grave struct {
	*stage
	dead string
	text atomic.Pointer[string] // of the handler's error
}

func newGrave(t *testing.T, addr string, configs ...string) *grave {
	t.Helper()
	return newGraveOf(t, addr, 1, configs...)
}

// newGraveOf makes both topics with so many partitions.
func newGraveOf(t *testing.T, addr string, partitions int, configs ...string) *grave {
	t.Helper()
	g := &grave{stage: newStage(t, addr, partitions), dead: consumertest.Name(t) + ".dead"}
	consumertest.CreateTopic(t, addr, g.dead, partitions, configs...)
	g.fails("hopeless")
	return g
}

func (g *grave) fails(text string) { g.text.Store(&text) }

// run runs a consumer that publishes.
func (g *grave) run() (stop func(), log *heard) {
	log = &heard{}
	handler := handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if string(m.Key) != "n2" {
			return handlers.Permanent(errors.New(*g.text.Load()))
		}
		return obey(ctx, tx, m)
	})
	return g.start(g.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		g.obeying(handler, handlers.Retry{})(cc, hc)
		cc.DeadTopic, cc.Logger = g.dead, log.logger()
	})), log
}

func (g *grave) unpublished() int {
	return g.count(`select count(*) from firstseen.dead_letters where published_at is null`)
}

// died waits until n dead letters are there and published.
func (g *grave) died(n int) {
	g.t.Helper()
	var are struct{ Dead, Unpublished int }
	require.Eventually(g.t, func() bool {
		are.Dead, are.Unpublished = g.count(`select count(*) from firstseen.dead_letters`), g.unpublished()
		return are.Dead == n && are.Unpublished == 0
	}, 3*time.Minute, 20*time.Millisecond, "%d dead letters were to be published, and there are %+v", n, &are)
}

func (g *grave) read() (records []*kgo.Record) {
	g.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(g.addr), kgo.ConsumeTopics(g.dead),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(g.t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	there := 0
	g.admin(func(ctx context.Context, a *kadm.Client) error {
		ends, err := a.ListEndOffsets(ctx, g.dead)
		ends.Each(func(o kadm.ListedOffset) { there += int(max(0, o.Offset)) })
		return err
	})
	for len(records) < there && ctx.Err() == nil {
		records = append(records, client.PollFetches(ctx).Records()...)
	}
	return records
}

// failure is what the handler's error is kept as.
func failure(topic string, offset int) string {
	return fmt.Sprintf("handler effect: message %s/0@%d: hopeless", topic, offset)
}

func header(r *kgo.Record, key string) string {
	i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == key })
	if i < 0 {
		return "(none)"
	}
	return string(r.Headers[i].Value)
}

func TestDeadLettersArePublishedByteForByteWithDiagnostics(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		g := newGrave(t, addr)
		var ids []string
		var rs []*kgo.Record
		at := time.Now().Truncate(time.Millisecond) // older ones Kafka deletes
		for _, key := range [][]byte{nil, {}, []byte("null"), {0, 255}} {
			for _, value := range [][]byte{nil, {}, []byte("null"), {0, 255}} {
				id := uuid.NewString()
				ids = append(ids, id)
				rs = append(rs, &kgo.Record{Topic: g.topic, Key: key, Value: value, Headers: []kgo.RecordHeader{
					{Key: "a", Value: nil}, {Key: "message-id", Value: []byte(id)}, {Key: "a", Value: []byte{}},
					{Key: "", Value: []byte{0, 255}},
					{Key: "firstseen-reason", Value: []byte("earlier")}, {Key: "a", Value: []byte("null")}},
					Timestamp: at})
			}
		}
		consumertest.Produce(t, addr, rs...)
		stop, _ := g.run()
		g.died(len(rs))
		stop()
		got := g.read()
		require.Len(t, got, len(rs))
		for i, r := range got {
			require.Equal(t, rs[i].Key, r.Key)
			require.Equal(t, rs[i].Value, r.Value)
			require.Equal(t, rs[i].Key == nil, r.Key == nil)
			require.Equal(t, rs[i].Value == nil, r.Value == nil)
			want := append(slices.Clone(rs[i].Headers[:4]), rs[i].Headers[5])
			for _, d := range []string{"id=" + ids[i], "handler=effect", "tenant=",
				"reason=permanent", "error=" + failure(g.topic, i), "attempts=1", "topic=" + g.topic, "partition=0",
				fmt.Sprint("offset=", i), "timestamp=" + at.UTC().Format("2006-01-02T15:04:05.000Z")} {
				key, text, _ := strings.Cut(d, "=")
				want = append(want, kgo.RecordHeader{Key: "firstseen-" + key, Value: []byte(text)})
			}
			require.Equal(t, want, r.Headers)
		}
	})
}

func TestALetterThatIsNearlyTooLargeIsPublishedWithLessAboutIt(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	for name, c := range map[string]struct {
		spare     int // what the value leaves of the limit
		published bool
		error     func(string) bool
		handler   string
		redrives  int
	}{
		"no room for other than the ID": {spare: 200, published: true, handler: "(none)",
			error: func(e string) bool { return e == "(none)" }, redrives: 5},
		"little room for the error": {spare: 1000, published: true, handler: "effect",
			error: func(e string) bool { return len(e) < 512 }},
		"some room for the error": {spare: 3000, published: true, handler: "effect",
			error: func(e string) bool { return len(e) > 512 && strings.HasSuffix(e, "ééé") }},
		"no room at all": {spare: 130},
	} {
		t.Run(name, func(t *testing.T) {
			brokers := consumertest.OnBrokers
			if c.redrives == 0 {
				brokers = func(t *testing.T, test func(*testing.T, string)) { test(t, consumertest.Kafka(t)) }
			}
			brokers(t, func(t *testing.T, addr string) {
				g := newGrave(t, addr, fmt.Sprint("max.message.bytes=", limit))
				g.fails(strings.Repeat("é", 32<<10))
				value := make([]byte, limit-c.spare)
				_, _ = rand.Read(value)
				n1 := g.record("n1", "small", uuid.NewString())
				large, n2 := g.record("k", string(value), uuid.NewString()), g.record("n2", "fine", uuid.NewString())
				consumertest.Produce(t, addr, n1, large, n2)
				stop, log := g.run()
				g.died(2)
				for range c.redrives {
					g.redrive()
					g.died(2)
				}
				stop()
				g.requireOnce(1)
				require.Equal(t, 1, g.count(`select count(*) from firstseen.dead_letters where payload = $1`, value))
				var stored string
				require.NoError(t, g.pool.QueryRow(t.Context(),
					`select error from firstseen.dead_letters where key = 'n1'`).Scan(&stored))
				got := g.read()
				if !c.published {
					require.Len(t, got, 1)
					require.Equal(t, 1,
						g.count(`select count(*) from firstseen.dead_letters where published_at = 'infinity'`))
					require.True(t, log.has("can't be published"))
					return
				}
				require.Len(t, got, 2*(c.redrives+1))
				for _, r := range got {
					first := slices.IndexFunc(got, func(o *kgo.Record) bool { return string(o.Key) == string(r.Key) })
					require.Len(t, r.Headers, len(got[first].Headers), "a redrive makes it no larger")
					if string(r.Key) == "n1" {
						require.Equal(t, stored, header(r, "firstseen-error"))
						continue
					}
					require.Equal(t, value, r.Value)
					require.Equal(t, string(large.Headers[0].Value), header(r, "firstseen-id"))
					require.Equal(t, c.handler, header(r, "firstseen-handler"))
					require.True(t, c.error(header(r, "firstseen-error")),
						"%d bytes", len(header(r, "firstseen-error")))
				}
			})
		})
	}
}

func (g *grave) redrive() {
	g.t.Helper()
	store, err := dedup.Attach(g.t.Context(), g.pool, dedup.Config{Inbox: g.group})
	require.NoError(g.t, err)
	n, err := operate.Of(store).Redrive(g.t.Context(), operate.Filter{}, operate.By{Actor: "a test", Why: "to see"})
	require.NoError(g.t, err)
	require.Equal(g.t, 2, n)
}

func TestALetterThatIsTooLargeOnlyUncompressedIsPublishedWhole(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		g := newGrave(t, addr, "max.message.bytes=20000")
		consumertest.Produce(t, addr, g.record("k", strings.Repeat("compressible ", 4000), uuid.NewString()))
		stop, _ := g.run()
		g.died(1)
		stop()
		got := g.read()
		require.Len(t, got, 1)
		require.Equal(t, failure(g.topic, 0), header(got[0], "firstseen-error"))
		require.Len(t, got[0].Value, 13*4000)
	})
}

func TestALetterThatTheTopicCanNotTakeHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	g := newGrave(t, consumertest.Kafka(t), "cleanup.policy=compact")
	id := uuid.NewString()
	keyless := g.record("", "x", id)
	keyless.Key = nil
	consumertest.Produce(t, g.addr, g.record("a", "x", uuid.NewString()),
		keyless, g.record("b", "x", uuid.NewString()))
	stop, log := g.run()
	g.died(3)
	stop()
	require.Len(t, g.read(), 2)
	require.True(t, log.has("can't be published"))
	require.Equal(t, 1, g.count(
		`select count(*) from firstseen.dead_letters where published_at = 'infinity' and message_id = $1`, id))
}

func TestACrashBetweenBrokerAndCommitPublishesAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	g := newGrave(t, fake.Addr)
	const n = 20
	ids := map[string]int{}
	for _, r := range g.records(n, n) {
		ids[string(r.Headers[0].Value)] = 0
		consumertest.Produce(t, g.addr, r)
	}
	var crashes atomic.Int32
	fake.Cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		if crashes.Add(1) <= 2 {
			_, _ = g.pool.Exec(context.Background(), `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and state = 'idle in transaction' and query like '%dead_letters%'`)
		}
		return nil, nil, false
	})
	stop, _ := g.run()
	g.died(n)
	stop()
	for _, r := range g.read() {
		ids[header(r, "firstseen-id")]++
	}
	require.Len(t, ids, n)
	again := 0
	for id, times := range ids {
		require.NotZero(t, times, id)
		again = max(again, times)
	}
	require.Equal(t, 3, again, "the crashes came when it was published")
}

func TestTwoPublishersPublishEachLetterOnce(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		g := newGrave(t, addr)
		const n = 1500
		consumertest.Produce(t, addr, g.records(n, 50)...)
		stop, _ := g.run()
		stopOther, _ := g.run()
		g.died(n)
		stop()
		stopOther()
		ids := map[string]int{}
		for _, r := range g.read() {
			ids[header(r, "firstseen-id")]++
		}
		require.Len(t, ids, n)
		for id, times := range ids {
			require.Equal(t, 1, times, id)
		}
	})
}

func TestAMissingDeadTopicHoldsUpNothingAndIsUsedOnceItIsThere(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		g := &grave{stage: newStage(t, addr, 1), dead: consumertest.Name(t)}
		g.fails("hopeless")
		consumertest.Produce(t, addr, g.record("a", "x", uuid.NewString()), g.record("n2", "fine", uuid.NewString()))
		stop, log := g.run()
		g.caughtUp()
		require.Eventually(t, func() bool { return log.has("dead letters can't be published to their topic") },
			3*time.Minute, 60*time.Millisecond)
		require.Equal(t, 1, g.unpublished())
		g.requireOnce(1)
		consumertest.CreateTopic(t, addr, g.dead, 3)
		g.died(1)
		require.Eventually(t, func() bool { return log.has("goes on again") }, 3*time.Minute, 60*time.Millisecond)
		stop()
		require.Len(t, g.read(), 1)
	})
}

func TestAKeyIsPublishedWhereKafkasProducersPutIt(t *testing.T) {
	t.Parallel()
	g := newGraveOf(t, consumertest.NewFake(t).Addr, 3)
	rs := g.records(30, 15)
	for i := range 10 {
		rs[i].Key = nil
	}
	consumertest.Produce(t, g.addr, rs...)
	stop, _ := g.run()
	g.died(len(rs))
	stop()
	got := g.read()
	require.Len(t, got, len(rs))
	for _, r := range got {
		require.Equal(t, header(r, "firstseen-partition"), fmt.Sprint(r.Partition), "key %q", r.Key)
	}
}

// A letter is marked as published once all replicas that are in sync have it.
func TestDeadLettersAreAcknowledgedByAllReplicas(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	g := newGrave(t, fake.Addr)
	consumertest.Produce(t, g.addr, g.records(3, 3)...)
	var weak atomic.Int32
	asked := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: g.dead, Observe: true, Count: -1,
		When: func(r kmsg.Request) bool {
			if r.(*kmsg.ProduceRequest).Acks != -1 {
				weak.Add(1)
			}
			return true
		}})
	stop, _ := g.run()
	g.died(3)
	consumertest.Met(t, asked, 1)
	stop()
	require.Len(t, g.read(), 3)
	require.Zero(t, weak.Load())
}
