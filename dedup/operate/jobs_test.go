package operate_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/operate"
)

// desk is an inbox with dead letters that no handler has anything to do with.
type desk struct{ *stage }

func newDesk(t *testing.T) desk { return desk{newStage(t)} }

// bury has n letters of handler h, from an offset on, by turns in as many partitions.
func (d desk) bury(n, from, partitions int, reason string) {
	d.t.Helper()
	d.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", produced_at, reason, error, key)
		select $1, gen_random_uuid(), 'orders', o % $4, o, now(), $5, 'no account ' || o, 'k'
		from generate_series($3::int, $3::int + $2::int - 1) o`, d.scope, n, from, partitions, reason)
}

func (d desk) create(n operate.NewJob) *operate.Job {
	d.t.Helper()
	if n.ID == uuid.Nil {
		n.ID = uuid.New()
	}
	if n.Kind == "" {
		n.Kind = operate.JobRedrive
	}
	j, created, err := d.inbox.CreateJob(d.t.Context(), n, by)
	require.NoError(d.t, err)
	require.True(d.t, created)
	return j
}

func (d desk) preview(kind operate.JobKind, f operate.Filter) operate.JobPreview {
	d.t.Helper()
	p, err := d.inbox.PreviewJob(d.t.Context(), kind, f, "")
	require.NoError(d.t, err)
	return p
}

func (d desk) work() {
	d.t.Helper()
	require.NoError(d.t, d.inbox.WorkJobs(d.t.Context(), "host-1"))
}

func (d desk) job(id uuid.UUID) *operate.Job {
	d.t.Helper()
	j, err := d.inbox.Job(d.t.Context(), id)
	require.NoError(d.t, err)
	require.NotNil(d.t, j)
	return j
}

func (d desk) left() int { return d.count(`select count(*) from firstseen.dead_letters`) }

func TestJobPressedTwiceIsOneJob(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(3, 0, 1, "permanent")
	n := operate.NewJob{ID: uuid.New(), Kind: operate.JobDiscard, Filter: operate.Filter{Handler: "h"}}
	var created [8]bool
	var pressed sync.WaitGroup
	for i := range created {
		pressed.Go(func() {
			j, new, err := d.inbox.CreateJob(context.Background(), n, by)
			if created[i] = new; err != nil || j.ID != n.ID {
				t.Error(j, err)
			}
		})
	}
	pressed.Wait()
	require.Equal(t, 1, strings.Count(fmt.Sprint(created), "true"))
	d.work()
	d.bury(3, 10, 1, "permanent")
	j, again, err := d.inbox.CreateJob(t.Context(), n, by)
	require.NoError(t, err)
	require.False(t, again)
	require.Equal(t, operate.JobDone, j.State)
	d.work()
	require.Equal(t, 3, d.left(), "those that came later")
	require.Equal(t, 3, d.count(`select count(*) from firstseen.audit where action = 'discard' and message_id is not null
		and actor = 'shift' and why = 'it is mended (job `+n.ID.String()+`)'`))
	require.Equal(t, 2, d.count(`select count(*) from firstseen.audit where inbox = 'test' and subject like 'job `+n.ID.String()+`%'`))

	var differs *operate.JobDiffersError
	n.Kind = operate.JobRedrive
	_, _, err = d.inbox.CreateJob(t.Context(), n, by)
	require.ErrorAs(t, err, &differs)
}

// The set is what a preview saw: not what came later, also where its transaction began before, and not what was given
// back and died again.
func TestJobIsOfWhatItsMomentSawAndOfNothingElse(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(2, 0, 1, "permanent")
	slow, err := d.admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = slow.Exec(t.Context(), `insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason)
		values ($1, gen_random_uuid(), 'orders', 0, 50, 'permanent')`, d.scope)
	require.NoError(t, err)
	p := d.preview(operate.JobDiscard, operate.Filter{})
	require.Equal(t, 2, p.Messages)
	require.False(t, p.More)
	require.NoError(t, slow.Commit(t.Context()))
	d.exec(`with again as (delete from firstseen.dead_letters where "offset" = 1 returning *)
		insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason)
		select scope_id, message_id, topic, "partition", "offset", reason from again`)
	d.bury(5, 100, 1, "permanent")

	d.exec(`update firstseen.dead_letters set published_at = now() where "offset" = 0`) // by the program: no change of the letter
	j := d.create(operate.NewJob{Kind: operate.JobDiscard, Moment: p.Moment})
	require.Equal(t, 1, j.Expected, "one is gone meanwhile")
	d.work()
	j = d.job(j.ID)
	require.Equal(t, []any{operate.JobDone, int64(1), int64(0), int64(0)}, []any{j.State, j.Done, j.Skipped, j.Failed})
	require.Equal(t, 7, d.left())
	require.Zero(t, d.count(`select count(*) from firstseen.dead_letters where "offset" = 0`))
}

func TestLettersFromBeforeTheUpgradeAndOfARestoreAreThere(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(4, 0, 1, "permanent")
	d.exec(`update firstseen.dead_letters set buried_by = null where "offset" = 0`)
	d.exec(`update firstseen.dead_letters set buried_by = '9000000000' where "offset" = 1`) // another server's
	p := d.preview(operate.JobDiscard, operate.Filter{})
	require.Equal(t, 4, p.Messages)
	d.create(operate.NewJob{Kind: operate.JobDiscard, Moment: p.Moment})
	d.work()
	require.Zero(t, d.left())
}

// By its transactions' numbers all that dies on the new server would be older than the moment.
func TestJobThatARestoreHasBroughtIsNotOfWhatDiesOnTheNewServer(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(2, 0, 1, "permanent")
	d.exec(`update firstseen.dead_letters set died_at = now() - interval '1 hour', buried_by = '9000000000'`)
	j := d.create(operate.NewJob{Kind: operate.JobDiscard})
	d.exec(`update firstseen.jobs set moment = '9000000010:9000000010:', fixed_at = now() - interval '50 minutes'`)
	d.bury(5, 10, 1, "permanent")
	d.work()
	require.EqualValues(t, 2, d.job(j.ID).Done)
	require.Equal(t, 5, d.left())
}

func TestMomentThatNoPreviewGaveIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, moment := range []operate.Moment{"yesterday", "1.2:3", "1.20:10:", "1.1:90000000000:"} {
		var wrong *operate.MomentError
		_, _, err := d.inbox.CreateJob(t.Context(), operate.NewJob{ID: uuid.New(), Kind: operate.JobDiscard, Moment: moment}, by)
		require.ErrorAs(t, err, &wrong, moment)
	}
	_, _, err := d.inbox.CreateJob(t.Context(), operate.NewJob{}, operate.By{})
	require.ErrorContains(t, err, "id: say which")
	require.ErrorContains(t, err, "neither redrive nor discard")
	require.ErrorContains(t, err, "actor: say who does it")
}

// A filter picks the same letters whether they are counted, listed or worked on.
func TestJobsFilterAsListsAndCountsDo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	scopes := d.scopes(dedup.ScopeKey{Handler: "h", Tenant: "blue"}, dedup.ScopeKey{Handler: "ship"})
	other, err := dedup.Open(t.Context(), d.pool, dedup.Config{Inbox: "other"})
	require.NoError(t, err)
	strange, err := other.Scopes(t.Context(), []dedup.ScopeKey{{Handler: "h"}})
	require.NoError(t, err)
	fill := func() {
		d.exec(`delete from firstseen.dead_letters`)
		d.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason, key, died_at)
			select s, case n when 1 then '00000000-0000-4000-8000-000000000001'::uuid else gen_random_uuid() end,
				case when n % 2 = 0 then 'orders' else 'mail' end, nullif(n % 3, 0), nullif(n, 5), case when n < 4 then 'permanent' else 'killed' end,
				(array['', null, 'k'])[n % 3 + 1]::bytea, '2026-03-01'::timestamptz + n * interval '1 h'
			from unnest($1::int[]) s, generate_series(1, 8) n`, append(append(scopes, d.scope), strange.IDs...))
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for name, f := range map[string]operate.Filter{
		"all": {}, "topic": {Topic: "mail"}, "handler": {Handler: "ship"}, "tenant": {Tenant: "blue"},
		"reason": {Reason: "killed"}, "key": {Key: []byte("k")}, "empty key": {Key: []byte{}},
		"from": {From: at.Add(3 * time.Hour)}, "to": {To: at.Add(3 * time.Hour)},
		"ids":              {IDs: []uuid.UUID{uuid.MustParse("00000000-0000-4000-8000-000000000001"), uuid.New()}},
		"an id of another": {IDs: []uuid.UUID{uuid.New()}},
		"some":             {Handler: "h", Topic: "orders", Reason: "killed", From: at.Add(time.Hour), To: at.Add(7 * time.Hour)},
	} {
		fill()
		listed, _, err := d.inbox.Messages(t.Context(), operate.Listing{Status: operate.StatusDead, Filter: f, Limit: 100})
		require.NoError(t, err, name)
		require.Equal(t, len(listed), d.preview(operate.JobDiscard, f).Messages, name)
		if name != "an id of another" {
			require.NotEmpty(t, listed, name)
		}
		was := d.left()
		j := d.create(operate.NewJob{Kind: operate.JobDiscard, Filter: f})
		d.work()
		done := d.job(j.ID)
		done.Filter.From, done.Filter.To = done.Filter.From.UTC(), done.Filter.To.UTC()
		require.Equal(t, f, done.Filter, name)
		require.EqualValues(t, len(listed), done.Done, name)
		require.Equal(t, was-len(listed), d.left(), name)
		left, _, err := d.inbox.Messages(t.Context(), operate.Listing{Status: operate.StatusDead, Filter: f, Limit: 100})
		require.NoError(t, err)
		require.Empty(t, left, name)
	}
}

