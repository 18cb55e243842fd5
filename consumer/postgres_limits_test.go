package consumer_test

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// slowly is effect as one statement for a batch, which takes a fixed time for each message.
func slowly(each time.Duration) handlers.BatchHandler {
	return handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		var ids, keys []string
		var offsets []int64
		for i := range ms {
			ids, keys, offsets = append(ids, ms[i].ID.String()), append(keys, string(ms[i].Key)),
				append(offsets, ms[i].Offset)
		}
		if _, err := tx.Exec(ctx, `select pg_sleep($1)`, (each * time.Duration(len(ms))).Seconds()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into effects (handler, message_id, key, "offset", "partition")
			select 'effect', u.id::uuid, u.key, u.at, $4
			from unnest($1::text[], $2::text[], $3::bigint[]) with ordinality u (id, key, at, n) order by n`,
			ids, keys, offsets, ms[0].Partition)
		return err
	})
}

func TestBatchThatRunsIntoTheStatementTimeoutIsHalvedUntilItPasses(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	consumertest.Produce(t, s.addr, s.records(14_000, 100)...)
	var database string
	require.NoError(t, s.pool.QueryRow(t.Context(), `select current_database()`).Scan(&database))
	s.exec(`alter database ` + database + ` set statement_timeout = '1s'`)
	var timeouts atomic.Int32
	counted := handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		err := slowly(time.Millisecond).HandleBatch(ctx, tx, ms)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "57014" {
			timeouts.Add(1)
		}
		return err
	})
	stop := s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.MaxBatch, cc.MaxBatchBytes = 20_000, 64<<20
		require.NoError(t, hc.Handlers.Register("effect", counted, s.topic))
	}))
	s.caughtUp()
	stop()
	s.requireOnce(14_000)
	require.GreaterOrEqual(t, timeouts.Load(), int32(2))
	require.Equal(t, 14_000, s.count(`select count(*) from firstseen.inbox where attempts = 0`))
	t.Logf("%d calls took too long", timeouts.Load())
}

func TestHugeValuesGoThroughInLittleMemory(t *testing.T) {
	t.Parallel()
	const values, size, most = 20, 15 << 20, 250
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.topic, s.partitions = consumertest.Name(t), 2
	consumertest.CreateTopic(t, s.addr, s.topic, s.partitions, "max.message.bytes=20971520")
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.ProducerBatchMaxBytes(20<<20),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer client.Close()
	for i := range values {
		r := s.record(fmt.Sprint("key", i), "", uuid.NewString())
		r.Value, r.Partition = make([]byte, size), int32(i%s.partitions)
		_, _ = crand.Read(r.Value)
		copy(r.Value, "sleep:100ms\n") // fetching could run far ahead
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	}
	m := s.child("huge")
	m.BufferBytes = 1 << 20
	p := s.startChild(m)
	s.caughtUp()
	peak := p.peakMemory()
	require.False(t, p.Stop(syscall.SIGTERM, 20*time.Second), "it did not end by itself")
	s.requireOnce(values)
	require.Equal(t, values, s.count(`select count(*) from firstseen.inbox where length(payload) = $1`, size))
	t.Logf("the consumer took %d MiB at most, for %d MiB of values", peak, values*size>>20)
	if !raceDetector() { // which takes several times the memory
		require.Less(t, peak, most, "MiB at most")
	}
}

// raceDetector says whether the test binary was built with -race.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemory is the most that the child's memory has been, in MiB.
func (p *childProcess) peakMemory() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	require.NoError(p.t, err)
	found := highWater.FindSubmatch(status)
	require.NotNil(p.t, found)
	kib, err := strconv.Atoi(string(found[1]))
	require.NoError(p.t, err)
	return kib >> 10
}

func TestSameIDsInOppositeOrderAtTwoMembersTakeEffectOnce(t *testing.T) {
	t.Parallel()
	const rounds, ids = 200, 50
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	group := s.groupAdmin()
	var up []*kgo.Record
	down := make([][]*kgo.Record, rounds)
	for i := range rounds {
		rs := s.records(ids, ids)
		up = append(up, rs...)
		for _, r := range slices.Backward(rs) {
			twin := again(r)
			twin.Partition = 1
			down[i] = append(down[i], twin)
		}
	}
	for i := 0; i < rounds; i += 4 { // in two rounds of four each member comes first once; the other two are a race
		down[i], down[i+1] = down[i+1], down[i]
	}
	heard := &heard{}
	var first sync.WaitGroup // neither goes on before both have begun
	first.Add(2)
	member := func(name string) func() {
		var begin sync.Once
		return s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
			cc.ClientID, cc.MaxBatch, cc.Logger = name, ids, heard.logger()
			h := handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
				begin.Do(func() { first.Done(); first.Wait() })
				return obey(ctx, tx, m)
			}))
			require.NoError(t, hc.Handlers.Register("effect", h, s.topic))
		}))
	}
	stopA, stopB := member("a"), member("b")
	group.awaitStable("a", "b")
	consumertest.ProduceTo(t, s.addr, append(up, slices.Concat(down...)...)...)
	s.caughtUp()
	stopA()
	stopB()
	s.requireOnce(rounds * ids)
	require.Equal(t, rounds*ids, s.count(`select count(*) from firstseen.inbox`))
	require.Equal(t, 2, s.count(`select count(distinct "partition") from effects`),
		"only one of the members ever came first")
	require.Zero(t, heard.times("SQLSTATE 40P01"), "deadlocks")
}
