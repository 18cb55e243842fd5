package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// JobKind is what a job does, to dead letters or to messages that were processed.
type JobKind string

const (
	// JobRedrive gives them back to their handlers, as Redrive does.
	JobRedrive JobKind = "redrive"
	// JobDiscard forgets them, as Discard does.
	JobDiscard JobKind = "discard"
	// JobRerun gives processed messages back to their handler, as Rerun does: see CreateRerun.
	JobRerun JobKind = "rerun"
	// JobReplay reads a part of a topic again: see CreateReplay.
	JobReplay JobKind = "replay"
)

// JobState is how far a job is.
type JobState string

const (
	// JobQueued is made, and nobody has worked on it.
	JobQueued JobState = "queued"
	// JobRunning is under way: it goes on by whichever process runs.
	JobRunning JobState = "running"
	// JobPaused rests until it is resumed: see PauseJob.
	JobPaused JobState = "paused"
	// JobDone has come to its end.
	JobDone JobState = "done"
	// JobCancelled was ended by a person. What it had done by then stays.
	JobCancelled JobState = "cancelled"
)

// NewJob says what a job is to do, to all dead letters that a filter picks and that lay there at a moment.
type NewJob struct {
	// ID is the caller's choice: who asks twice with one ID has asked once. Required.
	ID uuid.UUID
	// Kind is required.
	Kind JobKind
	// Filter picks the letters; the zero Filter picks all of the inbox.
	Filter Filter
	// Moment is that of the preview that was shown. Empty: that at which the job is made.
	Moment Moment
}

// Job is something that is done to many messages in parts, by whichever process runs: it outlives whoever asked for it.
// What died after its moment, also a letter of its own that died again, is not touched.
type Job struct {
	ID     uuid.UUID
	Inbox  string
	Kind   JobKind
	Filter Filter
	// Places and Ordering are a rerun's: see RerunFilter. The filter's times are those of receipt then.
	Places   *PlaceRange
	Ordering dedup.Ordering
	// Replay is what a replay has besides; nil: it is none. Expected and Done are offsets then.
	Replay *ReplayJob
	// FixedAt is the moment: what had been given up by then is what it is of.
	FixedAt time.Time
	By      By
	// Login is the login to Postgres of whoever made it.
	Login     string
	CreatedAt time.Time
	// Expected are the messages that were counted when it was made, and More says that there were more: see JobPreview.
	Expected int
	More     bool
	State    JobState
	// Done counts the letters that were redriven or discarded, or the messages that are on their way to their handler
	// again; Skipped those that can't be redriven for want of a message ID, and, rarely, those that somebody else took
	// meanwhile; Failed those that an error kept where they are, of which Error is the last one.
	Done, Skipped, Failed int64
	Error                 string
	// WorkedAt is when Worker, a process, did a part of it, the last one to do so. Zero: none has.
	WorkedAt time.Time
	Worker   string
	// FinishedAt is when it was done or cancelled; zero: it is not.
	FinishedAt time.Time
}

// Moment is a moment at which dead letters were looked at: what had been committed by then lay there. Its text is
// not to be taken apart.
type Moment string

var momentPattern = regexp.MustCompile(`^([0-9]{1,18})\.([0-9]{1,20}:[0-9]{1,20}:[0-9,]*)$`)

// read gives the moment's time and Postgres' snapshot.
func (m Moment) read() (at time.Time, snapshot string, err error) {
	parts := momentPattern.FindStringSubmatch(string(m))
	if parts == nil {
		return at, "", &MomentError{m}
	}
	micros, err := strconv.ParseInt(parts[1], 10, 64)
	return time.UnixMicro(micros), parts[2], err
}

// MomentError says that a text is no moment that a preview gave on this server.
type MomentError struct{ Moment Moment }

func (e *MomentError) Error() string {
	return fmt.Sprintf("moment %q is not one that a count gave on this server: count again", string(e.Moment))
}

// JobDiffersError says that there is a job of an ID already that is to do something else.
type JobDiffersError struct{ Job Job }

func (e *JobDiffersError) Error() string {
	return fmt.Sprintf("there is a job %s already that is to do something else: give another one another ID", e.Job.ID)
}

var errNoJobID = errors.New("id: say which, any UUID that is new")

func (n *NewJob) validate() error {
	var faults []error
	if n.ID == uuid.Nil {
		faults = append(faults, errNoJobID)
	}
	if n.Kind != JobRedrive && n.Kind != JobDiscard {
		faults = append(faults, fmt.Errorf("kind %q is neither redrive nor discard", n.Kind))
	}
	return errors.Join(faults...)
}

// CreateJob has dead letters redriven or discarded by whichever process runs WorkJobs, and says whether the job is
// new: where there is one of that ID it stands, and the error is a *JobDiffersError where that is another one. It
// takes the rights of firstseen_operator; who works on it needs none.
func (in *Inbox) CreateJob(ctx context.Context, n NewJob, by By) (j *Job, created bool, err error) {
	if err = errors.Join(n.validate(), by.validate()); err == nil {
		j, created, err = in.makeJob(ctx, n.ID, func() (bool, error) { return in.insertJob(ctx, n, by) }, n.same)
	}
	if err != nil {
		return nil, false, fmt.Errorf("create job in inbox %s: %w", in.db.Inbox, err)
	}
	return j, created, nil
}

