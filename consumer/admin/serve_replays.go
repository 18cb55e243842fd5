package admin

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

// apart asks Kafka, and takes no turn at Postgres from others: the service has who reads topics wait for each other.
func (c *call) apart(do func() (any, error)) (any, error) {
	if err := c.reserve(); err != nil {
		return nil, err
	}
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(c.request.Context(), readLimit)
	defer cancel()
	return do()
}

type planReplayInput struct {
	Topic      string  `query:"topic" required:"true" minLength:"1" doc:"A topic that this process reads."`
	Handler    string  `query:"handler" doc:"The only handler to be given messages. Default: all of the topic."`
	From       string  `query:"from" required:"true" doc:"Where to begin: earliest, latest, an offset in each partition, a duration before now like 2h, or a time."`
	To         string  `query:"to" default:"latest" doc:"Where to end, as from. What is there is not read, nor is what the group has not read. Resolved when the replay begins."`
	Partitions []int64 `query:"partition,explode" minimum:"0" maximum:"2147483647" maxItems:"1000" doc:"Those to read. May be given again. Default: all."`
	SkipLost   bool    `query:"skip_lost" doc:"true goes on where messages are not in Kafka any more. Default false: that is refused."`
}

func planReplay(c *call, in *planReplayInput) (out view.ReplayPlan, _ error) {
	partitions, err := partitionsOf("partition", in.Partitions)
	if err != nil {
		return out, err
	}
	p, err := c.api.service.PlanReplay(c.ctx, operate.ReplayAsk{Topic: in.Topic, Handler: in.Handler, From: in.From, To: in.To,
		Partitions: partitions, SkipLost: in.SkipLost})
	if err != nil {
		return out, replayProblem(err)
	}
	return view.ReplayPlan{Replay: view.ReplayOf(&p.Result, true, p.Counted), Handler: view.OrNull(p.Ask.Handler), Ask: view.ReplayAskOf(&p.Ask), Forgets: p.Forgets,
		At: view.Moment(time.Now())}, nil
}

// NewReplay is a request's body: what to read again.
type NewReplay struct {
	_          struct{} `additionalProperties:"false"`
	ID         string   `json:"id" format:"uuid" doc:"A UUID that you choose, the job's: asked for again with it, the job is answered that there is."`
	Topic      string   `json:"topic" minLength:"1" doc:"A topic that this process reads."`
	Handler    string   `json:"handler,omitempty" doc:"The only handler to be given messages. Default: all of the topic."`
	From       string   `json:"from" minLength:"1" doc:"Where to begin: earliest, latest, an offset in each partition, a duration before now like 2h, or a time."`
	To         string   `json:"to,omitempty" doc:"Where to end, as from; resolved when the replay begins. Default: latest."`
	Partitions []int64  `json:"partitions,omitempty" minimum:"0" maximum:"2147483647" maxItems:"1000" doc:"Those to read. Default: all."`
	Rate       int64    `json:"rate,omitempty" minimum:"1" maximum:"2147483647" doc:"Most messages a second. Default: no limit."`
	SkipLost   bool     `json:"skip_lost,omitempty" doc:"Go on where messages are not in Kafka any more. Default: the replay stops there."`
	Why        string   `json:"why" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a text that is not blank" doc:"What for; kept in the audit."`
}

func createReplay(c *call, in *struct{ Body NewReplay }) (out view.Job, _ error) {
	body := &in.Body
	if err := checkWhy(body.Why); err != nil {
		return out, err
	}
	_, id, err := c.inboxOfJob(body.ID)
	if err != nil {
		return out, err
	}
	partitions, err := partitionsOf("partitions", body.Partitions)
	if err != nil {
		return out, err
	}
	if body.To == "" {
		body.To = "latest"
	}
	j, created, err := c.api.service.CreateReplay(c.ctx, id, operate.ReplayAsk{Topic: body.Topic, Handler: body.Handler, From: body.From,
		To: body.To, Partitions: partitions, Rate: int(body.Rate), SkipLost: body.SkipLost}, operate.By{Actor: c.actor, Why: body.Why})
	if err != nil {
		return out, replayProblem(err)
	}
	return c.made(j, created), nil
}

// replayProblem makes problems of what a client can put right. What a topic has against a replay is told as it is.
func replayProblem(err error) error {
	var known *httpjson.Problem
	var fault *service.ReplayFault
	var differs *operate.JobDiffersError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &fault) && fault.Field == "":
		return httpjson.Errorf(http.StatusConflict, "%s", told(fault.Err))
	case errors.As(err, &fault):
		return httpjson.Wrong(fault.Field, "%s", told(fault.Err))
	case errors.As(err, &differs):
		return jobProblem(err)
	case errors.Is(err, service.ErrNoReplays):
		return httpjson.Errorf(http.StatusNotImplemented, "%s", err)
	}
	return err
}

// partitionsOf are numbers of partitions, each once.
func partitionsOf(field string, numbers []int64) (partitions []int32, err error) {
	for _, n := range numbers {
		if n < 0 || n > math.MaxInt32 {
			return nil, httpjson.Wrong(field, "%d is not a number from 0 to %d", n, math.MaxInt32)
		}
		partitions = append(partitions, int32(n))
	}
	slices.Sort(partitions)
	return slices.Compact(partitions), nil
}

// maxTold bounds what is told back of an error that has a client's words in it.
const maxTold = 1000

func told(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(maxTold, len(text))], "?")
}
