package admin

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/cmd/internal/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Change is which dead letters to redrive or discard, and why.
type Change struct {
	BodyFilter
	Why    string `json:"why,omitempty" doc:"What for; kept in the audit with each message. Required, unless dry_run."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Count them, and change nothing."`
}

func redrive(c *call) (any, error) {
	return c.change("redrive", (*operate.Inbox).CountRedrive, (*operate.Inbox).Redrive)
}

func discard(c *call) (any, error) {
	return c.change("discard", (*operate.Inbox).CountDeadLetters, (*operate.Inbox).Discard)
}

func (c *call) change(action string, count func(*operate.Inbox, context.Context, operate.Filter) (int, error),
	do func(*operate.Inbox, context.Context, operate.Filter, operate.By) (int, error)) (any, error) {
	body := c.body.(*Change)
	filter, narrow, fault := body.filter()
	switch {
	case fault != nil:
		return nil, fault
	case narrow == body.All:
		return nil, httpjson.Wrong("all", "say which dead letters to %s: by ids, topic, handler and the like, or all of them by \"all\": true", action)
	case !body.DryRun:
		if fault := checkWhy(body.Why); fault != nil {
			return nil, fault
		}
	}
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	if body.DryRun {
		n, err := count(store, c.ctx, filter)
		return view.Changed{Action: action, Messages: n, DryRun: true}, withoutID("would be redriven", n, err)
	}
	n, err := do(store, c.ctx, filter, operate.By{Actor: c.actor, Why: body.Why})
	if n > 0 {
		c.server.log.Info("dead letters changed by the admin API", "action", action, "messages", n, "actor", c.actor)
	}
	var none *operate.NoIDError
	if errors.As(err, &none) {
		return nil, withoutID("redriven", n, none)
	}
	if err != nil && n > 0 {
		c.server.log.Error("a change by the admin API ended early", "action", action, "messages", n, "error", err)
		return nil, httpjson.Errorf(500, "%s are changed, and then it failed; the log says why. It may be asked for again",
			counted(n, "dead letter"))
	}
	return view.Changed{Action: action, Messages: n}, err
}

// withoutID makes a problem of the error that letters can't be redriven, and tells of the others.
func withoutID(done string, others int, err error) error {
	var none *operate.NoIDError
	if errors.As(err, &none) {
		return httpjson.Errorf(http.StatusConflict, "%s; %s: %d", none, done, others)
	}
	return err
}

func checkWhy(why string) *httpjson.Problem {
	if strings.TrimSpace(why) == "" {
		return httpjson.Wrong("why", "is required: it is kept in the audit")
	}
	q := query{}
	q.checkText("why", why)
	return q.fault
}

// NewPause is what to pause.
type NewPause struct {
	Kind string `json:"kind" enum:"topic,partition,handler"`
	Name string `json:"name" doc:"The topic's or the handler's; a partition's is TOPIC/N."`
	Why  string `json:"why" doc:"What for; kept in the audit."`
}

func pause(c *call) (any, error) {
	body := c.body.(*NewPause)
	return c.setPause("pause", body.Kind, body.Name, body.Why, (*operate.Inbox).Pause)
}

func resume(c *call) (any, error) {
	return c.setPause("resume", c.text("kind"), c.text("name"), c.text("why"), (*operate.Inbox).Resume)
}

func (c *call) setPause(action, kind, name, why string, set func(*operate.Inbox, context.Context, dedup.Pause,
	operate.By) (bool, error)) (any, error) {
	p, err := dedup.PauseOf(dedup.PauseKind(kind), name)
	if err != nil {
		return nil, httpjson.Wrong("name", "kind is topic, partition or handler, and name is the topic's or the handler's, or TOPIC/N of a partition")
	}
	if c.checkText("name", name); c.fault != nil {
		return nil, c.fault
	}
	if fault := checkWhy(why); fault != nil {
		return nil, fault
	}
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	changed, err := set(store, c.ctx, p, operate.By{Actor: c.actor, Why: why})
	return view.PauseChangedOf(store.Name(), action, p, changed), err
}
