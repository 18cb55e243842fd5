package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// replayer replays a stage's topic to handlers that leave effects.
type replayer struct {
	*stage
	reader    *replay.Reader
	processor *handlers.Processor
}

// replayer makes one; change may change what it reads and handles with.
func (s *stage) replayer(change func(*replay.ReaderConfig, *handlers.Config)) *replayer {
	s.t.Helper()
	ctx := context.Background()
	pool := deduptest.OpenPool(s.t, s.dsn, nil)
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: s.group, EvictAfter: 500 * time.Millisecond})
	require.NoError(s.t, err)
	rc := replay.ReaderConfig{Connection: consumer.Connection{Brokers: []string{s.addr}}, Logger: logger(),
		MaxBatch: 10, FetchWait: 100 * time.Millisecond}
	hc := handlers.Config{Store: store, Handlers: &handlers.Registry{}, Logger: logger()}
	if change != nil {
		change(&rc, &hc)
	}
	if len(hc.Handlers.Topics()) == 0 {
		require.NoError(s.t, hc.Handlers.Register("effect", effect("effect"), s.topic))
	}
	r := &replayer{stage: s}
	r.processor, err = handlers.NewProcessor(hc)
	require.NoError(s.t, err)
	r.reader, err = replay.NewReader(rc)
	require.NoError(s.t, err)
	s.t.Cleanup(r.reader.Close)
	return r
}

// handling has the replayer, or a consumer, run these handlers only.
func (s *stage) handling(names ...string) func(*handlers.Config) {
	return func(hc *handlers.Config) {
		for _, name := range names {
			require.NoError(s.t, hc.Handlers.Register(name, effect(name), s.topic))
		}
	}
}

// replay is what to replay: the whole topic, but for what change says.
func (r *replayer) replay(change func(*replay.Config)) replay.Config {
	cfg := replay.Config{Topic: consumer.Topic{Name: r.topic}, Group: r.group}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func (r *replayer) run(change func(*replay.Config)) (replay.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	return r.reader.Replay(ctx, r.processor, r.replay(change))
}

func (r *replayer) mustRun(change func(*replay.Config)) replay.Result {
	r.t.Helper()
	result, err := r.run(change)
	require.NoError(r.t, err)
	require.Zero(r.t, result.Left())
	return result
}

// copies are records of which each comes three times: in a row, and at the end.
func (s *stage) copies(n int) []*kgo.Record {
	var rs []*kgo.Record
	for _, r := range s.records(n, 7) {
		again := *r
		rs = append(rs, r, &again)
	}
	for i := range n {
		again := *rs[2*i]
		rs = append(rs, &again)
	}
	return rs
}

func TestReplayTakesEffectOnceForEachMessage(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 3)
		consumertest.Produce(t, addr, s.copies(100)...)
		r := s.replayer(nil)
		result := r.mustRun(nil)
		require.EqualValues(t, 300, result.Read)
		require.Equal(t, handlers.Result{New: 100, Duplicates: 200}, result.Result)
		require.False(t, result.Resumed)
		s.requireOnce(100)

		result = r.mustRun(func(c *replay.Config) { c.Name = "another" })
		require.EqualValues(t, 300, result.Read)
		require.Equal(t, handlers.Result{Duplicates: 300}, result.Result)
		s.requireOnce(100)
	})
}

func TestFinishedReplayDoesNothingUnlessBegunAnew(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	consumertest.Produce(t, s.addr, s.records(20, 7)...)
	r := s.replayer(nil)
	r.mustRun(nil)
	consumertest.Produce(t, s.addr, s.records(20, 7)...)
	result := r.mustRun(nil)
	require.True(t, result.Resumed)
	require.Zero(t, result.Read)
	require.EqualValues(t, 20, result.Before)
	s.requireOnce(20)

	result = r.mustRun(func(c *replay.Config) { c.Fresh = true })
	require.False(t, result.Resumed)
	require.EqualValues(t, 40, result.Read)
	s.requireOnce(40)
}

func TestInterruptedReplayGoesOnToTheEndThatItBeganWith(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 3)
	consumertest.Produce(t, s.addr, s.copies(100)...)
	r := s.replayer(nil)
	ctx, cancel := context.WithCancel(context.Background())
	first, err := r.reader.Replay(ctx, r.processor, r.replay(func(c *replay.Config) {
		c.Progress = func(p replay.Result) {
			if p.Read >= 60 {
				cancel()
			}
		}
	}))
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, first.Left())
	require.Less(t, s.count(`select count(*) from effects`), 100)

	consumertest.Produce(t, s.addr, s.records(50, 7)...) // beyond the end
	second := s.replayer(nil).mustRun(nil)
	require.True(t, second.Resumed)
	require.Equal(t, first.Total()-first.Left(), second.Before)
	require.EqualValues(t, 300, first.Read+second.Read)
	require.Equal(t, 300, first.New+first.Duplicates+second.New+second.Duplicates)
	s.requireOnce(100)
}

