package view

import (
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Job is something that is done to many messages in parts, by whichever process runs.
type Job struct {
	ID         string     `json:"id" doc:"The UUID that whoever asked for it chose."`
	Inbox      string     `json:"inbox"`
	Kind       string     `json:"kind" enum:"redrive,discard,rerun,replay"`
	State      string     `json:"state" enum:"queued,running,paused,done,cancelled" doc:"A running one goes on by whichever process runs, a paused one once it is resumed; a replay with an error was paused by it."`
	Filter     JobFilter  `json:"filter"`
	FixedAt    *time.Time `json:"fixed_at" doc:"It is of what had been given up by then, or processed for a rerun."`
	Actor      string     `json:"actor"`
	Why        string     `json:"why"`
	Login      string     `json:"login" doc:"Who was logged in to Postgres to make it, the program's login say."`
	CreatedAt  *time.Time `json:"created_at"`
	Expected   int        `json:"expected" doc:"The messages that were counted when it was made; of a replay: its offsets."`
	More       bool       `json:"more" doc:"There were more."`
	Done       int64      `json:"done" doc:"Dead letters that were redriven or discarded, or messages that are on their way to their handler again, or a replay's offsets."`
	Skipped    int64      `json:"skipped" doc:"That can't be redriven for want of a message ID, or that somebody else took meanwhile."`
	Failed     int64      `json:"failed" doc:"That an error kept where they are."`
	Error      *string    `json:"error" doc:"That of the last one that failed, or why a replay stopped."`
	WorkedAt   *time.Time `json:"worked_at" doc:"When a part of it was done last; null: none was."`
	Worker     *string    `json:"worker" doc:"The process that did it."`
	FinishedAt *time.Time `json:"finished_at" doc:"When it was done or cancelled; null: it is not."`
	Replay     *ReplayJob `json:"replay" doc:"What only a replay has; null: it is none."`
}

// JobFilter is what a job picks dead letters by, or what a rerun picks processed messages by. Null is any.
type JobFilter struct {
	Topic   *string    `json:"topic"`
	Handler *string    `json:"handler"`
	Tenant  *string    `json:"tenant"`
	Reason  *string    `json:"reason"`
	Key     *Bytes     `json:"key"`
	Since   *time.Time `json:"since" doc:"Died not before this time; of a rerun: was received not before it."`
	Until   *time.Time `json:"until" doc:"Died before this time; of a rerun: was received before it."`
	IDs     []string   `json:"ids" doc:"UUIDs; none: any."`

	Partition  *int32  `json:"partition" doc:"Of a rerun, with the offsets."`
	FromOffset *int64  `json:"from_offset" doc:"The first one."`
	ToOffset   *int64  `json:"to_offset" doc:"The one to stop before; null: no end."`
	Ordering   *string `json:"ordering" doc:"That of a rerun's handler: key, partition or none; null: it is no rerun."`
}

// Jobs are a page of jobs.
type Jobs struct {
	Jobs []Job   `json:"jobs"`
	Next *string `json:"next" doc:"The cursor of the next page; null on the last one."`
}

// JobsOf is a page of jobs.
func JobsOf(found []operate.Job, next operate.Cursor, rules *mask.Rules) Jobs {
	return Jobs{List(found, func(j *operate.Job) Job { return JobOf(j, rules) }), OrNull(string(next))}
}

// JobOf is a job. Rules, which may be nil, hide the key that it is of, and its error.
func JobOf(j *operate.Job, rules *mask.Rules) Job {
	return Job{ID: j.ID.String(), Inbox: j.Inbox, Kind: string(j.Kind), State: string(j.State),
		Filter: jobFilterOf(&j.Filter, rules).at(j.Places, j.Ordering), FixedAt: Moment(j.FixedAt), Actor: j.By.Actor, Why: j.By.Why, Login: j.Login, CreatedAt: Moment(j.CreatedAt),
		Expected: j.Expected, More: j.More, Done: j.Done, Skipped: j.Skipped, Failed: j.Failed, Error: OrNull(rules.Error(j.Filter.Topic, j.Error)),
		WorkedAt: Moment(j.WorkedAt), Worker: OrNull(j.Worker), FinishedAt: Moment(j.FinishedAt), Replay: replayJobOf(j.Replay)}
}

func jobFilterOf(f *operate.Filter, rules *mask.Rules) JobFilter {
	key := f.Key
	if key != nil && rules.HidesKey(f.Topic) {
		key = []byte(mask.Text)
	}
	return JobFilter{Topic: OrNull(f.Topic), Handler: OrNull(f.Handler), Tenant: OrNull(f.Tenant), Reason: OrNull(f.Reason),
		Key: shown(key, Whole), Since: Moment(f.From), Until: Moment(f.To), IDs: List(f.IDs, (*uuid.UUID).String)}
}

// at adds what only a rerun has.
func (f JobFilter) at(p *operate.PlaceRange, ordering dedup.Ordering) JobFilter {
	if f.Ordering = OrNull(string(ordering)); p != nil {
		f.Partition, f.FromOffset, f.ToOffset = &p.Partition, &p.From, OrNull(p.To)
	}
	return f
}

// RerunPlan tells what a rerun by a job would be of.
type RerunPlan struct {
	Filter   JobFilter      `json:"filter" doc:"As it was counted by: durations are times here, and what was left open is fixed."`
	Messages int            `json:"messages" doc:"What the handler does with them takes effect a second time."`
	First    []RerunMessage `json:"first" doc:"The first few, in the order in which they go."`
	Missing  []MissingRerun `json:"missing" doc:"IDs that can't be rerun, the first hundred."`
	Set      string         `json:"set" doc:"Given to a rerun with the same filter it has it be of these, or not be made."`
}

// RerunPlanOf is a plan. Rules, which may be nil, hide the key that it is by.
func RerunPlanOf(p *operate.RerunPlan, rules *mask.Rules) RerunPlan {
	of := RerunPreviewOf(&p.RerunPreview)
	return RerunPlan{jobFilterOf(&p.Filter.Filter, rules).at(p.Filter.Places, p.Filter.Ordering), of.Messages, of.First, of.Missing, p.Set}
}

// JobPreview counts what a job would be of.
type JobPreview struct {
	Kind      string    `json:"kind" enum:"redrive,discard"`
	Filter    JobFilter `json:"filter" doc:"As it was counted by: durations are times here."`
	Messages  int       `json:"messages" doc:"Dead letters that would be redriven or discarded."`
	WithoutID int       `json:"without_id" doc:"That would stay, where they are to be redriven: they died for want of a message ID."`
	More      bool      `json:"more" doc:"There may be more: no more than 10,000 are counted, among the newest 100,000."`
	Moment    string    `json:"moment" doc:"Given to a job with the same filter it has the job be of these, and of none that dies later."`
}

func JobPreviewOf(kind operate.JobKind, f operate.Filter, p operate.JobPreview, rules *mask.Rules) JobPreview {
	return JobPreview{string(kind), jobFilterOf(&f, rules), p.Messages, p.WithoutID, p.More, string(p.Moment)}
}
