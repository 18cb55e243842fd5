package ingress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/request"
	"github.com/firstseen/firstseen/handlers/apipage"
)

// The codes of problems. They don't change.
const (
	codeUnauthorized = "unauthorized"
	codeForbidden    = "forbidden"
	codeNotFound     = "not_found"
	codeMethod       = "method_not_allowed"
	codeHeaders      = "headers_too_many"
	codeNotJSON      = "not_json"
	codeKey          = "idempotency_key_invalid"
	codeConflict     = "idempotency_key_conflict"
	codeInvalid      = "message_invalid"
	codeTemplate     = "template_not_resolved"
	codeGone         = "message_gone"
	codeBusy         = request.CodeBusy
	codeBacklog      = "backlog_full"
	codeUnavailable  = "unavailable"
	codeFailed       = "failed"
)

// maxHeaders caps a request's header fields. How large they are is the server's to bound.
const maxHeaders = 100

type ingress struct {
	cfg    Config
	topics map[string]*topic
	store  *store
	events *events
	bodies request.Places // of requests, that arrive or are here
	places request.Places // of requests that are worked on

	flights flights
}

// topic is one that messages may be posted to.
type topic struct {
	Topic
	name     string
	handlers []string
	backlog  backlog
}

// exchange is one request and its answer.
type exchange struct {
	*ingress
	w         http.ResponseWriter
	r         *http.Request
	requestID string
	caller    Caller
	topic     *topic
}

// The paths of routes. A path of a message is that of its topic's messages and its ID.
const (
	messagesPath = "/v1/topics/{topic}/messages"
	documentPath = "/v1/openapi.json"
	pagePath     = "/v1/try" // beside the document, where the page looks for it
)

func (in *ingress) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+messagesPath, in.serve(atTopic((*exchange).post)))
	mux.HandleFunc("GET "+messagesPath+"/{id}", in.serve(atTopic((*exchange).get)))
	mux.HandleFunc("GET "+documentPath, in.serve((*exchange).document))
	mux.Handle("GET "+pagePath, apipage.Handler())
	mux.HandleFunc(messagesPath, in.refuse(http.MethodPost))
	for _, path := range []string{messagesPath + "/{id}", documentPath, pagePath} {
		mux.HandleFunc(path, in.refuse("GET, HEAD"))
	}
	mux.HandleFunc("/", in.refuse(""))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(request.IDHeader, request.ID(w, r)) // also where the mux itself answers
		mux.ServeHTTP(w, r)
	})
}

// refuse answers what is no route; allowed are the methods that the path takes.
func (in *ingress) refuse(allowed string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := refusal(http.StatusNotFound, codeNotFound, "There is nothing at this path.")
		if allowed != "" {
			w.Header().Set("Allow", allowed)
			p = refusal(http.StatusMethodNotAllowed, codeMethod, "This path takes "+allowed+".")
		}
		p.Write(w, in.cfg.ProblemType, request.ID(w, r))
	}
}

func refusal(status int, code, detail string) *request.Problem {
	return &request.Problem{Status: status, Code: code, Detail: detail}
}

// answering makes a request's reply, or the problem that refuses it.
type answering func(*exchange) (*reply, *request.Problem)

// reply is an answer that is yet to be written. Who reads slowly holds nothing but his connection.
type reply struct {
	status int
	value  any
}

// serve has a request answered of which it is known who calls.
func (in *ingress) serve(answer answering) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{ingress: in, w: w, r: r, requestID: request.ID(w, r)}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		a, p := x.answered(answer)
		if p == nil {
			p = x.write(a)
		}
		if p != nil {
			x.count(p.Status, p.Code)
			p.Write(w, in.cfg.ProblemType, x.requestID)
			return
		}
		x.count(a.status, "")
	}
}