func TestReplayIsNotTakenForAnotherOne(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	consumertest.Produce(t, s.addr, s.records(20, 7)...)
	r := s.replayer(nil)
	r.mustRun(nil)
	_, err := r.run(func(c *replay.Config) { c.From = replay.OffsetPlace(5) })
	require.ErrorContains(t, err, `from earliest to latest`)
	_, err = s.replayer(func(_ *replay.ReaderConfig, hc *handlers.Config) {
		s.handling("effect",
			"later")(hc)
	}).run(nil)
	require.ErrorContains(t, err, `handlers effect,later`)
	require.Equal(t, 20, s.count(`select count(*) from effects`))
}

func TestReplayReadsTheRangeThatIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	start := time.Now().Add(-10 * time.Hour).Truncate(time.Hour)
	var rs []*kgo.Record
	for i := range 10 {
		for p := range int32(2) {
			r := s.record("k", "v", uuid.NewString())
			r.Partition, r.Timestamp = p, start.Add(time.Duration(i)*time.Hour)
			rs = append(rs, r)
		}
	}
	consumertest.ProduceTo(t, s.addr, rs...)
	place := func(text string) replay.Place {
		p, err := replay.ParsePlace(text, start.Add(10*time.Hour))
		require.NoError(t, err)
		return p
	}
	r := s.replayer(nil)
	for i, c := range []struct {
		from, to   string
		partitions []int32
		want       []int64 // from and to of each partition
	}{
		{"earliest", "latest", nil, []int64{0, 10, 0, 10}},
		{"3", "7", nil, []int64{3, 7, 3, 7}},
		{"3", "700", []int32{1}, []int64{3, 10}},
		{"30", "700", []int32{1}, []int64{10, 10}},
		{"7h", "latest", nil, []int64{3, 10, 3, 10}},
		{"earliest", "2h-ago", []int32{0}, []int64{0, 8}},
		{start.Add(90 * time.Minute).Format(time.RFC3339), start.Add(4 * time.Hour).UTC().Format("2006-01-02 15:04"),
			nil, []int64{2, 4, 2, 4}},
		{"2099-01-01", "latest", nil, []int64{10, 10, 10, 10}},
		{"2001-01-01", "2001-01-02", nil, []int64{0, 0, 0, 0}},
	} {
		result := r.mustRun(func(cfg *replay.Config) {
			cfg.Name, cfg.From, cfg.To, cfg.Partitions = fmt.Sprint(i), place(c.from), place(c.to), c.partitions
		})
		var got []int64
		for _, at := range result.Ranges {
			got = append(got, at.From, at.To)
		}
		require.Equal(t, c.want, got, "%s to %s", c.from, c.to)
		require.Equal(t, result.Total(), result.Read)
	}
	for _, wrong := range []string{"", "-1", "yesterday", "-2h", "2h-"} {
		_, err := replay.ParsePlace(wrong, start)
		require.Error(t, err, wrong)
	}
	_, err := r.run(func(c *replay.Config) { c.Partitions = []int32{0, 7} })
	require.ErrorContains(t, err, "partition 7 does not exist")
	_, err = r.run(func(c *replay.Config) { c.From, c.To = replay.OffsetPlace(2), replay.OffsetPlace(1) })
	require.ErrorContains(t, err, "from 2 to 1 is no range")
}

func TestReplayLeavesToTheGroupWhatItHasNotRead(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	s.fill(10)
	stop := s.start(s.consumer(nil))
	s.caughtUp()
	stop()
	s.fill(10)
	result := s.replayer(nil).mustRun(nil)
	require.Equal(t, []operate.ReplayRange{{Partition: 0, To: 10, Next: 10}, {Partition: 1, To: 10, Next: 10}},
		result.Ranges)
	require.Equal(t, handlers.Result{Duplicates: 20}, result.Result)
	s.start(s.consumer(nil))
	s.caughtUp()
	s.requireOnce(40)
}

func TestReplayFillsANewHandlerOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	consumertest.Produce(t, s.addr, s.copies(50)...)
	stop := s.start(s.consumer(nil))
	s.caughtUp()
	stop()
	result := s.replayer(func(_ *replay.ReaderConfig, hc *handlers.Config) { s.handling("later")(hc) }).mustRun(nil)
	require.Equal(t, handlers.Result{New: 50, Duplicates: 100}, result.Result)
	require.Equal(t, 50, s.count(`select count(*) from effects where handler = 'effect'`))
	require.Equal(t, 50, s.count(`select count(distinct message_id) from effects where handler = 'later'`))
	require.Equal(t, 100, s.count(`select count(*) from effects`))
}