func TestRedriveOfAJobKeepsTheOrderOfOffsetsAndLeavesLettersWithoutID(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	first, second := message(0, "k"), message(1, "k")
	w.kill(first, second)
	w.exec(`update firstseen.dead_letters set died_at = now() - interval '1 day' where "offset" = 1`)
	w.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason)
		select scope_id, gen_random_uuid(), 'orders', 0, 2, 'missing_id' from firstseen.scopes limit 1`)
	w.handler.mend()
	p, err := w.inbox.PreviewJob(t.Context(), operate.JobRedrive, operate.Filter{}, "")
	require.NoError(t, err)
	require.Equal(t, []int{2, 1}, []int{p.Messages, p.WithoutID})
	j, _, err := w.inbox.CreateJob(t.Context(), operate.NewJob{ID: uuid.New(), Kind: operate.JobRedrive, Moment: p.Moment}, by)
	require.NoError(t, err)
	require.NoError(t, w.inbox.WorkJobs(t.Context(), "host-1"))
	w.settle()
	require.Equal(t, 1, w.count(`select count(*) from effects e join effects f on f."offset" = 1 and f.seq > e.seq where e."offset" = 0`))
	j, err = w.inbox.Job(t.Context(), j.ID)
	require.NoError(t, err)
	require.Equal(t, []any{operate.JobDone, int64(2), int64(1), 3, "host-1"}, []any{j.State, j.Done, j.Skipped, j.Expected, j.Worker})
	require.Len(t, w.dead(operate.Filter{}), 1)
}

func TestCancelledJobStopsBetweenPartsAndStaysSo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(1200, 0, 1, "permanent")
	j := d.create(operate.NewJob{Kind: operate.JobDiscard})
	ctx, cancel := context.WithCancel(t.Context())
	working := make(chan error)
	go func() { working <- d.inbox.WorkJobs(ctx, "host-1") }()
	require.Eventually(t, func() bool { return d.job(j.ID).Done > 0 }, 3*time.Minute, time.Millisecond)
	got, changed, err := d.inbox.CancelJob(t.Context(), j.ID, by)
	require.NoError(t, err)
	cancel()
	<-working
	if changed { // else it was through before
		require.Equal(t, operate.JobCancelled, got.State)
		require.EqualValues(t, 1200, int(got.Done)+d.left())
		d.work()
		require.Equal(t, got, d.job(j.ID))
	}
	_, changed, err = d.inbox.CancelJob(t.Context(), j.ID, by)
	require.NoError(t, err)
	require.False(t, changed)
	none, changed, err := d.inbox.CancelJob(t.Context(), uuid.New(), by)
	require.NoError(t, err)
	require.Nil(t, none)
	require.False(t, changed)
}

// Who is at a job has it to himself; others work on other jobs meanwhile, and none waits for another.
func TestJobThatAnotherProcessIsAtIsPassedOver(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(2, 0, 1, "permanent")
	d.bury(3, 10, 1, "killed")
	one := d.create(operate.NewJob{Kind: operate.JobDiscard, Filter: operate.Filter{Reason: "permanent"}})
	two := d.create(operate.NewJob{Kind: operate.JobDiscard, Filter: operate.Filter{Reason: "killed"}})
	other, err := d.admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), `select firstseen.work_job($1::text::uuid, 'host-2', 100, 100, null)`, one.ID.String())
	require.NoError(t, err)
	d.work()
	require.Equal(t, operate.JobDone, d.job(two.ID).State)
	require.Equal(t, operate.JobQueued, d.job(one.ID).State)
	require.NoError(t, other.Rollback(t.Context()), "as when its process is killed")
	d.work()
	require.Equal(t, operate.JobDone, d.job(one.ID).State)
	require.Zero(t, d.left())
}

// A batch that is open on a partition holds up no other job, and whoever cancels no longer than it is waited for.
func TestJobThatWaitsForAnOpenBatchHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.position(0)
	d.bury(2, 0, 1, "permanent")
	d.bury(3, 1, 2, "killed")
	d.exec(`update firstseen.dead_letters set "partition" = 1 where reason = 'killed'`)
	first := d.create(operate.NewJob{Filter: operate.Filter{Reason: "permanent"}})
	other := d.create(operate.NewJob{Filter: operate.Filter{Reason: "killed"}})
	batch, err := d.admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = batch.Exec(t.Context(), `update firstseen.positions set next_offset = 7`)
	require.NoError(t, err)
	err = d.inbox.WorkJobs(t.Context(), "host-1")
	require.Equal(t, failure.Locked, failure.Of(err), "%v", err)
	require.ErrorContains(t, err, first.ID.String())
	require.Equal(t, operate.JobDone, d.job(other.ID).State)
	require.Equal(t, operate.JobQueued, d.job(first.ID).State)
	require.NoError(t, batch.Rollback(t.Context()))
	d.work()
	require.EqualValues(t, 2, d.job(first.ID).Done)
}

func TestManyProcessesAtOneJobChangeEachLetterOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(900, 0, 30, "permanent")
	j := d.create(operate.NewJob{})
	var group errgroup.Group
	for range 4 {
		group.Go(func() error { return d.inbox.WorkJobs(t.Context(), "one of them") })
	}
	require.NoError(t, group.Wait())
	d.work()
	require.EqualValues(t, 900, d.job(j.ID).Done)
	require.Equal(t, 900, d.count(`select count(*) from firstseen.parked`))
	require.Equal(t, 900, d.count(`select count(*) from firstseen.audit where message_id is not null`))
}

// One letter that can't be changed is found, counted and left; the others are done.
func TestLetterThatFailsIsLeftAndTheOthersAreDone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(70, 0, 3, "permanent")
	d.exec(`create function firstseen.refuse() returns trigger language plpgsql as $$
		begin if old."offset" = 31 then raise 'not this one'; end if; return old; end $$`)
	d.exec(`create trigger refuse before delete on firstseen.dead_letters for each row execute function firstseen.refuse()`)
	j := d.create(operate.NewJob{Kind: operate.JobDiscard})
	d.work()
	j = d.job(j.ID)
	require.Equal(t, []any{operate.JobDone, int64(69), int64(0), int64(1)}, []any{j.State, j.Done, j.Skipped, j.Failed})
	require.Contains(t, j.Error, "not this one")
	require.Equal(t, 1, d.count(`select count(*) from firstseen.dead_letters where "offset" = 31`))
}

func TestJobsOfOneInboxAreListedInPagesTheLastFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var want []uuid.UUID
	for range 5 {
		want = append([]uuid.UUID{d.create(operate.NewJob{}).ID}, want...)
	}
	_, _, err := d.inbox.Outbox().CreateJob(t.Context(), operate.NewJob{ID: uuid.New(), Kind: operate.JobDiscard}, by)
	require.NoError(t, err)
	var got []uuid.UUID
	for after := operate.Cursor(""); ; {
		jobs, next, err := d.inbox.Jobs(t.Context(), after, 2)
		require.NoError(t, err)
		for _, j := range jobs {
			got = append(got, j.ID)
		}
		if after = next; next == "" {
			break
		}
	}
	require.Equal(t, want, got)
	var wrong *operate.CursorError
	for _, after := range []operate.Cursor{"j1", "j1.x", "x1." + operate.Cursor(want[0].String())} {
		_, _, err = d.inbox.Jobs(t.Context(), after, 2)
		require.ErrorAs(t, err, &wrong)
	}
}

func TestOldJobsAreForgottenAndNewOnesAndOpenOnesAreNot(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	old, open, recent := d.create(operate.NewJob{}), d.create(operate.NewJob{}), d.create(operate.NewJob{})
	d.exec(`update firstseen.jobs set created_at = now() - interval '100 days', finished_at = case job_id
		when $1::text::uuid then now() - interval '31 days' when $2::text::uuid then now() - interval '29 days' end`,
		old.ID.String(), recent.ID.String())
	n, err := d.inbox.SweepJobs(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NotNil(t, d.job(open.ID))
	require.NotNil(t, d.job(recent.ID))
}

// Counting stops where it has counted enough, and looking where it has looked at enough.
func TestPreviewAndPartsOfJobsReadNoMoreThanTheyAreToldTo(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	var plans strings.Builder
	d := desk{stageOn(t, db, deduptest.Explained(t, db.DSN, &plans))}
	d.bury(operate.PreviewLooks+20_000, 0, 7, "permanent")
	d.exec(`update firstseen.dead_letters set reason = 'killed' where "offset" < 3`)
	d.exec(`analyze firstseen.dead_letters`)
	plans.Reset()
	p := d.preview(operate.JobRedrive, operate.Filter{Handler: "h"})
	require.Equal(t, []any{operate.PreviewCap, true}, []any{p.Messages, p.More})
	p = d.preview(operate.JobRedrive, operate.Filter{Reason: "killed"})
	require.True(t, p.More, "there may be some among those that were not looked at")
	require.NotRegexp(t, `(Seq|Heap) Scan on dead_letters|Sort`, plans.String())
	ids := d.preview(operate.JobRedrive, operate.Filter{IDs: []uuid.UUID{uuid.New()}})
	require.False(t, ids.More)
	require.Contains(t, plans.String(), "dead_letters_message")

	d.create(operate.NewJob{Kind: operate.JobDiscard, Filter: operate.Filter{Reason: "killed"}})
	plans.Reset()
	d.work()
	require.Regexp(t, `Index Scan using dead_letters_place on dead_letters.*\n.*Index Cond: \(ROW\(`, plans.String())
	require.NotRegexp(t, `(Seq|Heap) Scan on dead_letters`, plans.String())
	require.Equal(t, operate.PreviewLooks+20_000-3, d.left())
	plans.Reset()
	d.create(operate.NewJob{Kind: operate.JobDiscard, Filter: operate.Filter{IDs: []uuid.UUID{uuid.New()}}})
	d.work()
	require.Contains(t, plans.String(), "dead_letters_message")
}

func TestLettersThatStayArePassedOverOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(1300, 0, 1, "missing_id")
	j := d.create(operate.NewJob{})
	d.work()
	j = d.job(j.ID)
	require.Equal(t, []any{operate.JobDone, int64(0), int64(1300), 1300}, []any{j.State, j.Done, j.Skipped, j.Expected})
	require.Equal(t, 1300, d.left())
}

// A pooler may want any of them.
func TestJobsAreMadeAndDoneInAllQueryModes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		d.bury(2, 0, 1, "permanent")
		inbox := d.inbox.On(deduptest.OpenPool(t, d.dsn, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }))
		f := operate.Filter{Key: []byte("k"), From: time.Now().Add(-time.Hour), IDs: []uuid.UUID{uuid.New()}}
		p, err := inbox.PreviewJob(t.Context(), operate.JobDiscard, f, "")
		require.NoError(t, err, mode)
		require.Zero(t, p.Messages)
		_, _, err = inbox.CreateJob(t.Context(), operate.NewJob{ID: uuid.New(), Kind: operate.JobDiscard, Filter: f, Moment: p.Moment}, by)
		require.NoError(t, err, mode)
		_, _, err = inbox.CreateJob(t.Context(), operate.NewJob{ID: uuid.New(), Kind: operate.JobDiscard}, by)
		require.NoError(t, err, mode)
		require.NoError(t, inbox.WorkJobs(t.Context(), "host-1"), mode)
		require.Zero(t, d.left(), mode)
		_, _, err = inbox.DeadGroups(t.Context(), operate.Filter{})
		require.NoError(t, err, mode)
		_, _, err = inbox.LaneGroups(t.Context(), "")
		require.NoError(t, err, mode)
	}
}
