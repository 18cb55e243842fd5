package admin

import (
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/request"
)

// How much is shown of a key, of the headers and of a value, in a list and where one message is asked for; and how
// much in a list of them all. As JSON it may be six times as much.
const (
	listedBytes = 64 << 10
	singleBytes = 1 << 20
	answerBytes = 4 << 20
)

func getStatus(c *call, _ *struct{}) (view.Status, error) { return c.api.service.Describe(), nil }

func getHistory(c *call, _ *struct{}) (view.History, error) { return c.api.service.History(), nil }

type doctorInput struct {
	Wait bool `query:"wait" default:"true" doc:"Wait for the look that is under way, up to 20 seconds; false answers at once, with what was found before."`
}

func getFindings(c *call, in *doctorInput) (view.Findings, error) {
	patience := time.Duration(0)
	if in.Wait {
		patience = readLimit
	}
	found, err := c.api.service.Examine(c.request.Context(), patience)
	if errors.Is(err, service.ErrNoDoctor) {
		return found, httpjson.Errorf(http.StatusNotImplemented, "this program does not look by itself; where its config is, "+
			"`firstseen doctor --config FILE` does, or `firstseen doctor --dsn DSN` for what Postgres tells")
	}
	return found, err
}

func getAccess(c *call, _ *struct{}) (view.Access, error) {
	who, _ := c.request.Context().Value(clientKey{}).(client)
	return view.Access{Client: who.name, MayChange: who.role == writer}, nil
}

func getPartitions(c *call, _ *struct{}) (view.Partitions, error) {
	status := c.api.service.Status()
	return view.PartitionsOf(&status), nil
}

// maxPositions caps the positions that are told.
const maxPositions = 5000

func getPositions(c *call, _ *struct{}) (out view.Positions, _ error) {
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	positions, err := store.AllPositions(c.ctx, maxPositions+1)
	if err != nil {
		return out, err
	}
	told, err := store.Holds(c.ctx)
	return view.PositionsOf(positions, maxPositions, told), err
}

func getBacklog(c *call, _ *struct{}) (out view.Backlog, _ error) {
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	backlog, err := store.Backlog(c.ctx)
	return view.BacklogOf(backlog), err
}

func getOutboxBacklog(c *call, _ *struct{}) (out view.OutboxBacklog, _ error) {
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	backlog, err := store.OutboxBacklog(c.ctx)
	return view.OutboxBacklogOf(backlog), err
}

func getSize(c *call, _ *struct{}) (out view.Size, _ error) {
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	size, err := store.Size(c.ctx)
	of := c.api.service.Settings()
	return view.SizeOf(&size, of.Capacity, of.Retention.IDs, of.Retention.Inbox), err
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
	store, err := c.finding(&l.Filter)
	if err != nil {
		return out, err
	}
	found, next, err := store.Messages(c.ctx, l)
	return view.MessagesOf(found, next, c.looks(in.contentLimit(len(found)))), err
}

// contentLimit bounds each key, headers and value that a list of so many messages shows, in bytes.
func (l *ListInput) contentLimit(messages int) int {
	if l.Content {
		return min(listedBytes, answerBytes/(3*max(1, messages)))
	}
	return 0
}

type groupInput struct {
	FilterInput
	Reason string `query:"reason" doc:"The code of the last failure."`
}

func groupDeadLetters(c *call, in *groupInput) (out view.ErrorGroups, _ error) {
	in.filter.Reason = in.Reason
	store, err := c.finding(&in.filter)
	if err != nil {
		return out, err
	}
	groups, more, err := store.DeadGroups(c.ctx, in.filter)
	return view.ErrorGroupsOf(groups, more, in.Topic, c.rules), err
}

type laneInput struct {
	Handler string `query:"handler" doc:"The handler's name. Empty picks all handlers."`
}

func groupLanes(c *call, in *laneInput) (out view.ErrorGroups, _ error) {
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	groups, more, err := store.LaneGroups(c.ctx, in.Handler)
	return view.ErrorGroupsOf(groups, more, "", c.rules), err
}

type letterInput struct {
	Handler string `path:"handler" doc:"The handler's name."`
	ID      string `path:"id" pattern:"^[^\\x00]*[^\\x00-\\x20][^\\x00]*$" patternDescription:"an ID, which is not blank" doc:"The ID as the producer wrote it, or the message's UUID."`
	Tenant  string `query:"tenant" doc:"The tenant. Empty picks all tenants."`
}

// inboxOf is the inbox, for who looks there for a message by its ID, and the UUIDs that the ID may stand for.
func (c *call) inboxOf(id string) (store *operate.Inbox, ids []uuid.UUID, err error) {
	if ids, err = parseIDs("id", []string{id}); err == nil {
		store, err = c.inbox()
	}
	return store, ids, err
}

func getDeadLetter(c *call, in *letterInput) (out view.Message, err error) {
	store, ids, err := c.inboxOf(in.ID)
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
	return view.MessageOf(&found[0], c.looks(singleBytes)), nil
}

type explainInput struct {
	ID        string          `query:"id" doc:"The ID as the producer wrote it, or the message's UUID."`
	Topic     string          `query:"topic" doc:"The topic's name."`
	Partition optional[int32] `query:"partition" minimum:"-1" maximum:"2147483647" doc:"The partition's number; -1 is that of what came by HTTP."`
	Offset    optional[int64] `query:"offset" minimum:"0" doc:"The message's offset."`
	Since     moment          `query:"since" doc:"How far back to look for an offset. Default 48h."`
	Key       string          `header:"Idempotency-Key" doc:"Asked for instead: the key of an HTTP request. In a header, for logs have the query."`
	Tenant    string          `query:"tenant" doc:"Whose key it is. Empty picks all tenants."`
}

func explain(c *call, in *explainInput) (out view.Explanation, _ error) {
	byID, byPlace := in.ID != "", in.Topic != "" || in.Partition.given || in.Offset.given
	if in.Key != "" {
		return c.explainKey(in)
	}
	switch {
	case in.Tenant != "":
		return out, httpjson.Wrong("tenant", "narrows an idempotency key only")
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
	return view.ExplanationOf(&e, c.rules), err
}

// explainKey is explain for an idempotency key.
func (c *call) explainKey(in *explainInput) (out view.Explanation, _ error) {
	if in.ID != "" || in.Partition.given || in.Offset.given {
		return out, httpjson.Wrong("Idempotency-Key", "is asked for alone, or with tenant and topic")
	}
	key, err := request.ParseKey(in.Key)
	if err != nil {
		return out, httpjson.Wrong("Idempotency-Key", "%v", err)
	}
	store, err := c.inbox()
	if err != nil {
		return out, err
	}
	e, err := store.ExplainKey(c.ctx, key, operate.KeyFilter{Tenant: in.Tenant, Topic: in.Topic})
	return view.ExplanationOf(&e, c.rules), err
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
