package admin

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Change picks dead letters to redrive or discard, and says why.
type Change struct {
	_ struct{} `additionalProperties:"false"`
	BodyFilter
	Why    string `json:"why,omitempty" doc:"What for; kept in the audit with each message. Required, unless dry_run."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Count them, and change nothing."`
}

type changeInput struct{ Body Change }

func redrive(c *call, in *changeInput) (view.Changed, error) {
	return c.changeLetters("redrive", &in.Body, (*operate.Inbox).CountRedrive, (*operate.Inbox).Redrive)
}

func discard(c *call, in *changeInput) (view.Changed, error) {
	return c.changeLetters("discard", &in.Body, (*operate.Inbox).CountDeadLetters, (*operate.Inbox).Discard)
}

func (c *call) changeLetters(action string, body *Change,
	count func(*operate.Inbox, context.Context, operate.Filter) (int, error),
	do func(*operate.Inbox, context.Context, operate.Filter, operate.By) (int, error)) (out view.Changed, _ error) {
	filter, narrow, err := body.filter()
	switch {
	case err != nil:
		return out, err
	case narrow == body.All:
		return out, tooWide(action)
	case !body.DryRun:
		if err := checkWhy(body.Why); err != nil {
			return out, err
		}
	}
	store, err := c.inbox()
	if err == nil && body.DryRun {
		store, err = c.finding(&filter)
	}
	if err != nil {
		return out, err
	}
	if body.DryRun {
		n, err := count(store, c.ctx, filter)
		return view.Changed{Action: action, Messages: n, DryRun: true}, withoutID("would be redriven", n, err)
	}
	n, err := do(store, c.ctx, filter, operate.By{Actor: c.actor, Why: body.Why})
	if n > 0 {
		c.api.log.Info("dead letters changed by the admin API", "action", action, "messages", n, "actor", c.actor)
	}
	var none *operate.NoIDError
	if errors.As(err, &none) {
		return out, withoutID("redriven", n, none)
	}
	if err != nil && n > 0 {
		c.api.log.Error("a change by the admin API ended early", "action", action, "messages", n, "error", err)
		return out, httpjson.Errorf(500, "%d of the dead letters are changed, and then it failed; the log says why. "+
			"It may be asked for again", n)
	}
	return view.Changed{Action: action, Messages: n}, err
}

func tooWide(action string) error {
	return httpjson.Wrong("all", "say which dead letters to %s: by ids, topic, handler and the like, "+
		"or all of them by \"all\": true", action)
}

// withoutID makes a problem of the error that letters can't be redriven, and tells of the others.
func withoutID(done string, others int, err error) error {
	var none *operate.NoIDError
	if errors.As(err, &none) {
		return httpjson.Errorf(http.StatusConflict, "%s; %s: %d", none, done, others)
	}
	return err
}

func checkWhy(why string) error {
	if strings.TrimSpace(why) == "" {
		return httpjson.Wrong("why", "is required: it is kept in the audit")
	}
	if fault := httpjson.CheckText("why", why); fault != nil {
		return fault
	}
	return nil
}

// NewPause is a request's body: the pause to make.
type NewPause struct {
	_ struct{} `additionalProperties:"false"`

	Kind string `json:"kind" enum:"topic,partition,handler"`
	Name string `json:"name" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a text that is not blank" doc:"The topic's or the handler's; a partition's is TOPIC/N."`
	Why  string `json:"why" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a text that is not blank" doc:"What for; kept in the audit."`
}

func pause(c *call, in *struct{ Body NewPause }) (view.PauseChanged, error) {
	return c.setPause("pause", in.Body.Kind, in.Body.Name, in.Body.Why, (*operate.Inbox).Pause)
}

type resumeInput struct {
	Kind string `query:"kind" required:"true" enum:"topic,partition,handler" doc:"What is paused."`
	Name string `query:"name" required:"true" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a text that is not blank" doc:"The topic's or the handler's name; a partition's is TOPIC/N."`
	Why  string `query:"why" required:"true" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a text that is not blank" doc:"What for; kept in the audit."`
}

func resume(c *call, in *resumeInput) (view.PauseChanged, error) {
	return c.setPause("resume", in.Kind, in.Name, in.Why, (*operate.Inbox).Resume)
}

func (c *call) setPause(action, kind, name, why string, set func(*operate.Inbox, context.Context, dedup.Pause,
	operate.By) (bool, error)) (out view.PauseChanged, _ error) {
	p, err := dedup.PauseOf(dedup.PauseKind(kind), name)
	if err != nil {
		return out, httpjson.Wrong("name", "kind is topic, partition or handler, and name is the topic's or "+
			"the handler's, or TOPIC/N of a partition")
	}
	if fault := httpjson.CheckText("name", name); fault != nil {
		return out, fault
	}
	if err := checkWhy(why); err != nil {
		return out, err
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	changed, err := set(store, c.ctx, p, operate.By{Actor: c.actor, Why: why})
	return view.PauseChangedOf(store.Name(), action, p, changed), err
}