func TestReplayBesideALiveGroupTakesEffectOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	consumertest.Produce(t, s.addr, s.copies(100)...)
	s.start(s.consumer(func(cc *consumer.Config, _ *handlers.Config) { cc.StartAt = consumer.Latest }))
	s.eventually(func() bool { return s.count(`select count(*) from firstseen.positions where next_offset > 0`) == 2 },
		"not begun")
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		for range 10 {
			consumertest.Produce(t, s.addr, s.records(10, 7)...)
		}
	}()
	result := s.replayer(nil).mustRun(nil)
	<-produced
	require.GreaterOrEqual(t, result.New, 100)
	s.caughtUp()
	require.Equal(t, 200, s.count(`select count(distinct message_id) from effects`))
	require.Equal(t, 200, s.count(`select count(*) from effects`))
}

func TestSecondReplayOfANameTakesTheFirstOneOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	consumertest.Produce(t, s.addr, s.copies(100)...)
	first, second := s.replayer(nil), s.replayer(nil)
	var once sync.Once
	firstStops, secondEnds := make(chan struct{}), make(chan error, 1)
	_, err := first.run(func(c *replay.Config) {
		c.Progress = func(replay.Result) {
			once.Do(func() {
				go func() {
					_, err := second.run(func(c *replay.Config) { c.Progress = func(replay.Result) { <-firstStops } })
					secondEnds <- err
				}()
				s.eventually(func() bool {
					return s.count(`select max(epoch) from firstseen.positions where consumer like 'replay/%'`) == 2
				}, "not taken over")
			})
		}
	})
	require.ErrorIs(t, err, replay.ErrTaken)
	close(firstStops)
	require.NoError(t, <-secondEnds)
	s.requireOnce(100)
}

func TestReplayParksAndBuriesWhatFails(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	var rs []*kgo.Record
	for i, value := range []string{"ok", "fail:1", "ok", "permanent", "ok"} {
		rs = append(rs, s.record([]string{"a", "b"}[i%2], value, uuid.NewString()))
	}
	rs = append(rs, s.record("b", "ok", uuid.NewString()), s.record("c", "ok", ""))
	consumertest.Produce(t, s.addr, rs...)
	obeying := s.obeying(newObedient(), handlers.Retry{Base: time.Millisecond})
	result := s.replayer(func(rc *replay.ReaderConfig, hc *handlers.Config) {
		rc.MaxBatch = 2 // so that a later batch finds the lane
		obeying(nil, hc)
	}).mustRun(nil)
	require.Equal(t, 7, result.New+result.Parked+result.Dead)
	require.Equal(t, 3, result.New)
	require.Positive(t, result.Parked)
	stop := s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) { // the group's process retries
		cc.StartAt = consumer.Latest
		obeying(cc, hc)
	}))
	s.eventually(func() bool { return s.count(`select count(*) from firstseen.parked`) == 0 }, "parked messages stay")
	stop()
	require.Equal(t, 5, s.count(`select count(*) from effects`))
	require.Equal(t, 2, s.count(`select count(*) from firstseen.dead_letters`))
	require.Zero(t, s.count(`select count(*) from (
		select "offset" < lag("offset") over (partition by key order by seq) as back from effects) e where back`))
}

func TestReplaySetsApartWhatTheProcessDiedOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	consumertest.Produce(t, s.addr, s.records(15, 7)...)
	ctx, cancel := context.WithCancel(context.Background())
	r := s.replayer(nil)
	_, err := r.reader.Replay(ctx, r.processor,
		r.replay(func(c *replay.Config) { c.Progress = func(replay.Result) { cancel() } }))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 10, s.count(`select next_offset from firstseen.positions`))
	s.exec(`update firstseen.positions set fruitless = 3`) // as deaths leave it
	result := s.replayer(nil).mustRun(nil)
	require.Equal(t, handlers.Result{Parked: 5}, result.Result)
	require.Zero(t, s.count(`select sum(attempts) from firstseen.parked`))
	require.Equal(t, s.count(`select count(*) from firstseen.lanes`),
		s.count(`select count(*) from firstseen.lanes where claims = 1`))
}

func TestReplaySaysWhichMessagesAreGone(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.fill(20)
	consumertest.DeleteBefore(s.t, s.addr, s.topic, 0, 12)
	r := s.replayer(nil)
	_, err := r.run(func(c *replay.Config) { c.From = replay.OffsetPlace(5) })
	require.ErrorContains(t, err, "messages 5 to 11 of partition 0 are not in Kafka any more")
	require.Zero(t, s.count(`select count(*) from firstseen.replays`))

	result := s.replayer(func(rc *replay.ReaderConfig, _ *handlers.Config) { rc.OnLoss = consumer.Continue }).
		mustRun(func(c *replay.Config) { c.From = replay.OffsetPlace(5) })
	require.EqualValues(t, 8, result.Read)

	result = r.mustRun(func(c *replay.Config) { c.Name = "another" }) // from earliest nothing is missing
	require.EqualValues(t, 8, result.Read)
}