// makeJob gives the job of an ID, which insert makes where there is none.
func (in *Inbox) makeJob(ctx context.Context, id uuid.UUID, insert func() (bool, error),
	same func(inbox string, j *Job) bool) (j *Job, created bool, err error) {
	if j, err = in.Job(ctx, id); err == nil && j == nil {
		var other *SetError // by now perhaps, as somebody has pressed at the same time and it is being done
		if created, err = insert(); err == nil || errors.As(err, &other) {
			j, err = in.jobOr(ctx, id, err)
		}
	}
	switch {
	case err != nil:
		return nil, false, err
	case j == nil:
		return nil, false, errors.New("it is gone already")
	case !same(in.db.Inbox, j):
		return nil, false, &JobDiffersError{*j}
	}
	return j, created, nil
}

// jobOr gives the job of an ID; where there is none, the error is why.
func (in *Inbox) jobOr(ctx context.Context, id uuid.UUID, why error) (*Job, error) {
	j, err := in.Job(ctx, id)
	if err == nil && j == nil {
		err = why
	}
	return j, err
}

// same goes by all but times, which may have been said as durations before now.
func (n *NewJob) same(inbox string, j *Job) bool { return sameFilter(inbox, n.Kind, &n.Filter, j) }

func sameFilter(inbox string, kind JobKind, a *Filter, j *Job) bool {
	b := &j.Filter
	return inbox == j.Inbox && kind == j.Kind && a.Topic == b.Topic && a.Handler == b.Handler && a.Tenant == b.Tenant &&
		a.Reason == b.Reason && (a.Key == nil) == (b.Key == nil) && string(a.Key) == string(b.Key) &&
		slices.Equal(sortedIDs(a.IDs), sortedIDs(b.IDs))
}

// sortedIDs has each ID once.
func sortedIDs(ids []uuid.UUID) []uuid.UUID {
	sorted := slices.SortedFunc(slices.Values(ids), func(a, b uuid.UUID) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(sorted)
}

const createJobSQL = `select firstseen.create_job($1::text::uuid, $2, $3, nullif($4, ''), nullif($5, ''), nullif($6, ''),
	nullif($7, ''), $8, $9, $10, $11::text[]::uuid[], $12, $13, $14, $15, $16, $17)`

func (in *Inbox) insertJob(ctx context.Context, n NewJob, by By) (created bool, err error) {
	p, err := in.PreviewJob(ctx, n.Kind, n.Filter, n.Moment)
	if err != nil {
		return false, err
	}
	at, snapshot, err := p.Moment.read()
	if err != nil {
		return false, err
	}
	f := &n.Filter
	var ids []string
	if f.IDs != nil {
		ids = texts(sortedIDs(f.IDs))
	}
	err = in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(createJobSQL), n.ID.String(), in.db.Inbox, string(n.Kind), f.Topic, f.Handler,
			f.Tenant, f.Reason, f.Key, orNull(f.From), orNull(f.To), ids, snapshot, at, p.Messages+p.WithoutID, p.More,
			by.Actor, by.Why).Scan(&created)
	})
	return created, n.Moment.explain(err)
}

// orNull is a null for no time.
func orNull(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// CancelJob ends a job, between two of its parts, and says whether that changed anything: a job that has ended stays as
// it is. The job is nil where there is none.
func (in *Inbox) CancelJob(ctx context.Context, id uuid.UUID, by By) (j *Job, changed bool, err error) {
	return in.changeJob(ctx, id, by, `select firstseen.cancel_job($1::text::uuid, $2, $3)`)
}

// PauseJob has a job rest, between two of its parts, until ResumeJob, and says whether that changed anything: one that
// rests, or has ended, stays as it is. The job is nil where there is none.
func (in *Inbox) PauseJob(ctx context.Context, id uuid.UUID, by By) (j *Job, changed bool, err error) {
	return in.pauseJob(ctx, id, true, by)
}

// ResumeJob has a job that rests go on where it was.
func (in *Inbox) ResumeJob(ctx context.Context, id uuid.UUID, by By) (j *Job, changed bool, err error) {
	return in.pauseJob(ctx, id, false, by)
}

func (in *Inbox) pauseJob(ctx context.Context, id uuid.UUID, pause bool, by By) (*Job, bool, error) {
	return in.changeJob(ctx, id, by, `select firstseen.pause_job($1::text::uuid, $4, $2, $3)`, pause)
}

func (in *Inbox) changeJob(ctx context.Context, id uuid.UUID, by By, sql string, more ...any) (j *Job, changed bool, err error) {
	if err = by.validate(); err == nil {
		err = in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, in.db.SQL(sql), append([]any{id.String(), by.Actor, by.Why}, more...)...).Scan(&changed)
		})
	}
	if err == nil {
		j, err = in.Job(ctx, id)
	}
	if err != nil {
		return nil, false, fmt.Errorf("change job %s: %w", id, err)
	}
	return j, changed, nil
}

