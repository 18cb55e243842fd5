package ingress

import (
	"encoding/json"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/request"
)

// told is a message as clients get it, by every route.
type told struct {
	ID             uuid.UUID       `json:"id" format:"uuid"`
	IdempotencyKey *string         `json:"idempotencyKey" doc:"The key that it was posted with, or the ID as its producer wrote it in Kafka; null: it has none but its UUID."`
	Topic          string          `json:"topic"`
	Tenant         string          `json:"tenant" doc:"Empty: it is of no tenant."`
	Key            *string         `json:"key"`
	KeyBase64      []byte          `json:"key_base64,omitempty" doc:"Instead of the key, where that is no text."`
	Headers        []header        `json:"headers"`
	Content        json.RawMessage `json:"content" doc:"Byte for byte as it is stored; null also where it is no JSON."`
	ContentBase64  []byte          `json:"content_base64,omitempty" doc:"Instead of the content, where that is no JSON."`
	Template       *Template       `json:"template" doc:"What the content was made of; null: it came as it is."`
	Participants   []participant   `json:"participants"`
	CreatedAt      time.Time       `json:"created_at"`
	Handlers       []toldHandler   `json:"handlers" doc:"What became of it for each of the topic's handlers."`
}

// toldHandler tells of a message at one of its topic's handlers.
type toldHandler struct {
	Name     string  `json:"name"`
	Status   string  `json:"status" enum:"pending,failed,processed,dead,gone" doc:"gone: it is kept no more."`
	Attempts int     `json:"attempts" minimum:"0"`
	Reason   *string `json:"reason" doc:"The code of the last failure."`
}

func (m *known) told() *told {
	t := &told{ID: m.ID, IdempotencyKey: orNil(m.RawID), Topic: m.Topic, Tenant: m.Tenant, CreatedAt: m.createdAt.UTC(),
		Headers: []header{}, Participants: []participant{}, Handlers: []toldHandler{}}
	if e := m.enqueued; e != nil {
		t.IdempotencyKey, t.Template = e.key, e.template
		t.Participants = append(t.Participants, e.participants...)
	}
	switch {
	case m.Key != nil && utf8.Valid(m.Key):
		t.Key = new(string(m.Key))
	default:
		t.KeyBase64 = m.Key
	}
	if json.Valid(m.Value) && utf8.Valid(m.Value) {
		t.Content = m.Value
	} else {
		t.ContentBase64 = m.Value
	}
	for _, h := range m.Headers {
		if utf8.Valid(h.Value) {
			t.Headers = append(t.Headers, header{Name: h.Key, Value: string(h.Value)})
		} else {
			t.Headers = append(t.Headers, header{Name: h.Key, Base64: h.Value})
		}
	}
	for _, s := range m.seenBy {
		t.Handlers = append(t.Handlers, toldHandler{s.handler, s.status(), s.attempts, orNil(s.reason)})
	}
	return t
}

func (s *seen) status() string {
	switch {
	case s.state == nil:
		return "gone"
	case *s.state == dedup.Dead:
		return "dead"
	case *s.state == dedup.Processed:
		return "processed"
	case s.attempts > 0:
		return "failed"
	}
	return "pending"
}

// accepted is the answer where nobody waits for handlers: the same at each try.
type accepted struct {
	RequestID uuid.UUID `json:"request_id" format:"uuid" doc:"The same at each try."`
	ID        uuid.UUID `json:"id" format:"uuid" doc:"The message's."`
}

// outcome is the answer to one message.
type outcome struct {
	Status   int              `json:"status" doc:"As if it had been posted alone."`
	Location string           `json:"location,omitempty" doc:"Where GET tells of it."`
	Replayed bool             `json:"replayed" doc:"It was there already."`
	Message  any              `json:"message,omitempty"` // told or accepted
	Problem  json.RawMessage  `json:"problem,omitempty"`
	problem  *request.Problem // where it is the only one
}

// toldMany is the answer to an array, in its order.
type toldMany struct {
	Messages []outcome `json:"messages"`
}

// answer tells the client what became of his messages.
func (x *exchange) answer(w *work) (*reply, *request.Problem) {
	if w.queued && x.prefersQueue() {
		x.w.Header().Set("Preference-Applied", "respond-async")
	}
	outcomes := make([]outcome, len(w.posted))
	told := map[uuid.UUID]bool{}
	for i, one := range w.posted {
		outcomes[i] = x.outcome(w, one, w.created[one.id] && !told[one.id])
		told[one.id] = true
	}
	if w.many {
		status := http.StatusOK
		if w.queued {
			status = http.StatusAccepted
		}
		for i := range outcomes {
			if p := outcomes[i].problem; p != nil {
				outcomes[i].Problem = p.Body(x.cfg.ProblemType, x.requestID)
			}
		}
		return &reply{status, toldMany{outcomes}}, nil
	}
	one := outcomes[0]
	if one.problem != nil {
		return nil, one.problem
	}
	x.w.Header().Set("Location", one.Location)
	if one.Replayed {
		x.w.Header().Set("Idempotency-Replayed", "true")
	}
	return &reply{one.Status, one.Message}, nil
}

func (x *exchange) outcome(w *work, one *posted, created bool) outcome {
	m := w.known[one.id]
	p := x.objection(m, one.item, created)
	if p != nil {
		return outcome{Status: p.Status, problem: p}
	}
	out := outcome{Status: http.StatusOK, Replayed: !created,
		Location: request.Path(x.r) + "/" + one.id.String()}
	switch {
	case w.queued || m == nil:
		out.Status, out.Message = http.StatusAccepted, accepted{one.id, one.id}
		return out
	case created:
		out.Status = http.StatusCreated
	}
	out.Message = m.told()
	return out
}

// objection refuses a message that must not be told; nil: it may be.
func (x *exchange) objection(m *known, it *item, created bool) *request.Problem {
	switch {
	case m == nil || created:
		return nil
	case !m.kept:
		return gone()
	case m.Topic != x.topic.name:
		return refusal(http.StatusConflict, codeConflict,
			"A handler of this topic has the idempotency key from another topic. Another message needs another key.")
	case x.topic.RefuseOther && isOther(m, it):
		return refusal(http.StatusConflict, codeConflict,
			"The idempotency key was sent before with something else. Another message needs another key.")
	}
	return nil
}
