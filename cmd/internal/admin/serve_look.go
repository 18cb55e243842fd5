package admin

import (
	"time"

	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/cmd/internal/view"
	"github.com/firstseen/firstseen/dedup/operate"
)

// How much is shown of a key, of the headers and of a value, in a list and where one message is asked for; and how
// much in a list of them all. As JSON it may be six times as much.
const (
	listedBytes = 64 << 10
	singleBytes = 1 << 20
	answerBytes = 4 << 20
)

func getStatus(c *call, _ *struct{}) (view.Status, error) {
	s := c.server
	cfg := s.cfg.Live.Load()
	status, parts := s.status()
	out := view.StatusOf(s.cfg.Version, &cfg, s.started, time.Now(), &status)
	if parts != nil {
		out.Totals, out.Window = view.TotalsOf(parts.Totals()), view.WindowOf(parts.Window.Rates())
	}
	return out, nil
}

func getPartitions(c *call, _ *struct{}) (view.Partitions, error) {
	status, _ := c.server.status()
	return view.PartitionsOf(&status), nil
}

func getBacklog(c *call, _ *struct{}) (out view.Backlog, _ error) {
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	backlog, err := store.Backlog(c.ctx)
	return view.BacklogOf(backlog), err
}

func getSize(c *call, _ *struct{}) (out view.Size, _ error) {
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	size, err := store.Size(c.ctx)
	return view.SizeOf(&size, c.server.cfg.Live.Load()), err
}

type messagesInput struct {
	Status string `query:"status" required:"true" enum:"pending,failed,processed,dead" doc:"What has become of the messages."`
	LettersInput
}

type LettersInput struct {
	ListInput
	Reason string `query:"reason" doc:"The code of the last failure."`
}

func listMessages(c *call, in *messagesInput) (out view.Messages, _ error) {
	status := operate.Status(in.Status)
	if status == operate.StatusProcessed && in.Reason != "" {
		return out, httpjson.Wrong("reason",
			"processed messages have none; take it out, or ask for status=failed or status=dead")
	}
	return c.list(status, &in.LettersInput)
}

func listDeadLetters(c *call, in *LettersInput) (view.Messages, error) {
	return c.list(operate.StatusDead, in)
}

func (c *call) list(status operate.Status, in *LettersInput) (out view.Messages, err error) {
	l := operate.Listing{Status: status, Filter: in.filter, Content: in.Content}
	l.Filter.Reason = in.Reason
	if l.After, l.Limit, err = in.page(); err != nil {
		return out, err
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	found, next, err := store.Messages(c.ctx, l)
	return view.MessagesOf(found, next, in.contentLimit(len(found))), err
}

// contentLimit is how much of each key, headers and value a list of so many shows.
func (l *ListInput) contentLimit(messages int) int {
	if l.Content {
		return min(listedBytes, answerBytes/(3*max(1, messages)))
	}
	return 0
}

type letterInput struct {
	Handler string `path:"handler" doc:"The handler's name."`
	ID      string `path:"id" doc:"The ID as the producer wrote it, or the message's UUID."`
	Tenant  string `query:"tenant" doc:"The tenant. Empty picks all tenants."`
}

func getDeadLetter(c *call, in *letterInput) (out view.Message, err error) {
	ids, err := parseIDs("id", []string{in.ID})
	if err != nil {
		return out, err
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	found, _, err := store.Messages(c.ctx, operate.Listing{Status: operate.StatusDead, Limit: 1, Content: true,
		Filter: operate.Filter{Handler: in.Handler, Tenant: in.Tenant, IDs: ids}})
	switch {
	case err != nil:
		return out, err
	case len(found) == 0:
		return out, httpjson.Errorf(404, "handler %s has no dead letter of this ID; "+
			"/api/v1/explain tells what became of it", httpjson.Brief(in.Handler))
	}
	return view.MessageOf(&found[0], singleBytes), nil
}

func listConflicts(c *call, in *ListInput) (out view.Conflicts, _ error) {
	after, limit, err := in.page()
	if err != nil {
		return out, err
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	found, next, err := store.Conflicts(c.ctx, in.filter, after, limit)
	return view.ConflictsOf(found, next, in.contentLimit(len(found))), err
}

type explainInput struct {
	ID        string          `query:"id" doc:"The ID as the producer wrote it, or the message's UUID."`
	Topic     string          `query:"topic" doc:"The topic's name."`
	Partition optional[int32] `query:"partition" minimum:"0" maximum:"2147483647" doc:"The partition's number."`
	Offset    optional[int64] `query:"offset" minimum:"0" doc:"The message's offset."`
	Since     moment          `query:"since" doc:"How far back to look for an offset. Default 48h."`
}

func explain(c *call, in *explainInput) (out view.Explanation, _ error) {
	byID, byPlace := in.ID != "", in.Topic != "" || in.Partition.given || in.Offset.given
	switch {
	case byID == byPlace:
		return out, httpjson.Wrong("id", "give either an id, or topic, partition and offset")
	case byPlace && (in.Topic == "" || !in.Partition.given || !in.Offset.given):
		return out, httpjson.Wrong("topic", "a place is topic, partition and offset, all three")
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	var e operate.Explanation
	if byID {
		ids, wrong := parseIDs("id", []string{in.ID})
		if wrong != nil {
			return out, wrong
		}
		e, err = store.ExplainID(c.ctx, ids...)
	} else {
		e, err = store.ExplainPlace(c.ctx, in.Topic, in.Partition.value, in.Offset.value, in.Since.Time)
	}
	return view.ExplanationOf(&e), err
}

func listPauses(c *call, _ *struct{}) (out view.Pauses, _ error) {
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	pauses, err := store.Pauses(c.ctx)
	return view.PausesOf(store.Name(), pauses), err
}

type auditInput struct {
	Actor  string `query:"actor" doc:"Exactly as it is in the audit."`
	Action string `query:"action" doc:"redrive, discard, pause, resume and the like."`
	Since  moment `query:"since" doc:"Not before this time."`
	Until  moment `query:"until" doc:"Before this time."`
	PageInput
}

func listAudit(c *call, in *auditInput) (out view.Audit, _ error) {
	after, limit, err := in.read(maxPage)
	if err != nil {
		return out, err
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	records, next, err := store.Audit(c.ctx,
		operate.AuditFilter{Actor: in.Actor, Action: in.Action, From: in.Since.Time, To: in.Until.Time}, after, limit)
	return view.AuditOf(records, next), err
}
