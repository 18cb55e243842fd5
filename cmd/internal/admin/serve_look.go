package admin

import (
	"time"

	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/cmd/internal/view"
	"github.com/firstseen/firstseen/dedup/operate"
)

// How much is shown of a key, of the headers and of a value, in a list and where one message is asked for; and how much in
// a list of them all. As JSON it may be six times as much.
const (
	listedBytes = 64 << 10
	singleBytes = 1 << 20
	answerBytes = 4 << 20
)

func getStatus(c *call) (any, error) {
	s := c.server
	cfg := s.cfg.Live.Load()
	status, parts := s.status()
	out := view.StatusOf(s.cfg.Version, &cfg, s.started, time.Now(), &status)
	if parts != nil {
		out.Totals, out.Window = view.TotalsOf(parts.Totals()), view.WindowOf(parts.Window.Rates())
	}
	return out, nil
}

func getPartitions(c *call) (any, error) {
	status, _ := c.server.status()
	return view.PartitionsOf(&status), nil
}

func getBacklog(c *call) (any, error) {
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	backlog, err := store.Backlog(c.ctx)
	return view.BacklogOf(backlog), err
}

func getSize(c *call) (any, error) {
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	size, err := store.Size(c.ctx)
	return view.SizeOf(&size, c.server.cfg.Live.Load()), err
}

func listMessages(c *call) (any, error) {
	status := operate.Status(c.text("status"))
	if status == operate.StatusProcessed && c.has("reason") {
		c.refuse("reason", "processed messages have none; take it out, or ask for status=failed or status=dead")
	}
	return c.list(status)
}

func listDeadLetters(c *call) (any, error) { return c.list(operate.StatusDead) }

func (c *call) list(status operate.Status) (any, error) {
	l := operate.Listing{Status: status, Filter: c.filter(), Content: c.boolean("content")}
	most := maxPage
	if l.Content {
		most = maxWhole
	}
	l.After, l.Limit = c.page(most)
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	found, next, err := store.Messages(c.ctx, l)
	return view.MessagesOf(found, next, c.contentLimit(len(found))), err
}

// contentLimit is how much of each key, headers and value a list of so many shows.
func (c *call) contentLimit(messages int) int {
	if c.boolean("content") {
		return min(listedBytes, answerBytes/(3*max(1, messages)))
	}
	return 0
}

func getDeadLetter(c *call) (any, error) {
	l := operate.Listing{Status: operate.StatusDead, Limit: 1, Content: true,
		Filter: operate.Filter{Handler: c.text("handler"), Tenant: c.text("tenant"), IDs: c.ids("id")}}
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	found, _, err := store.Messages(c.ctx, l)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, httpjson.Errorf(404, "handler %s has no dead letter of this ID; /api/v1/explain tells what became of it",
			httpjson.Brief(c.text("handler")))
	}
	return view.MessageOf(&found[0], singleBytes), nil
}

func listConflicts(c *call) (any, error) {
	filter, most := c.filter(), maxPage
	if c.boolean("content") {
		most = maxWhole
	}
	after, limit := c.page(most)
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	found, next, err := store.Conflicts(c.ctx, filter, after, limit)
	return view.ConflictsOf(found, next, c.contentLimit(len(found))), err
}

func explain(c *call) (any, error) {
	byID, byPlace := c.has("id"), c.has("topic") || c.has("partition") || c.has("offset")
	partition, offset, since := c.number("partition", 0, 1<<31-1, -1), c.number("offset", 0, 1<<63-1, -1), c.time("since")
	switch {
	case byID == byPlace:
		c.refuse("id", "give either an id, or topic, partition and offset")
	case byPlace && (c.text("topic") == "" || partition < 0 || offset < 0):
		c.refuse("topic", "a place is topic, partition and offset, all three")
	}
	ids := c.ids("id")
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	var e operate.Explanation
	if byID {
		e, err = store.ExplainID(c.ctx, ids...)
	} else {
		e, err = store.ExplainPlace(c.ctx, c.text("topic"), int32(partition), offset, since)
	}
	if err != nil {
		return nil, err
	}
	return view.ExplanationOf(&e), nil
}

func listPauses(c *call) (any, error) {
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	pauses, err := store.Pauses(c.ctx)
	return view.PausesOf(store.Name(), pauses), err
}

func listAudit(c *call) (any, error) {
	filter := operate.AuditFilter{Actor: c.text("actor"), Action: c.text("action"), From: c.time("since"),
		To: c.time("until")}
	after, limit := c.page(maxPage)
	store, err := c.inbox()
	if err != nil {
		return nil, err
	}
	records, next, err := store.Audit(c.ctx, filter, after, limit)
	return view.AuditOf(records, next), err
}
