package page

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"

	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

// list is what pages with a filter and a cursor have in common.
type list struct {
	Page   string
	Filter map[string]string // what was asked for, by the API's names
	Fault  string            // what is wrong with that
	Next   string            // the address of the next part; empty: there is none
	First  string            // and of the first; empty: this is it
}

// asked takes what the API is to be asked for from the address, of the parameters that are named.
func (v *visit) asked(names ...string) (list, url.Values) {
	l := list{Page: v.name, Filter: map[string]string{}}
	query := url.Values{}
	for _, name := range append(names, "cursor", "limit") {
		if text := v.r.URL.Query().Get(name); text != "" {
			query.Set(name, text)
			l.Filter[name] = text
		}
	}
	if l.Filter["cursor"] != "" {
		l.First = addressOf(v.name, without(query, "cursor"))
	}
	return l, query
}

// only are the parameters that are named.
func only(query url.Values, names ...string) url.Values {
	out := url.Values{}
	for _, name := range names {
		if values, ok := query[name]; ok {
			out[name] = values
		}
	}
	return out
}

func without(query url.Values, name string) url.Values {
	out := url.Values{}
	for n, values := range query {
		if n != name {
			out[n] = values
		}
	}
	return out
}

// goOn leads to the next part of a list.
func (l *list) goOn(query url.Values, next *string) {
	if next != nil {
		query = without(query, "cursor")
		query.Set("cursor", *next)
		l.Next = addressOf(l.Page, query)
	}
}

// messages are those of a status, which is one by default.
func (v *visit) messages(l *list, path string, query url.Values, status string) ([]apiview.Message, error) {
	query.Set("status", cmp.Or(query.Get("status"), status))
	l.Filter["status"] = query.Get("status")
	var found apiview.Messages
	if err := l.blame(v.get(path, query, &found)); err != nil {
		return nil, err
	}
	l.goOn(query, found.Next)
	return found.Messages, nil
}

// blame keeps what the API finds wrong with a filter, to be shown beside it; another error is given back.
func (l *list) blame(err error) error {
	known, ok := errors.AsType[*httpjson.Problem](err)
	if !ok || known.Status != http.StatusBadRequest && known.Status != http.StatusGatewayTimeout {
		return err
	}
	l.Fault = known.Detail
	if known.Parameter != "" {
		l.Fault = known.Parameter + ": " + known.Detail
	}
	return nil
}

// letterFilter are the parameters by which dead letters, and messages, are looked for.
var letterFilter = []string{"handler", "topic", "tenant", "reason", "id", "key", "since", "until"}

// deadPage lists dead letters.
type deadPage struct {
	list
	Groups  apiview.ErrorGroups // what those that match died of
	Letters []apiview.Message
}

func (v *visit) dead() (any, error) {
	l, query := v.asked(letterFilter...)
	p := deadPage{list: l}
	var found apiview.Messages
	if err := p.blame(v.get("/dead-letters", query, &found)); err != nil {
		return nil, err
	}
	p.Letters = found.Messages
	p.goOn(query, found.Next)
	if p.Fault != "" || p.First != "" || len(p.Letters) < 2 {
		return p, nil
	}
	err := v.get("/dead-letters/errors", only(query, letterFilter...), &p.Groups)
	return p, p.blame(err)
}

// waitingPage says what waits in Postgres.
type waitingPage struct {
	list
	Handlers []apiview.HandlerBacklog
	Groups   apiview.ErrorGroups // lanes, by what their first messages fail by
	Messages []apiview.Message
}

func (v *visit) waiting() (any, error) {
	l, query := v.asked("handler", "topic", "tenant", "reason", "status", "id")
	p := waitingPage{list: l}
	var backlog apiview.Backlog
	if err := v.get("/backlog", nil, &backlog); err != nil {
		return nil, err
	}
	p.Handlers = backlog.Handlers
	if err := v.get("/lanes/errors", only(query, "handler"), &p.Groups); err != nil {
		return nil, err
	}
	var err error
	p.Messages, err = v.messages(&p.list, "/messages", query, "failed")
	return p, err
}

// conflictsPage lists copies that came under a known ID with another content.
type conflictsPage struct {
	list
	Conflicts []apiview.Conflict
}

func (v *visit) conflicts() (any, error) {
	l, query := v.asked("handler", "topic", "tenant", "id", "key", "since", "until")
	p := conflictsPage{list: l}
	var found apiview.Conflicts
	if err := p.blame(v.get("/conflicts", query, &found)); err != nil {
		return nil, err
	}
	p.Conflicts = found.Conflicts
	p.goOn(query, found.Next)
	return p, nil
}

// auditPage lists what was done by hand.
type auditPage struct {
	list
	Of      string // outbox, or empty: the inbox
	Records []apiview.AuditRecord
}

func (v *visit) audit() (any, error) {
	l, query := v.asked("actor", "action", "since", "until")
	p := auditPage{list: l, Of: ofOutbox(v.r.URL.Query().Get("of"))}
	var found apiview.Audit
	if err := p.blame(v.get(ofPath(p.Of, "/audit"), query, &found)); err != nil {
		return nil, err
	}
	p.Records = found.Audit
	if p.Of != "" {
		query.Set("of", p.Of)
	}
	if p.goOn(query, found.Next); p.First != "" {
		p.First = addressOf(p.Page, without(query, "cursor"))
	}
	return p, nil
}

// pausesPage lists what is paused; the outbox's is by itself.
type pausesPage struct{ Inbox, Outbox []apiview.Pause }

func (v *visit) pauses() (any, error) {
	var inbox, outbox apiview.Pauses
	if err := v.get("/pauses", nil, &inbox); err != nil {
		return nil, err
	}
	err := v.get("/outbox/pauses", nil, &outbox)
	return pausesPage{inbox.Pauses, outbox.Pauses}, err
}

func (v *visit) size() (any, error) {
	var s apiview.Size
	err := v.get("/size", nil, &s)
	return s, err
}

// outboxPage says what waits to be sent.
type outboxPage struct {
	list
	Topics   []apiview.TopicBacklog
	Messages []apiview.Message
}

func (v *visit) outbox() (any, error) {
	l, query := v.asked("handler", "topic", "tenant", "reason", "status", "id")
	p := outboxPage{list: l}
	var backlog apiview.OutboxBacklog
	if err := v.get("/outbox/backlog", nil, &backlog); err != nil {
		return nil, err
	}
	p.Topics = backlog.Topics
	var err error
	p.Messages, err = v.messages(&p.list, "/outbox/messages", query, "dead")
	return p, err
}
