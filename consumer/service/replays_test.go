package service

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

const replayed = 200 // messages of the topic, in two partitions

var ann = operate.By{Actor: "ann", Why: "fill the totals"}

// library is a topic that its group has read with the handler book; the program has the handler totals since.
type library struct {
	*stage
	addr string
	said deduptest.Log // by the consumer and the processor
}

func newLibrary(t *testing.T) *library {
	l := &library{addr: consumertest.NewFake(t).Addr}
	consumertest.CreateTopic(t, l.addr, "orders", 2)
	consumertest.Produce(t, l.addr, consumertest.Records("orders", replayed, 7)...)
	db := deduptest.New(t)
	_, err := db.Pool.Exec(t.Context(), `create table effects (handler text, id uuid)`)
	require.NoError(t, err)
	l.stage = stageOn(t, db.Pool)
	l.db = db
	l.store, err = dedup.Open(t.Context(), db.Pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	first := l.program("book")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- first.consumer.Run(ctx) }()
	require.Eventually(t, func() bool { return l.count(`select count(*) from effects`) == replayed }, waitFor, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	p := l.program("book", "totals")
	parts := PartsOf(p.consumer, p.processor)
	parts.Status = func() consumer.Status { return *l.status.Load() }
	l.Attach(parts)
	return l
}

type program struct {
	consumer  *consumer.Consumer
	processor *handlers.Processor
}

func (l *library) program(names ...string) program {
	log := slog.New(slog.NewTextHandler(&l.said, nil))
	var registry handlers.Registry
	for _, name := range names {
		require.NoError(l.t, registry.Register(name, handlers.Each(handlers.HandlerFunc(
			func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
				_, err := tx.Exec(ctx, `insert into effects values ($1, $2::text::uuid)`, name, m.ID.String())
				return err
			})), "orders"))
	}
	processor, err := handlers.NewProcessor(handlers.Config{Store: l.store, Handlers: &registry, Logger: log})
	require.NoError(l.t, err)
	c, err := consumer.New(consumer.Config{Connection: consumer.Connection{Brokers: []string{l.addr}}, Group: "billing", Logger: log,
		CommitInterval: 50 * time.Millisecond, FetchWait: 50 * time.Millisecond, MaxBatch: 10}, processor)
	require.NoError(l.t, err)
	return program{c, processor}
}

func (l *library) count(sql string) (n int) {
	l.t.Helper()
	require.NoError(l.t, l.db.Pool.QueryRow(l.t.Context(), sql).Scan(&n))
	return n
}

func (l *library) create(ask operate.ReplayAsk) *operate.Job {
	l.t.Helper()
	j, created, err := l.CreateReplay(l.t.Context(), uuid.New(), ask, ann)
	require.NoError(l.t, err)
	require.True(l.t, created)
	return j
}

// comesTo waits for a job's state.
func (l *library) comesTo(id uuid.UUID, is func(*operate.Job) bool) (j *operate.Job) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		var err error
		j, err = l.Inbox().Job(l.t.Context(), id)
		return err == nil && j != nil && is(j)
	}, waitFor, 10*time.Millisecond)
	return j
}

func in(state operate.JobState) func(*operate.Job) bool {
	return func(j *operate.Job) bool { return j.State == state }
}