const jobsSQL = `
select m.job_id, m.inbox, m.kind, coalesce(m.topic, ''), coalesce(m.handler, ''), coalesce(m.tenant, ''), coalesce(m.reason, ''),
	m.key, m.died_from, m.died_to, m.message_ids::text[], m.fixed_at, m.actor, m.why, m.login, m.created_at, m.expected,
	m.expected_more, m.state, m.done, m.skipped, m.failed, coalesce(m.error, ''), m.worked_at, coalesce(m.worker, ''), m.finished_at,
	m."partition", m.from_offset, m.to_offset, coalesce(m.ordering, ''), r.consumer, coalesce(r.from_place, ''), coalesce(r.to_place, ''),
	r.partitions, coalesce(r.rate, 0), coalesce(r.skip_lost, false), coalesce(r.new, 0), coalesce(r.duplicates, 0),
	coalesce(r.conflicts, 0), coalesce(r.parked, 0), coalesce(r.dead, 0), coalesce(r.buried, 0)
from firstseen.jobs m
left join firstseen.job_replays r using (job_id)`

// Job gives a job of any inbox of the schema, or nil where there is none, or it ended too long ago.
func (in *Inbox) Job(ctx context.Context, id uuid.UUID) (*Job, error) {
	found, err := db.LookAll(ctx, in.db, nil, scanJob, jobsSQL+` where m.job_id = $1::text::uuid`, id.String())
	if err != nil {
		return nil, fmt.Errorf("look for job %s: %w", id, err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
}

// Jobs lists the inbox's jobs, the last made first: up to limit, behind the cursor of the page before (empty: the
// first page). next is empty on the last page.
func (in *Inbox) Jobs(ctx context.Context, after Cursor, limit int) (jobs []Job, next Cursor, err error) {
	c := &condition{}
	c.add("m.inbox = $%d", in.db.Inbox)
	if err := c.behindJob(after); err != nil {
		return nil, "", fmt.Errorf("list jobs: %w", err)
	}
	sql := in.db.SQL(jobsSQL + c.where() + "\norder by m.created_at desc, m.job_id desc" + c.limit(limit))
	err = in.db.Look(ctx, nil, func(tx pgx.Tx) (err error) {
		jobs, next, err = collectPage(ctx, tx, paging[Job]{scanJob, (*Job).size, (*Job).cursor, limit}, sql, c.args...)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list jobs of inbox %s: %w", in.db.Inbox, err)
	}
	return jobs, next, nil
}

func (c *condition) behindJob(after Cursor) error {
	if after == "" {
		return nil
	}
	at, id, _ := strings.Cut(strings.TrimPrefix(string(after), "j"), ".")
	micros, err := strconv.ParseInt(at, 10, 64)
	if _, wrong := uuid.Parse(id); err != nil || wrong != nil || !strings.HasPrefix(string(after), "j") {
		return cursorError(after)
	}
	c.args = append(c.args, time.UnixMicro(micros))
	c.add(fmt.Sprintf("(m.created_at, m.job_id) < ($%d, $%%d::text::uuid)", len(c.args)), id)
	return nil
}

func (j *Job) size() int      { return len(j.By.Why) + 16*len(j.Filter.IDs) }
func (j *Job) cursor() Cursor { return Cursor(fmt.Sprintf("j%d.%s", j.CreatedAt.UnixMicro(), j.ID)) }

func scanJob(row pgx.CollectableRow) (j Job, err error) {
	var ids []string
	var from, to, worked, finished *time.Time
	var partition *int32
	var first, end *int64
	var consumer *string
	var replay ReplayJob
	f, c := &j.Filter, &replay.Counts
	if err = row.Scan(&j.ID, &j.Inbox, &j.Kind, &f.Topic, &f.Handler, &f.Tenant, &f.Reason, &f.Key, &from, &to, &ids,
		&j.FixedAt, &j.By.Actor, &j.By.Why, &j.Login, &j.CreatedAt, &j.Expected, &j.More, &j.State, &j.Done, &j.Skipped,
		&j.Failed, &j.Error, &worked, &j.Worker, &finished, &partition, &first, &end, &j.Ordering,
		&consumer, &replay.From, &replay.To, &replay.Partitions, &replay.Rate, &replay.SkipLost, &c.New, &c.Duplicates, &c.Conflicts,
		&c.Parked, &c.Dead, &c.Buried); err != nil {
		return j, err
	}
	f.From, f.To, j.WorkedAt, j.FinishedAt = db.Deref(from), db.Deref(to), db.Deref(worked), db.Deref(finished)
	j.Places = placesOf(partition, first, end)
	if consumer != nil {
		replay.Consumer, replay.Topic, replay.Handler = *consumer, f.Topic, f.Handler
		j.Replay = &replay
	}
	for _, text := range ids {
		id, err := uuid.Parse(text)
		if err != nil {
			return j, err
		}
		f.IDs = append(f.IDs, id)
	}
	return j, nil
}