// answered finds out who calls, and how the request is answered. What panics on the way there, a function of the
// program's that makes content of a template, say, is a fault of the service.
func (x *exchange) answered(answer answering) (a *reply, p *request.Problem) {
	defer func() {
		if v := recover(); v != nil {
			x.cfg.Logger.ErrorContext(x.r.Context(), "ingress failed", "request_id", x.requestID, "error",
				fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
			p = refusal(http.StatusInternalServerError, codeFailed,
				"This failed, and it is not known whether anything was kept. Send it again with the same key to find out.")
		}
	}()
	if p := x.identify(); p != nil {
		return nil, p
	}
	return answer(x)
}

// identify finds out who calls.
func (x *exchange) identify() *request.Problem {
	fields := 0
	for _, values := range x.r.Header {
		fields += len(values)
	}
	if fields > maxHeaders {
		return refusal(http.StatusRequestHeaderFieldsTooLarge, codeHeaders, "The request has too many header fields.")
	}
	caller, err := x.cfg.Caller(x.r)
	if err == nil {
		err = caller.fault()
	}
	if err != nil {
		x.cfg.Logger.InfoContext(x.r.Context(), "request without a caller", "request_id", x.requestID, "error", err)
		x.w.Header().Set("WWW-Authenticate", `Bearer realm="firstseen"`)
		return refusal(http.StatusUnauthorized, codeUnauthorized, "It is not known who calls.")
	}
	x.caller = caller
	return nil
}

// atTopic lets requests through whose topic is open to their callers, so many at once.
func atTopic(answer answering) answering {
	return func(x *exchange) (*reply, *request.Problem) {
		if p := x.admit(); p != nil {
			return nil, p
		}
		leave, free := x.bodies.Take()
		if !free {
			return nil, x.busy()
		}
		defer leave()
		return answer(x)
	}
}

// admit finds the topic, and whether it is open to the caller.
func (x *exchange) admit() *request.Problem {
	x.topic = x.topics[x.r.PathValue("topic")]
	switch {
	case x.topic == nil:
		return refusal(http.StatusNotFound, codeNotFound, "There is no such topic here.")
	case (x.topic.TenantHeader == "") != (x.caller.Tenant == ""):
		return refusal(http.StatusForbidden, codeForbidden,
			"The topic's messages are of tenants and this caller is of none, or the other way round.")
	}
	return nil
}

func (x *exchange) busy() *request.Problem {
	return x.later(codeBusy, "Too many requests are being worked on. Nothing was done.")
}

// later is a problem that passes.
func (x *exchange) later(code, detail string) *request.Problem {
	return &request.Problem{Status: http.StatusServiceUnavailable, Code: code, Detail: detail,
		Retry: x.cfg.RetryAfter}
}

// write answers with JSON.
func (x *exchange) write(a *reply) *request.Problem {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(a.value); err != nil {
		return x.failed("write the answer", err, "The answer can't be written.")
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(a.status)
	_, _ = x.w.Write(text.Bytes())
	return nil
}

// failed is the answer where Postgres could not be asked, or did not answer.
func (x *exchange) failed(doing string, err error, detail string) *request.Problem {
	x.cfg.Logger.ErrorContext(x.r.Context(), "ingress failed", "request_id", x.requestID, "topic", x.topic.name,
		"doing", doing, "error", err)
	if failure.Passes(err) || x.r.Context().Err() != nil {
		return x.later(codeUnavailable, detail)
	}
	return refusal(http.StatusInternalServerError, codeFailed, detail)
}

// get tells what became of a message.
func (x *exchange) get() (*reply, *request.Problem) {
	id, err := uuid.Parse(x.r.PathValue("id"))
	if err != nil {
		return nil, refusal(http.StatusNotFound, codeNotFound, "There is no such message.")
	}
	leave, free := x.places.Take()
	if !free {
		return nil, x.busy()
	}
	defer leave()
	found, _, err := x.find(x.r.Context(), []uuid.UUID{id})
	if err != nil {
		return nil, x.failed("find a message", err, "What became of the message can't be found out now.")
	}
	m := found[id]
	switch {
	case m == nil || m.kept && m.Topic != x.topic.name:
		return nil, refusal(http.StatusNotFound, codeNotFound, "There is no such message.")
	case !m.kept:
		return nil, gone()
	}
	return &reply{http.StatusOK, m.told()}, nil
}

func gone() *request.Problem {
	return refusal(http.StatusGone, codeGone,
		"The message was here, and is kept no more. Its key is not to be used again.")
}