// A new handler is filled by whichever process runs, and what others have seen is not.
func TestReplayIsPlannedAndDoneBesideTheConsumer(t *testing.T) {
	l := newLibrary(t)
	ask := operate.ReplayAsk{Topic: "orders", Handler: "totals", From: "2h", To: "latest"}
	plan, err := l.PlanReplay(t.Context(), ask)
	require.NoError(t, err)
	require.True(t, plan.Counted)
	require.EqualValues(t, replayed, plan.Total())
	require.Equal(t, replayed, plan.New)
	require.NotEqual(t, "2h", plan.Ask.From, "what is done is what was shown, whenever it is done")
	_, err = time.Parse(time.RFC3339Nano, plan.Ask.From)
	require.NoError(t, err)
	require.Zero(t, l.count(`select count(*) from firstseen.jobs`))

	made := l.create(plan.Ask)
	require.EqualValues(t, replayed, made.Expected)
	ask.To = "0s"
	_, _, err = l.CreateReplay(t.Context(), made.ID, ask, ann)
	var differs *operate.JobDiffersError
	require.ErrorAs(t, err, &differs, "latest is another end than now")
	ask.To = "latest"
	again, created, err := l.CreateReplay(t.Context(), made.ID, ask, ann)
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, made.ID, again.ID)
	j := l.comesTo(made.ID, in(operate.JobDone))
	require.EqualValues(t, replayed, j.Done)
	require.Equal(t, operate.ReplayCounts{New: replayed}, j.Replay.Counts)
	require.Equal(t, dedup.ThisProcess(), j.Worker)
	require.Equal(t, replayed, l.count(`select count(distinct id) from effects where handler = 'totals'`))
	require.Equal(t, 2*replayed, l.count(`select count(*) from effects`))
	require.Equal(t, 2, l.count(`select count(*) from firstseen.audit where action = 'replay' and actor = 'ann'`))
	require.NotContains(t, l.said.String(), "all memory", "nothing had to be waited for")

	all := l.comesTo(l.create(operate.ReplayAsk{Topic: "orders", From: "earliest", To: "latest", Partitions: []int32{0, 1}}).ID,
		in(operate.JobDone))
	require.Equal(t, operate.ReplayCounts{Duplicates: 2 * replayed}, all.Replay.Counts)
	require.Equal(t, 2*replayed, l.count(`select count(*) from effects`))
}

func TestReplayOfWhatIsNotThereIsRefusedWithTheReason(t *testing.T) {
	l := newLibrary(t)
	for field, ask := range map[string]operate.ReplayAsk{
		"topic":   {Topic: "other", From: "earliest", To: "latest"},
		"handler": {Topic: "orders", Handler: "mail", From: "earliest", To: "latest"},
		"from":    {Topic: "orders", From: "yesterday", To: "latest"},
		"to":      {Topic: "orders", From: "earliest", To: "-1"},
	} {
		_, err := l.PlanReplay(t.Context(), ask)
		var fault *ReplayFault
		require.ErrorAs(t, err, &fault, field)
		require.Equal(t, field, fault.Field)
		_, _, err = l.CreateReplay(t.Context(), uuid.New(), ask, ann)
		require.ErrorAs(t, err, &fault, field)
	}
	_, err := l.PlanReplay(t.Context(), operate.ReplayAsk{Topic: "orders", From: "earliest", To: "latest", Partitions: []int32{7}})
	require.ErrorContains(t, err, "partition 7 does not exist")
	s := newStage(t)
	_, err = s.PlanReplay(t.Context(), operate.ReplayAsk{Topic: "orders", From: "earliest", To: "latest"})
	require.ErrorIs(t, err, ErrNoReplays)
}

func TestReplayRestsGoesOnAndIsCancelled(t *testing.T) {
	l := newLibrary(t)
	slow := operate.ReplayAsk{Topic: "orders", Handler: "totals", From: "earliest", To: "latest", Rate: 40}
	made := l.create(slow)
	l.comesTo(made.ID, func(j *operate.Job) bool { return j.Done > 0 })
	_, changed, err := l.Inbox().PauseJob(t.Context(), made.ID, ann)
	require.NoError(t, err)
	require.True(t, changed)
	free := func() bool {
		return l.count(`select count(*) from firstseen.job_replays where taken_until is not null`) == 0
	}
	require.Eventually(t, free, waitFor, 10*time.Millisecond, "the process lets go of it")
	rests := l.comesTo(made.ID, in(operate.JobPaused))
	require.Less(t, rests.Done, int64(replayed))
	require.EqualValues(t, rests.Done, rests.Replay.Counts.New, "it told what it had done")
	require.EqualValues(t, rests.Done, l.count(`select count(*) from effects where handler = 'totals'`))

	_, _, err = l.Inbox().ResumeJob(t.Context(), made.ID, ann)
	require.NoError(t, err)
	went := l.comesTo(made.ID, func(j *operate.Job) bool { return j.Done > rests.Done })
	_, _, err = l.Inbox().CancelJob(t.Context(), made.ID, ann)
	require.NoError(t, err)
	require.Eventually(t, free, waitFor, 10*time.Millisecond)
	over := l.comesTo(made.ID, in(operate.JobCancelled))
	require.GreaterOrEqual(t, over.Done, went.Done)
	require.Zero(t, l.count(`select count(*) from firstseen.replays r join firstseen.positions p using (consumer, topic, "partition")
		where p.next_offset < r.to_offset`), "it keeps no ID from being forgotten")

	j := l.comesTo(l.create(operate.ReplayAsk{Topic: "orders", Handler: "totals", From: "earliest", To: "latest"}).ID, in(operate.JobDone))
	require.EqualValues(t, replayed-over.Done, j.Replay.Counts.New, "nothing is done twice")
	require.Equal(t, replayed, l.count(`select count(*) from effects where handler = 'totals'`))
}