func TestReplayThatIsResumedAfterItsEndWasDeletedComesToAnEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.fill(40)
	upTo30 := func(c *replay.Config) { c.To = replay.OffsetPlace(30) }
	r := s.replayer(nil)
	ctx, cancel := context.WithCancel(context.Background())
	first, err := r.reader.Replay(ctx, r.processor, r.replay(func(c *replay.Config) {
		upTo30(c)
		c.Progress = func(replay.Result) { cancel() }
	}))
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, first.Left())
	consumertest.DeleteBefore(s.t, s.addr, s.topic, 0, 35)
	_, err = r.run(upTo30)
	require.ErrorContains(t, err, "to 29 were deleted before they were read")

	result := s.replayer(func(rc *replay.ReaderConfig,
		_ *handlers.Config) {
		rc.OnLoss = consumer.Continue
	}).mustRun(upTo30)
	require.True(t, result.Resumed)
	require.Zero(t, result.Read)
	s.requireOnce(int(first.Read))
}

// contents is everything in the schema, one digest a table.
func (s *stage) contents() []string {
	rows, err := s.pool.Query(context.Background(), `select table_name || ' ' || md5(query_to_xml(
		format('select * from firstseen.%I t order by t::text', table_name), true, false, '')::text)
		from information_schema.tables where table_schema = 'firstseen' order by 1`)
	require.NoError(s.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	return lines
}

func TestPreviewOfAReplayWritesNothingAndCountsWhatTheReplayDoes(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	with := func(rc *replay.ReaderConfig, hc *handlers.Config) { s.handling("effect", "later")(hc) }
	rs := s.copies(100)
	for i := range 30 { // another content under a known ID
		again := *rs[i]
		again.Value = []byte("changed")
		rs = append(rs, &again)
	}
	rs = append(rs, s.record("k", "v", ""), s.record("k", "v", ""))
	consumertest.Produce(t, s.addr, rs[:90]...)
	stop := s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.Topics = []consumer.Topic{{Name: s.topic, Fingerprint: identity.FingerprintBytes}}
		require.NoError(t, hc.Handlers.Register("effect", handlers.BatchHandlerFunc(func(_ context.Context, _ pgx.Tx,
			ms []dedup.Message) error {
			if i := slices.IndexFunc(ms, func(m dedup.Message) bool { return m.Offset%9 == 0 }); i >= 0 {
				return &handlers.MessageError{Topic: s.topic, Partition: ms[i].Partition, Offset: ms[i].Offset,
					Err: handlers.Permanent(errors.New("no"))}
			}
			return nil
		}), s.topic))
	}))
	s.caughtUp()
	stop()
	require.Positive(t, s.count(`select count(*) from firstseen.dead_letters`))
	s.exec(`delete from firstseen.positions`) // the group's: no limit to what is replayed
	consumertest.Produce(t, s.addr, rs[90:]...)
	ask := func(c *replay.Config) { c.Topic.Fingerprint = identity.FingerprintBytes }

	before := s.contents()
	db := s.dsn
	s.dsn += "&default_transaction_read_only=on"
	looker := s.looker(with)
	s.dsn = db
	preview, err := looker.reader.Preview(t.Context(), looker.processor, looker.replay(ask))
	require.NoError(t, err)
	require.Equal(t, before, s.contents())
	require.False(t, preview.Guessed)

	done := s.replayer(with).mustRun(ask)
	require.Equal(t, done.Result, preview.Result)
	require.Equal(t, done.Read, preview.Read)
	require.Positive(t, done.Buried)
	require.Positive(t, done.Conflicts)
	require.Equal(t, 4, done.Dead)
}

// looker is a replayer that needs no right to write.
func (s *stage) looker(change func(*replay.ReaderConfig, *handlers.Config)) *replayer {
	pool := deduptest.OpenPool(s.t, s.dsn, nil)
	store, err := dedup.Attach(context.Background(), pool, dedup.Config{Inbox: s.group})
	require.NoError(s.t, err)
	hc := handlers.Config{Store: store, Handlers: &handlers.Registry{}, Logger: logger()}
	rc := replay.ReaderConfig{Connection: consumer.Connection{Brokers: []string{s.addr}}, Logger: logger(),
		MaxBatch: 10}
	change(&rc, &hc)
	r := &replayer{stage: s}
	r.processor, err = handlers.NewProcessor(hc)
	require.NoError(s.t, err)
	r.reader, err = replay.NewReader(rc)
	require.NoError(s.t, err)
	s.t.Cleanup(r.reader.Close)
	return r
}
