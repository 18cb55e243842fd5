package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

type countInput struct {
	Kind string `query:"kind" required:"true" enum:"redrive,discard" doc:"What is to be done to them."`
	FilterInput
	Reason string `query:"reason" doc:"The code of the last failure."`
	Moment string `query:"moment" doc:"That of a count before, to count the same set again. Default: now."`
}

func countDeadLetters(c *call, in *countInput) (out view.JobPreview, _ error) {
	in.filter.Reason = in.Reason
	store, err := c.finding(&in.filter)
	if err != nil {
		return out, err
	}
	kind := operate.JobKind(in.Kind)
	p, err := store.PreviewJob(c.ctx, kind, in.filter, operate.Moment(in.Moment))
	return view.JobPreviewOf(kind, in.filter, p, c.rules), jobProblem(err)
}

// NewJob is a request's body: the job to make.
type NewJob struct {
	_    struct{} `additionalProperties:"false"`
	ID   string   `json:"id" format:"uuid" doc:"A UUID that you choose: asked for again with it, the job is answered that there is."`
	Kind string   `json:"kind" enum:"redrive,discard"`
	BodyFilter
	Moment string `json:"moment,omitempty" doc:"That of the count that was shown: the job is of these dead letters then. Times are those that were counted by, and no durations. Default: now."`
	Why    string `json:"why" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a text that is not blank" doc:"What for; kept in the audit with each message."`
}

func createJob(c *call, in *struct{ Body NewJob }) (out view.Job, _ error) {
	body := &in.Body
	filter, narrow, err := body.filter()
	switch {
	case err != nil:
		return out, err
	case narrow == body.All:
		return out, tooWide(body.Kind)
	}
	if err := body.check(); err != nil {
		return out, err
	}
	store, id, err := c.inboxOfJob(body.ID)
	if err != nil {
		return out, err
	}
	j, created, err := store.CreateJob(c.ctx, operate.NewJob{ID: id, Kind: operate.JobKind(body.Kind), Filter: filter,
		Moment: operate.Moment(body.Moment)}, operate.By{Actor: c.actor, Why: body.Why})
	if err != nil {
		return out, jobProblem(err)
	}
	return c.made(j, created), nil
}

// made is a job that was asked for, also where it was there already.
func (c *call) made(j *operate.Job, created bool) view.Job {
	if created {
		c.api.log.Info("a job is made by the admin API", "job", j.ID, "kind", j.Kind, "messages", j.Expected, "actor", c.actor)
	}
	return view.JobOf(j, c.rules)
}

// check holds the times against the moment, besides.
func (b *NewJob) check() error {
	if err := noDurations(b.Moment, "moment", b.Since, b.Until); err != nil {
		return err
	}
	return checkWhy(b.Why)
}

// noDurations has times be those of a count that is named: a duration before now is another time than that of the count.
func noDurations(count, name string, since, until momentText) error {
	for of, text := range map[string]momentText{"since": since, "until": until} {
		if _, err := time.ParseDuration(string(text)); err == nil && count != "" {
			return httpjson.Wrong(of, "is a duration; with a %s give the time that was counted by, which the count tells", name)
		}
	}
	return nil
}

func jobID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || id == uuid.Nil {
		return id, httpjson.Wrong("id", "%s is not the UUID of a job", httpjson.Brief(text))
	}
	return id, nil
}

// inboxOfJob is the inbox, for who has a job to do with there, and the job's ID.
func (c *call) inboxOfJob(text string) (store *operate.Inbox, id uuid.UUID, err error) {
	if id, err = jobID(text); err == nil {
		store, err = c.inbox()
	}
	return store, id, err
}

// jobProblem makes problems of what a client can put right.
func jobProblem(err error) error {
	var moment *operate.MomentError
	var differs *operate.JobDiffersError
	switch {
	case errors.As(err, &moment):
		return httpjson.Wrong("moment", "is not one that a count gave on this server; count again")
	case errors.As(err, &differs):
		return httpjson.Errorf(http.StatusConflict, "%s", differs)
	}
	return err
}

func listJobs(c *call, in *PageInput) (out view.Jobs, _ error) {
	after, limit, err := in.read(maxPage)
	if err != nil {
		return out, err
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	found, next, err := store.Jobs(c.ctx, after, limit)
	return view.JobsOf(found, next, c.rules), err
}

// JobInput names a job.
type JobInput struct {
	ID string `path:"id" format:"uuid" doc:"The job's UUID."`
}

func getJob(c *call, in *JobInput) (out view.Job, _ error) {
	store, id, err := c.inboxOfJob(in.ID)
	if err != nil {
		return out, err
	}
	j, err := store.Job(c.ctx, id)
	if err == nil && j == nil {
		err = noJob(id)
	}
	if err != nil {
		return out, err
	}
	return view.JobOf(j, c.rules), nil
}

func noJob(id uuid.UUID) error {
	return httpjson.Errorf(http.StatusNotFound, "there is no job %s: there was none, or it ended more than 30 days ago, "+
		"and /api/v1/audit tells of it", id)
}

type changeJobInput struct {
	JobInput
	Body struct {
		_   struct{} `additionalProperties:"false"`
		Why string   `json:"why" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a text that is not blank" doc:"What for; kept in the audit."`
	}
}

func cancelJob(c *call, in *changeJobInput) (view.Job, error) {
	return c.changeJob(in, (*operate.Inbox).CancelJob)
}
func pauseJob(c *call, in *changeJobInput) (view.Job, error) {
	return c.changeJob(in, (*operate.Inbox).PauseJob)
}
func resumeJob(c *call, in *changeJobInput) (view.Job, error) {
	return c.changeJob(in, (*operate.Inbox).ResumeJob)
}

func (c *call) changeJob(in *changeJobInput,
	do func(*operate.Inbox, context.Context, uuid.UUID, operate.By) (*operate.Job, bool, error)) (out view.Job, _ error) {
	id, err := jobID(in.ID)
	if err != nil {
		return out, err
	}
	if err := checkWhy(in.Body.Why); err != nil {
		return out, err
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	j, _, err := do(store, c.ctx, id, operate.By{Actor: c.actor, Why: in.Body.Why})
	if err == nil && j == nil {
		err = noJob(id)
	}
	if err != nil {
		return out, err
	}
	return view.JobOf(j, c.rules), nil
}