// Whoever took it and is gone has it for some seconds only, and can't go on when he is there again.
func TestReplayOfAProcessThatIsGoneGoesOnElsewhere(t *testing.T) {
	l := newLibrary(t)
	inbox := l.Inbox()
	made, _, err := inbox.CreateReplay(t.Context(), operate.NewReplay{ID: uuid.New(), Group: "elsewhere",
		ReplayAsk: operate.ReplayAsk{Topic: "orders", From: "earliest", To: "latest"}, Offsets: replayed}, ann)
	require.NoError(t, err)
	all := func(*operate.Job) bool { return true }
	none, err := inbox.TakeReplay(t.Context(), "billing", "p0", all)
	require.NoError(t, err)
	require.Nil(t, none, "it is another group's")
	none, err = inbox.TakeReplay(t.Context(), "elsewhere", "p0", func(*operate.Job) bool { return false })
	require.NoError(t, err)
	require.Nil(t, none, "it has no such handler")
	taken, err := inbox.TakeReplay(t.Context(), "elsewhere", "p1", all)
	require.NoError(t, err)
	require.Equal(t, made.ID, taken.ID)
	none, err = inbox.TakeReplay(t.Context(), "elsewhere", "p2", all)
	require.NoError(t, err)
	require.Nil(t, none, "p1 has it")
	goOn, err := taken.Tell(t.Context(), operate.ReplayNews{Done: 10, Total: replayed, Counts: operate.ReplayCounts{New: 7, Parked: 3}})
	require.NoError(t, err)
	require.True(t, goOn)

	_, err = l.db.Pool.Exec(t.Context(), `update firstseen.job_replays set taken_until = now() - interval '1s'`)
	require.NoError(t, err)
	second, err := inbox.TakeReplay(t.Context(), "elsewhere", "p2", all)
	require.NoError(t, err)
	require.NotNil(t, second)
	require.EqualValues(t, 10, second.Done)
	goOn, err = taken.Tell(t.Context(), operate.ReplayNews{Done: 11, Total: replayed, Over: true, Finished: true})
	require.NoError(t, err)
	require.False(t, goOn, "p2 has it")
	goOn, err = second.Tell(t.Context(), operate.ReplayNews{Done: 20, Total: replayed, Counts: operate.ReplayCounts{New: 10}, Over: true})
	require.NoError(t, err)
	require.True(t, goOn)
	third, err := inbox.TakeReplay(t.Context(), "elsewhere", "p3", all)
	require.NoError(t, err)
	require.NotNil(t, third, "p2 has let go of it")
	_, err = third.Tell(t.Context(), operate.ReplayNews{Done: 20, Total: replayed, Over: true, Fault: "messages are gone"})
	require.NoError(t, err)
	rests := l.comesTo(made.ID, in(operate.JobPaused))
	require.Equal(t, "messages are gone", rests.Error)
	require.Equal(t, operate.ReplayCounts{New: 17, Parked: 3}, rests.Replay.Counts)
	require.NoError(t, inbox.WorkJobs(t.Context(), "p4"), "it is no work of theirs")
	has, err := inbox.HasJobs(t.Context())
	require.NoError(t, err)
	require.False(t, has)
}

