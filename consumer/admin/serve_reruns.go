package admin

import (
	"cmp"
	"errors"
	"math"
	"net/http"

	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

// rerunPlaces are what a rerun has beside a filter, as they were given.
type rerunPlaces struct {
	partition, from, to *int64
	ordering            string
}

type planInput struct {
	FilterInput
	Partition  optional[int64] `query:"partition" minimum:"0" maximum:"2147483647" doc:"The partition that the offsets are of. With a topic."`
	FromOffset optional[int64] `query:"from_offset" minimum:"0" doc:"The first offset. With a partition."`
	ToOffset   optional[int64] `query:"to_offset" minimum:"1" doc:"The offset to stop before. With a partition. Default: none."`
	Ordering   string          `query:"ordering" enum:"key,partition,none" doc:"The handler's ordering. Default: as this process runs it; where it does not, it is required."`
}

func (o optional[T]) orNil() *T {
	if !o.given {
		return nil
	}
	return &o.value
}

func planRerun(c *call, in *planInput) (out view.RerunPlan, _ error) {
	f, err := c.rerunFilter(in.filter, rerunPlaces{in.Partition.orNil(), in.FromOffset.orNil(), in.ToOffset.orNil(), in.Ordering})
	if err != nil {
		return out, err
	}
	store, err := c.finding(&in.filter)
	if err != nil {
		return out, err
	}
	p, err := store.PlanRerun(c.ctx, f)
	if err != nil {
		return out, rerunProblem(err)
	}
	return view.RerunPlanOf(&p, c.rules), nil
}

// NewRerun is a request's body: what to rerun.
type NewRerun struct {
	_          struct{}   `additionalProperties:"false"`
	ID         string     `json:"id" format:"uuid" doc:"A UUID that you choose, the job's: asked for again with it, the job is answered that there is."`
	Handler    string     `json:"handler" minLength:"1" doc:"The handler that is to handle the messages again."`
	Topic      string     `json:"topic,omitempty"`
	Tenant     string     `json:"tenant,omitempty" doc:"Empty picks all tenants."`
	Key        *KeyBytes  `json:"key,omitempty"`
	Since      momentText `json:"since,omitempty" doc:"Received not before this time: RFC 3339, a date, or a duration before now, like 2h. Default: 48h, without ids."`
	Until      momentText `json:"until,omitempty" doc:"Received before this time. Default: now."`
	IDs        []string   `json:"ids,omitempty" maxItems:"1000" maxLength:"1024" pattern:"^[^\\x00]*[^\\x00-\\x20][^\\x00]*$" patternDescription:"an ID, which is not blank" doc:"IDs as producers wrote them, or the messages' UUIDs. At most 1000."`
	Partition  *int64     `json:"partition,omitempty" minimum:"0" maximum:"2147483647" doc:"The partition that the offsets are of. With a topic."`
	FromOffset *int64     `json:"from_offset,omitempty" minimum:"0" doc:"The first offset. With a partition."`
	ToOffset   *int64     `json:"to_offset,omitempty" minimum:"1" doc:"The offset to stop before. With a partition. Default: none."`
	Ordering   string     `json:"ordering,omitempty" enum:"key,partition,none" doc:"The handler's ordering. Default: as this process runs it; where it does not, it is required."`
	Set        string     `json:"set,omitempty" doc:"That of the plan that was shown: the rerun is of these messages, or is not made. Times are those of the plan then, and no durations. Default: whatever the filter picks now."`
	Why        string     `json:"why" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a text that is not blank" doc:"What for; kept in the audit with each message."`
}

func createRerun(c *call, in *struct{ Body NewRerun }) (out view.Job, _ error) {
	body := &in.Body
	f, err := body.filter(c)
	if err != nil {
		return out, err
	}
	if err := checkWhy(body.Why); err != nil {
		return out, err
	}
	store, id, err := c.inboxOfJob(body.ID)
	if err != nil {
		return out, err
	}
	j, created, err := store.CreateRerun(c.ctx, operate.NewRerun{ID: id, Filter: f, Set: body.Set},
		operate.By{Actor: c.actor, Why: body.Why})
	if err != nil {
		return out, rerunProblem(err)
	}
	return c.made(j, created), nil
}

func (b *NewRerun) filter(c *call) (f operate.RerunFilter, err error) {
	if err := noDurations(b.Set, "set", b.Since, b.Until); err != nil {
		return f, err
	}
	if fault := httpjson.CheckText("set", b.Set); fault != nil {
		return f, fault
	}
	of := BodyFilter{Topic: b.Topic, Handler: b.Handler, Tenant: b.Tenant, Key: b.Key, Since: b.Since, Until: b.Until, IDs: b.IDs}
	filter, _, err := of.filter()
	if err != nil {
		return f, err
	}
	return c.rerunFilter(filter, rerunPlaces{b.Partition, b.FromOffset, b.ToOffset, b.Ordering})
}

// rerunFilter holds what was given against each other: whose messages, and which.
func (c *call) rerunFilter(of operate.Filter, p rerunPlaces) (f operate.RerunFilter, err error) {
	f = operate.RerunFilter{Filter: of}
	placed := p.partition != nil || p.from != nil || p.to != nil
	switch {
	case f.Handler == "":
		return f, httpjson.Wrong("handler", "is required: say whose messages to run again")
	case placed && f.Topic == "":
		return f, httpjson.Wrong("topic", "is required: partition and offsets are a topic's")
	case placed && p.partition == nil:
		return f, httpjson.Wrong("partition", "is required: offsets are a partition's")
	case !placed && f.IDs == nil && f.Key == nil && f.From.IsZero() && f.To.IsZero():
		return f, httpjson.Wrong("since", "is required: or say which messages by id, key, until, or topic with partition")
	}
	if placed {
		if f.Places, err = p.places(); err != nil {
			return f, err
		}
	}
	ordering, known := c.api.service.Ordering(f.Handler)
	if !known && p.ordering == "" {
		return f, httpjson.Wrong("ordering", "is required: this process does not run the handler; give its ordering, "+
			"key unless the config says otherwise")
	}
	f.Ordering = cmp.Or(dedup.Ordering(p.ordering), ordering)
	return f, nil
}

func (p rerunPlaces) places() (*operate.PlaceRange, error) {
	at := operate.PlaceRange{}
	if *p.partition < 0 || *p.partition > math.MaxInt32 {
		return nil, httpjson.Wrong("partition", "%d is not a number from 0 to %d", *p.partition, math.MaxInt32)
	}
	at.Partition = int32(*p.partition) //nolint:gosec // just checked
	if p.from != nil {
		at.From = *p.from
	}
	if p.to != nil {
		at.To = *p.to
	}
	if p.to != nil && at.To <= at.From {
		return nil, httpjson.Wrong("to_offset", "%d is not above from_offset", at.To)
	}
	return &at, nil
}

// rerunProblem makes problems of what a client can put right.
func rerunProblem(err error) error {
	var set *operate.SetError
	var many *operate.TooManyError
	var handler *operate.UnknownHandlerError
	switch {
	case errors.As(err, &set):
		return httpjson.Errorf(http.StatusConflict, "%s", set)
	case errors.As(err, &many):
		return httpjson.Errorf(http.StatusConflict, "%s", many)
	case errors.As(err, &handler):
		return httpjson.Wrong("handler", "%s", handler)
	}
	return jobProblem(err)
}
