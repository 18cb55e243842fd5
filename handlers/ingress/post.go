package ingress

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/request"
	"github.com/firstseen/firstseen/handlers"
)

// posted is one message of a request.
type posted struct {
	*item
	id      uuid.UUID
	message *dedup.Message // nil until its template is resolved
}

// work has a request's messages, and what is found out about them.
type work struct {
	posted  []*posted
	many    bool // they came as an array
	queued  bool // their handlers are not waited for
	known   map[uuid.UUID]*known
	created map[uuid.UUID]bool // by this request
}

// post makes messages of what a client has written, or finds that they are there.
func (x *exchange) post() (*reply, *request.Problem) {
	body, p := request.Read(x.w, x.r, x.cfg.MaxBytes, x.cfg.ReadTime)
	if p != nil {
		return nil, p
	}
	w, p := x.begin(body)
	if p != nil {
		return nil, p
	}
	if p := x.settle(w); p != nil {
		return nil, p
	}
	x.tell(w)
	return x.answer(w)
}

// settle finds the messages, or makes them. A twin that is being worked on is waited for.
func (x *exchange) settle(w *work) *request.Problem {
	waiting, cancel := context.WithTimeout(x.r.Context(), x.cfg.WorkTime)
	defer cancel()
	land, err := x.flights.take(waiting, x.caller.Tenant, w.ids())
	if err != nil {
		return x.later(codeBusy, "The same message is being worked on. Send it again.")
	}
	defer land()
	leave, free := x.places.Take()
	if !free {
		return x.busy()
	}
	defer leave()
	ctx := context.WithoutCancel(x.r.Context()) // who hangs up loses nothing
	found, now, err := x.find(ctx, w.ids())
	if err != nil {
		return x.failed("find messages", err, "Whether this was sent before can't be found out. Nothing was done.")
	}
	w.known = found
	fresh := x.fresh(w)
	switch {
	case len(fresh) == 0:
		return nil
	case x.topic.backlog.full(ctx):
		return x.later(codeBacklog,
			"Too many messages of this topic wait for their handlers. Nothing was done.")
	}
	return x.create(ctx, w, fresh, now)
}

// begin takes a body apart, and names its messages.
func (x *exchange) begin(body []byte) (*work, *request.Problem) {
	items, many, p := x.items(body)
	if p != nil {
		return nil, p
	}
	w := &work{many: many, queued: x.topic.Queued || x.prefersQueue(), created: map[uuid.UUID]bool{}}
	for i, it := range items {
		one, p := x.named(it)
		if p != nil && many {
			return nil, ofItem(i, p)
		} else if p != nil {
			return nil, p
		}
		w.posted = append(w.posted, one)
	}
	return w, nil
}

// prefersQueue looks for respond-async (RFC 7240).
func (x *exchange) prefersQueue() bool {
	for _, list := range x.r.Header.Values("Prefer") {
		for preference := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(preference, ";")
			if strings.EqualFold(strings.TrimSpace(name), "respond-async") {
				return true
			}
		}
	}
	return false
}

func (w *work) ids() []uuid.UUID {
	ids := make([]uuid.UUID, len(w.posted))
	for i, one := range w.posted {
		ids[i] = one.id
	}
	return ids
}

// fresh are the messages that are not known yet, each once.
func (x *exchange) fresh(w *work) (fresh []*posted) {
	taken := map[uuid.UUID]bool{}
	for _, one := range w.posted {
		if !taken[one.id] && x.isFresh(w.known[one.id]) {
			taken[one.id] = true
			fresh = append(fresh, one)
		}
	}
	return fresh
}

// isFresh says that a message has something to do for a handler. One that came by Kafka and that some handlers of the
// topic have not seen is given to those, as it would be if it came by Kafka again. One that came by HTTP is not,
// whatever handlers the topic has got since: a replay does nothing.
func (x *exchange) isFresh(m *known) bool {
	return m == nil || m.kept && m.enqueued == nil && len(m.seenBy) < len(x.topic.handlers)
}

// create takes new messages through their transaction, and finds out what has become of all.
func (x *exchange) create(ctx context.Context, w *work, fresh []*posted, now int64) *request.Problem {
	paused, _ := x.cfg.Processor.Paused(x.topic.name, noPartition)
	batch := handlers.Batch{Queued: w.queued || paused}
	itemOf := map[uuid.UUID]*item{}
	for i, one := range fresh {
		if p := x.complete(one); p != nil {
			return p
		}
		m := *one.message
		m.Offset = now + int64(i)
		batch.Messages, itemOf[m.ID] = append(batch.Messages, m), one.item
	}
	batch.Created = func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		clear(w.created) // the transaction may be run again
		for i := range ms {
			w.created[ms[i].ID] = true
		}
		return x.note(ctx, tx, ms, itemOf)
	}
	lost := x.process(ctx, w, batch)
	found, _, err := x.find(ctx, w.ids())
	if lost != nil {
		clear(w.created)
	}
	for _, one := range fresh {
		if lost != nil && found[one.id] == nil { // else it was committed, and only that was not heard
			return x.failed("process messages", lost,
				"This was not kept, or it is not known whether it was. Send it again with the same key to find out.")
		}
	}
	if err != nil {
		x.cfg.Logger.WarnContext(ctx, "a message was created, and can't be read", "request_id", x.requestID, "error", err)
		found = map[uuid.UUID]*known{}
	}
	w.known = found
	return nil
}

// complete makes the message of an item whose template was not resolved yet.
func (x *exchange) complete(one *posted) *request.Problem {
	if one.message != nil {
		return nil
	}
	if p := x.resolve(one.item); p != nil {
		return p
	}
	m, p := x.message(one.item)
	switch {
	case p != nil:
		return p
	case m.ID != one.id:
		return refusal(http.StatusUnprocessableEntity, codeTemplate, "What the template gives has another ID than its key.")
	}
	one.message = &m
	return nil
}

// process has the topic's handlers handle new messages. What takes them too long, or may be the doing of one of the
// messages, is left to workers of lanes.
func (x *exchange) process(ctx context.Context, w *work, b handlers.Batch) error {
	limited, cancel := context.WithTimeout(ctx, x.cfg.WorkTime)
	defer cancel()
	_, err := x.cfg.Processor.Process(limited, b)
	switch {
	case err == nil:
		return nil
	case limited.Err() != nil && !b.Queued:
		b.Queued = true
	case x.cfg.Processor.Suspicious(ctx, err):
		b.Apart = true
	default:
		return err
	}
	clear(w.created)
	again, cancelAgain := context.WithTimeout(ctx, x.store.timeout)
	defer cancelAgain()
	_, err = x.cfg.Processor.Process(again, b)
	w.queued = w.queued || len(w.created) > 0 // else the first one was committed, and only that was not heard
	return err
}

// isOther says that a message is not what was asked for this time.
func isOther(m *known, it *item) bool {
	if m.enqueued != nil {
		return !bytes.Equal(m.enqueued.hash, it.hash)
	}
	same := identity.FingerprintJSON.Of
	return it.Template != nil || !bytes.Equal(same(m.Value), same(it.Content))
}