// A replay that was taken and not begun yet is begun though it was cancelled meanwhile, and its process may be killed in that second.
func TestReplayThatIsCancelledAsItBeginsKeepsNoID(t *testing.T) {
	s := newStage(t)
	inbox := s.Inbox()
	for _, killed := range []bool{false, true} {
		n := operate.NewReplay{ID: uuid.New(), Group: "elsewhere", ReplayAsk: operate.ReplayAsk{Topic: "orders", From: "earliest",
			To: "latest"}, Offsets: 9}
		_, _, err := inbox.CreateReplay(t.Context(), n, ann)
		require.NoError(t, err)
		taken, err := inbox.TakeReplay(t.Context(), "elsewhere", "p1", func(*operate.Job) bool { return true })
		require.NoError(t, err)
		_, changed, err := inbox.CancelJob(t.Context(), n.ID, ann)
		require.NoError(t, err)
		require.True(t, changed)
		begun := &operate.Replay{Consumer: taken.Replay.Consumer, Topic: "orders", Asked: "x",
			Ranges: []operate.ReplayRange{{From: 2, To: 9}}}
		if killed {
			begun.Ranges[0] = operate.ReplayRange{To: 7} // and is over at 0
		}
		_, err = inbox.BeginReplay(t.Context(), begun, false)
		require.NoError(t, err)
		found, err := inbox.Replay(t.Context(), begun.Consumer, "orders")
		require.NoError(t, err)
		require.EqualValues(t, 7, found.Left())
		if killed {
			_, err = inbox.SweepJobs(t.Context())
		} else {
			_, err = taken.Tell(t.Context(), operate.ReplayNews{Over: true})
		}
		require.NoError(t, err)
		found, err = inbox.Replay(t.Context(), begun.Consumer, "orders")
		require.NoError(t, err)
		require.Zero(t, found.Left())
	}
	positions, err := inbox.AllPositions(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, positions, 2)
	for _, p := range positions {
		require.True(t, p.Replay)
		require.False(t, p.Counts())
	}
	_, err = s.db.Pool.Exec(t.Context(), `update firstseen.jobs set finished_at = now() - interval '31 days'`)
	require.NoError(t, err)
	n, err := inbox.SweepJobs(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for _, table := range []string{"jobs", "job_replays", "replays", "positions"} {
		require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select count(*) from firstseen.`+table).Scan(&n))
		require.Zero(t, n, table)
	}
}

// A command's replay has the topic's name, and says nothing of what is planned.
func TestReplayIsPlannedThoughACommandHasReplayedTheTopic(t *testing.T) {
	l := newLibrary(t)
	reader, err := l.replayReader(&operate.ReplayAsk{}, 8<<20)
	require.NoError(t, err)
	defer reader.Close()
	p := l.Service.parts.Load()
	topic, _ := p.Consumer.Topic("orders")
	_, err = reader.Replay(t.Context(), p.Processor, replay.Config{Topic: topic, Group: "billing", Handler: "book"})
	require.NoError(t, err)
	plan, err := l.PlanReplay(t.Context(), operate.ReplayAsk{Topic: "orders", From: "earliest", To: "latest"})
	require.NoError(t, err)
	require.False(t, plan.Resumed)
	require.Equal(t, []int{replayed, replayed}, []int{plan.New, plan.Duplicates}, "for totals, and for book")
}

// What is in a topic that was made anew is the group's to read first, in its order.
func TestReplayDoesNotReadATopicThatWasMadeAnew(t *testing.T) {
	l := newLibrary(t)
	_, err := l.db.Pool.Exec(t.Context(), `update firstseen.positions set topic_id = gen_random_uuid() where consumer = 'billing'`)
	require.NoError(t, err)
	ask := operate.ReplayAsk{Topic: "orders", Handler: "totals", From: "earliest", To: "latest"}
	_, err = l.PlanReplay(t.Context(), ask)
	require.ErrorContains(t, err, "deleted and created again")
	made, _, err := l.Inbox().CreateReplay(t.Context(), operate.NewReplay{ID: uuid.New(), Group: "billing", ReplayAsk: ask,
		Offsets: replayed}, ann)
	require.NoError(t, err)
	require.Contains(t, l.comesTo(made.ID, in(operate.JobPaused)).Error, "deleted and created again")
	require.Zero(t, l.count(`select count(*) from effects where handler = 'totals'`))
}

// Whoever had it before, and is late, takes its positions for a moment.
func TestReplayGoesOnWhereSomebodyHasTakenItsPositions(t *testing.T) {
	l := newLibrary(t)
	made := l.create(operate.ReplayAsk{Topic: "orders", Handler: "totals", From: "earliest", To: "latest", Rate: 60})
	j := l.comesTo(made.ID, func(j *operate.Job) bool { return j.Done > 0 })
	for partition := range int32(2) {
		_, err := l.store.Acquire(t.Context(), j.Replay.Consumer, "orders", partition, "somebody else")
		require.NoError(t, err)
	}
	require.Equal(t, operate.JobDone, l.comesTo(made.ID, func(j *operate.Job) bool {
		require.NotEqual(t, operate.JobPaused, j.State, j.Error)
		return j.State == operate.JobDone
	}).State)
	done := l.comesTo(made.ID, in(operate.JobDone)).Replay.Counts
	require.EqualValues(t, replayed, done.New+done.Parked, "what follows on an owner that is gone is set apart")
	require.EqualValues(t, done.New, l.count(`select count(distinct id) from effects where handler = 'totals'`))
	require.Equal(t, replayed+int(done.New), l.count(`select count(*) from effects`))
	require.NotContains(t, l.log.String(), "level=ERROR")
}

func TestReplayStopsWhereMessagesAreGoneAndSaysSo(t *testing.T) {
	l := newLibrary(t)
	consumertest.DeleteBefore(t, l.addr, "orders", 0, 5)
	ask := operate.ReplayAsk{Topic: "orders", Handler: "totals", From: "0", To: "latest"}
	_, err := l.PlanReplay(t.Context(), ask)
	require.ErrorContains(t, err, "are not in Kafka any more")
	made, _, err := l.Inbox().CreateReplay(t.Context(), operate.NewReplay{ID: uuid.New(), Group: "billing", ReplayAsk: ask,
		Offsets: replayed}, ann)
	require.NoError(t, err)
	rests := l.comesTo(made.ID, in(operate.JobPaused))
	require.Contains(t, rests.Error, "are not in Kafka any more")
	require.Equal(t, 1, l.count(`select count(*) from firstseen.audit where action = 'pause' and why like '%not in Kafka%'`))
	require.Contains(t, l.log.String(), "a replay stops until it is resumed")

	ask.SkipLost = true
	plan, err := l.PlanReplay(t.Context(), ask)
	require.NoError(t, err)
	require.EqualValues(t, replayed-5, plan.Total())
	j := l.comesTo(l.create(ask).ID, in(operate.JobDone))
	require.EqualValues(t, replayed-5, j.Replay.Counts.New)
}

// What is read beside the consumer is within what all messages may take.
func TestReplayTakesItsTurnForMemory(t *testing.T) {
	l := newLibrary(t)
	account := memory.New(8 << 20)
	parts := l.Service.parts.Load().Parts
	parts.Memory = account
	l.Attach(parts)
	require.True(t, account.Try(account.Limit()))
	made, _, err := l.Inbox().CreateReplay(t.Context(), operate.NewReplay{ID: uuid.New(), Group: "billing", ReplayAsk: operate.ReplayAsk{
		Topic: "orders", Handler: "totals", From: "earliest", To: "latest"}, Offsets: replayed}, ann)
	require.NoError(t, err)
	held := parts.Processor.Holds()
	require.Eventually(t, func() bool { return len(held.List()) == 1 }, waitFor, 10*time.Millisecond)
	require.Contains(t, held.List()[0].Reason, "memory")
	require.Contains(t, l.said.String(), "all memory for messages is in use")
	account.Give(account.Limit())
	l.comesTo(made.ID, in(operate.JobDone))
	require.Empty(t, held.List())
	require.Eventually(t, func() bool { return account.Used() == 0 }, waitFor, 10*time.Millisecond)
}
