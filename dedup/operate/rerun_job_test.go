package operate_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// ofPartition is a rerun of what a handler has had of partition 0.
func ofPartition(handler string) operate.RerunFilter {
	return operate.RerunFilter{Filter: operate.Filter{Handler: handler, Topic: "orders"}, Places: &operate.PlaceRange{}}
}

func (w *ward) plan(f operate.RerunFilter) operate.RerunPlan {
	w.t.Helper()
	p, err := w.inbox.PlanRerun(w.t.Context(), f)
	require.NoError(w.t, err)
	return p
}

func (w *ward) createRerun(f operate.RerunFilter) *operate.Job {
	w.t.Helper()
	j, created, err := w.inbox.CreateRerun(w.t.Context(), operate.NewRerun{ID: uuid.New(), Filter: f}, by)
	require.NoError(w.t, err)
	require.True(w.t, created)
	return j
}

func (w *ward) job(id uuid.UUID) *operate.Job {
	w.t.Helper()
	j, err := w.inbox.Job(w.t.Context(), id)
	require.NoError(w.t, err)
	require.NotNil(w.t, j)
	return j
}

func (w *ward) work() {
	w.t.Helper()
	require.NoError(w.t, w.inbox.WorkJobs(w.t.Context(), "host-1"))
}

// atGate says whether a part of a job waits at the test's gate.
func (w *ward) atGate() bool {
	return w.count(`select count(*) from pg_stat_activity where datname = current_database() and query like '%work_job%'
		and pid <> pg_backend_pid() and wait_event = 'PgSleep'`) > 0
}

// fill has n messages of one key processed, in batches.
func (w *ward) fill(p *handlers.Processor, n int) (ms []dedup.Message) {
	w.t.Helper()
	for i := range n {
		ms = append(ms, message(int64(i), "k"))
	}
	for some := range slices.Chunk(ms, 500) {
		w.processWith(p, some...)
	}
	return ms
}

// A rerun is planned, pressed by many at once, and done by whoever runs: once, in the order of the key, also over several
// parts, and by the handler that was asked for alone.
func TestRerunByAJobIsOfWhatWasPlannedAndOnce(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	p := w.newProcessor("book", "ship")
	const n = 1100
	w.fill(p, n)
	plan := w.plan(ofPartition("book"))
	require.Equal(t, n, plan.Messages)
	require.EqualValues(t, 0, plan.First[0].Offset)
	asked := operate.NewRerun{ID: uuid.New(), Filter: plan.Filter, Set: plan.Set}
	stop := w.runLanes(p)
	defer stop()
	var created [6]bool
	var pressed sync.WaitGroup
	for i := range created {
		pressed.Go(func() {
			j, made, err := w.inbox.CreateRerun(context.Background(), asked, by)
			if created[i] = made; err != nil || j.ID != asked.ID {
				t.Error(j, err)
			}
			if err := w.inbox.WorkJobs(context.Background(), "host-1"); err != nil {
				t.Error(err)
			}
		})
	}
	pressed.Wait()
	require.Equal(t, 1, strings.Count(fmt.Sprint(created), "true"))
	require.Eventually(t, func() bool { w.work(); return w.job(asked.ID).State == operate.JobDone }, 3*time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool { return w.count(`select count(*) from firstseen.parked`) == 0 }, 3*time.Minute, 10*time.Millisecond)
	j := w.job(asked.ID)
	require.Equal(t, []int64{n, 0, 0}, []int64{j.Done, j.Skipped, j.Failed})
	require.Equal(t, n, j.Expected)
	effects := w.effects("book")
	require.Len(t, effects, 2*n)
	require.True(t, slices.IsSorted(effects[n:]), "in the order of its key")
	require.Len(t, w.effects("ship"), n)
	require.Zero(t, w.count(`select count(*) from firstseen.job_messages`))
	require.Equal(t, n, w.count(`select count(*) from firstseen.audit where action = 'rerun' and message_id is not null
		and actor = $1 and why = $2`, by.Actor, by.Why+" (job "+asked.ID.String()+")"))
	require.Equal(t, 2, w.count(`select count(*) from firstseen.audit where subject like 'job '||$1||'%'`, asked.ID.String()))

	_, again, err := w.inbox.CreateRerun(t.Context(), asked, by)
	require.NoError(t, err)
	require.False(t, again)
	var differs *operate.JobDiffersError
	asked.Filter = ofPartition("ship")
	_, _, err = w.inbox.CreateRerun(t.Context(), asked, by)
	require.ErrorAs(t, err, &differs)
}

func TestRerunOfOtherMessagesThanWereCountedIsNotMade(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	ms := w.fill(w.processor, 3)
	plan := w.plan(ofPartition("book"))
	w.rerun(ofBook(ms[1].ID))
	var other *operate.SetError
	_, _, err := w.inbox.CreateRerun(t.Context(), operate.NewRerun{ID: uuid.New(), Filter: plan.Filter, Set: plan.Set}, by)
	require.ErrorAs(t, err, &other)
	require.Equal(t, 2, other.Messages)
	require.Zero(t, w.count(`select count(*) from firstseen.jobs`))
	w.settle()
	w.process(message(3, "k"))
	again := w.plan(plan.Filter)
	require.Equal(t, 3, again.Messages, "what is received later is none of it")
	require.Equal(t, plan.Set, again.Set)

	wide := w.plan(ofBook(ms[0].ID, uuid.New()))
	require.Equal(t, 1, wide.Messages)
	require.Equal(t, "unseen", wide.Missing[0].Why)
	for _, wrong := range []operate.RerunFilter{{}, {Filter: operate.Filter{Handler: "nobody"}}} {
		_, err = w.inbox.PlanRerun(t.Context(), wrong)
		require.Error(t, err)
	}
}

