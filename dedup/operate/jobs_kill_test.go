package operate_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/operate"
)

// childDSN is the environment variable that makes the test binary a process that works on jobs, to be killed.
const childDSN = "FIRSTSEEN_TEST_JOBS"

func runChild(dsn string) int {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err == nil {
		var inbox *operate.Inbox
		if inbox, err = operate.Open(ctx, pool, dedup.Config{Inbox: "test"}); err == nil {
			for has := true; has && err == nil; {
				if err = inbox.WorkJobs(ctx, fmt.Sprint("child ", os.Getpid())); err == nil {
					has, err = inbox.HasJobs(ctx)
				}
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

// waiting counts the sessions that are at the gate, or hold a job.
func (d desk) waiting() int {
	return d.count(`select count(*) from pg_stat_activity where datname = current_database() and query like '%work_job%'
		and pid <> pg_backend_pid() and state <> 'idle'`)
}

// A process is killed in the midst of a job, again and again, and others go on: each letter is changed once and counted once.
func TestJobWhoseProcessesAreKilledIsFinishedByOthersExactly(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const letters, partitions = 1200, 40
	d.bury(letters, 0, partitions, "permanent")
	d.exec(`create table gate as select 0 as at`)
	d.exec(`create function firstseen.wait_at_gate() returns trigger language plpgsql as $$
		begin
			while old."partition" >= (select at from public.gate) loop perform pg_sleep(0.01); end loop;
			return old;
		end $$`)
	d.exec(`create trigger gate before delete on firstseen.dead_letters for each row execute function firstseen.wait_at_gate()`)
	j := d.create(operate.NewJob{Kind: operate.JobDiscard})
	d.bury(50, 5000, partitions, "permanent")
	kills := deduptest.Kills(t, 3)
	for i := range kills {
		at := (i + 1) * partitions / (kills + 1)
		done := int64(letters / partitions * at)
		d.exec(`update gate set at = $1`, at)
		require.Eventually(t, func() bool { return d.waiting() == 0 }, 3*time.Minute, 5*time.Millisecond, "its statement ends after it")
		c, err := child.Start(child.Spec{Path: os.Args[0], Env: []string{childDSN + "=" + d.dsn},
			LogFile: t.TempDir() + "/child.log"})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return d.job(j.ID).Done == done && d.waiting() > 0 }, 3*time.Minute, 5*time.Millisecond)
		c.Stop(syscall.SIGKILL, time.Minute)
		require.Equal(t, done, d.job(j.ID).Done, "what was committed")
	}
	d.exec(`update gate set at = $1`, partitions)
	require.Eventually(t, func() bool { d.work(); return d.job(j.ID).State == operate.JobDone }, 3*time.Minute, 10*time.Millisecond)
	j = d.job(j.ID)
	require.Equal(t, []int64{letters, 0, 0}, []int64{j.Done, j.Skipped, j.Failed})
	require.Equal(t, "host-1", j.Worker)
	require.Equal(t, 50, d.left(), "those that came later")
	require.Equal(t, letters, d.count(`select count(distinct message_id) from firstseen.audit where message_id is not null`))
	require.Equal(t, letters, d.count(`select count(*) from firstseen.audit where message_id is not null`))
}
