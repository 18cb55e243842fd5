package admin

import (
	"net/http"

	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

// looks shows contents up to a limit: values are decoded as the consumer does, and what is to be hidden is.
func (c *call) looks(limit int) view.Look {
	look := view.Look{Limit: limit, Mask: c.rules}
	if c.formats != nil {
		look.Decode = view.By(c.ctx, c.formats)
	}
	return look
}

// finding is the inbox, for who looks for messages by a filter. Nobody is to find out by it what is hidden.
func (c *call) finding(f *operate.Filter) (*operate.Inbox, error) {
	if f.Key != nil && c.rules.HidesKey(f.Topic) {
		return nil, httpjson.Errorf(http.StatusForbidden, "keys are hidden, and who may look for one could guess it: look by "+
			"id, or give a topic whose keys are shown; see http.mask.keys in the config")
	}
	return c.inbox()
}

func listConflicts(c *call, in *ListInput) (out view.Conflicts, _ error) {
	after, limit, err := in.page()
	if err != nil {
		return out, err
	}
	store, err := c.finding(&in.filter)
	if err != nil {
		return out, err
	}
	found, next, err := store.Conflicts(c.ctx, in.filter, after, limit)
	return view.ConflictsOf(found, next, c.looks(in.contentLimit(len(found)))), err
}

// maxCopies caps the conflicts of an ID that are shown at once.
const maxCopies = 100

func getConflicts(c *call, in *letterInput) (out view.ConflictPairs, _ error) {
	store, ids, err := c.inboxOf(in.ID)
	if err != nil {
		return out, err
	}
	found, _, err := store.Conflicts(c.ctx, operate.Filter{Handler: in.Handler, Tenant: in.Tenant, IDs: ids}, "", maxCopies)
	switch {
	case err != nil:
		return out, err
	case len(found) == 0:
		return out, httpjson.Errorf(http.StatusNotFound, "handler %s has no conflict of this ID; "+
			"/api/v1/explain tells what became of it", httpjson.Brief(in.Handler))
	}
	look := c.looks(min(singleBytes, answerBytes/(6*len(found))))
	for i := range found {
		first, err := store.Winner(c.ctx, found[i])
		if err != nil {
			return out, err
		}
		out.Conflicts = append(out.Conflicts, view.ConflictPairOf(&found[i], first, look))
	}
	return out, nil
}

// NewUnmask is a request's body: what is to be shown.
type NewUnmask struct {
	_ struct{} `additionalProperties:"false"`

	ID      string `json:"id" pattern:"^[^\\x00]*[^\\x00-\\x20][^\\x00]*$" patternDescription:"an ID, which is not blank" doc:"The ID as the producer wrote it, or the message's UUID."`
	Handler string `json:"handler,omitempty" doc:"The handler's name, or the destination's. Empty picks all."`
	Tenant  string `json:"tenant,omitempty" doc:"The tenant. Empty picks all tenants."`
	Why     string `json:"why" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a text that is not blank" doc:"What for; kept in the audit."`
}

func unmask(c *call, in *struct{ Body NewUnmask }) (out view.Unmasked, _ error) {
	body := &in.Body
	ids, err := parseIDs("id", []string{body.ID})
	if err == nil {
		err = checkWhy(body.Why)
	}
	for name, text := range map[string]string{"handler": body.Handler, "tenant": body.Tenant} {
		if fault := httpjson.CheckText(name, text); err == nil && fault != nil {
			err = fault
		}
	}
	if err != nil {
		return out, err
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	found, err := store.Unmask(c.ctx, body.Handler, body.Tenant, ids, operate.By{Actor: c.actor, Why: body.Why})
	switch {
	case err != nil:
		return out, err
	case found == nil:
		return out, httpjson.Errorf(http.StatusNotFound, "there is no such message; /api/v1/explain tells what became of it")
	}
	c.api.log.Info("a message is shown with what is hidden of it", "inbox", store.Name(), "handler", body.Handler, "actor", c.actor)
	messages := len(found.Waiting)
	for i := range found.Seen {
		messages += 1 + len(found.Seen[i].Conflicts)
	}
	look := c.looks(min(singleBytes, answerBytes/(3*messages)))
	look.Mask = nil
	return view.UnmaskedOf(found, look), nil
}