// A job that is paused stands where it is, whoever looks; resumed it goes on there, and cancelled it ends there.
func TestPausedJobStandsAndGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.fill(w.processor, 1200)
	j := w.createRerun(ofPartition("book"))
	w.exec(`create table gate as select 500 as at`)
	w.exec(`create function wait_at_gate() returns trigger language plpgsql as $$
		begin
			while new."offset" >= (select at from public.gate) loop perform pg_sleep(0.01); end loop;
			return new;
		end $$`)
	w.exec(`create trigger gate before insert on firstseen.parked for each row execute function wait_at_gate()`)
	working := make(chan error, 1)
	go func() { working <- w.inbox.WorkJobs(context.Background(), "host-1") }()
	require.Eventually(t, func() bool { return w.job(j.ID).Done == 500 && w.atGate() }, 3*time.Minute, 5*time.Millisecond)
	pausing := make(chan error, 1)
	go func() {
		_, changed, err := w.inbox.PauseJob(context.Background(), j.ID, by)
		if err == nil && !changed {
			err = fmt.Errorf("it was paused before")
		}
		pausing <- err
	}()
	require.Eventually(t, func() bool {
		return w.count(`select count(*) from pg_stat_activity where datname = current_database() and query like '%pause_job%'
			and wait_event_type = 'Lock'`) == 1
	}, 3*time.Minute, 5*time.Millisecond, "it waits for the part that is under way")
	w.exec(`update gate set at = 1000`)
	require.NoError(t, <-pausing)
	w.exec(`update gate set at = 100000`)
	require.NoError(t, <-working)
	has, err := w.inbox.HasJobs(t.Context())
	require.NoError(t, err)
	require.False(t, has, "nobody is to look at it")
	w.work()
	stands := w.job(j.ID)
	require.Equal(t, operate.JobPaused, stands.State)
	require.EqualValues(t, 1000, stands.Done)

	_, changed, err := w.inbox.ResumeJob(t.Context(), j.ID, by)
	require.NoError(t, err)
	require.True(t, changed)
	w.work()
	require.Equal(t, operate.JobDone, w.job(j.ID).State)
	require.EqualValues(t, 1200, w.job(j.ID).Done)
	_, changed, err = w.inbox.PauseJob(t.Context(), j.ID, by)
	require.NoError(t, err)
	require.False(t, changed, "it is over")
	require.Equal(t, 1, w.count(`select count(*) from firstseen.audit where action = 'resume' and subject like 'job % with 1000 done'`))
}

func TestRerunThatIsCancelledEndsWhereItIs(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.fill(w.processor, 3)
	j := w.createRerun(ofPartition("book"))
	_, _, err := w.inbox.PauseJob(t.Context(), j.ID, by)
	require.NoError(t, err)
	j, changed, err := w.inbox.CancelJob(t.Context(), j.ID, by)
	require.NoError(t, err)
	require.True(t, changed, "paused, too")
	require.Equal(t, operate.JobCancelled, j.State)
	w.work()
	require.Equal(t, []int64{0, 1, 2}, w.effects("book"))
	require.Zero(t, w.count(`select count(*) from firstseen.job_messages`))
	require.Equal(t, 3, w.count(`select count(*) from firstseen.inbox`))
	_, changed, err = w.inbox.ResumeJob(t.Context(), j.ID, by)
	require.NoError(t, err)
	require.False(t, changed)
}

// A process is killed in the midst of a rerun, again and again, and others go on: each message is handled again once.
func TestRerunWhoseProcessesAreKilledIsFinishedByOthersExactly(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	const each, partitions = 10, 12
	for partition := range int32(partitions) {
		var ms []dedup.Message
		for i := range int64(each) {
			m := message(i, "k")
			m.Partition = partition
			ms = append(ms, m)
		}
		w.process(ms...)
	}
	j := w.createRerun(operate.RerunFilter{Filter: operate.Filter{Handler: "book"}})
	require.Equal(t, each*partitions, j.Expected)
	w.exec(`create table gate as select 0 as at`)
	w.exec(`create function wait_at_gate() returns trigger language plpgsql as $$
		begin
			while new."partition" >= (select at from public.gate) loop perform pg_sleep(0.01); end loop;
			return new;
		end $$`)
	w.exec(`create trigger gate before insert on firstseen.parked for each row execute function wait_at_gate()`)
	kills := deduptest.Kills(t, 3)
	for i := range kills {
		at := (i + 1) * partitions / (kills + 1)
		w.exec(`update gate set at = $1`, at)
		require.Eventually(t, func() bool { return !w.atGate() }, 3*time.Minute, 5*time.Millisecond, "its statement ends after it")
		c, err := child.Start(child.Spec{Path: os.Args[0], Env: []string{childDSN + "=" + w.dsn}, LogFile: t.TempDir() + "/child.log"})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return w.job(j.ID).Done == int64(each*at) && w.atGate() }, 3*time.Minute, 5*time.Millisecond)
		c.Stop(syscall.SIGKILL, time.Minute)
	}
	w.exec(`update gate set at = $1`, partitions)
	require.Eventually(t, func() bool { w.work(); return w.job(j.ID).State == operate.JobDone }, 3*time.Minute, 10*time.Millisecond)
	j = w.job(j.ID)
	require.Equal(t, []int64{each * partitions, 0, 0}, []int64{j.Done, j.Skipped, j.Failed})
	w.settle()
	require.Equal(t, each*partitions, w.count(`select count(*) from (select 1 from effects group by message_id having count(*) = 2) e`))
	require.Equal(t, each*partitions, w.count(`select count(*) from firstseen.audit where message_id is not null`))
}
