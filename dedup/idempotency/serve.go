package idempotency

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/request"
)

// exchange is one request and its answer.
type exchange struct {
	*Middleware
	w         http.ResponseWriter
	r         *http.Request
	next      http.Handler
	requestID string
	event     Event
	counted   string  // the route, for the counter: never a path, of which there may be any number
	entry     *Entry  // nil: the request has no key
	flight    *flight // nil: none, or it has landed
	leave     func()  // the place that it has taken, if any
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	x := &exchange{Middleware: m, w: w, r: r, next: next, requestID: request.ID(w, r), leave: func() {}}
	w.Header().Set(request.IDHeader, x.requestID)
	defer func() { x.leave() }()
	if p := x.read(); p != nil {
		x.refuse(p)
		return
	}
	if x.entry == nil {
		x.withoutKey()
		return
	}
	x.withKey()
}

// read finds out who calls, and whether there is a key. Where there may be one the body is read whole.
func (x *exchange) read() *request.Problem {
	caller, err := x.cfg.Caller(x.r)
	if err != nil {
		x.cfg.Logger.InfoContext(x.r.Context(), "request without a caller", "request_id", x.requestID, "error", err)
		return &request.Problem{Status: http.StatusUnauthorized, Code: CodeUnauthorized, Detail: "It is not known who calls."}
	}
	mayHave := x.keys.Field != "" && isJSON(x.r.Header)
	var body, inBody []byte
	if x.mode.alwaysReads() || mayHave || len(x.r.Header.Values(Header)) > 0 {
		var p *request.Problem
		if p = x.enter(); p != nil {
			return p
		}
		if body, p = request.Read(x.w, x.r, x.cfg.MaxRequestBytes, x.cfg.ReadTime); p != nil {
			return p
		}
	}
	if mayHave {
		inBody = body
	}
	key, err := x.keys.Find(x.r.Header, inBody)
	if err != nil {
		return &request.Problem{Status: http.StatusBadRequest, Code: CodeKeyInvalid, Detail: err.Error()}
	}
	if key != "" {
		x.know(caller, key, body)
	}
	return nil
}

// enter takes a place.
func (x *exchange) enter() *request.Problem {
	leave, free := x.places.Take()
	if !free {
		x.route()
		x.events.count(x.r.Context(), x.counted, busy)
		return &request.Problem{Status: http.StatusServiceUnavailable, Code: CodeBusy, Retry: x.cfg.RetryAfter,
			Detail: "Too many requests are being worked on. Nothing was done."}
	}
	x.leave = leave
	return nil
}

// route names the request's, for the counter too.
func (x *exchange) route() string {
	named, few := x.cfg.routeOf(x.r)
	if few {
		x.counted = named
	}
	return named
}

// know gives the request its identity.
func (x *exchange) know(caller Caller, key string, body []byte) {
	named := x.route()
	route := x.r.Method + " " + strings.TrimPrefix(named, x.r.Method+" ") // a pattern may begin with the method
	x.entry = &Entry{ID: newID(caller, x.r.Method, named, key), Fingerprint: fingerprintOf(x.r, named, body),
		KeyHash: HashKey(key), Tenant: text(caller.Tenant), Scope: text(caller.Scope), Route: text(route)}
	x.event = Event{RequestID: x.requestID, Tenant: caller.Tenant, Scope: caller.Scope, Route: route}
}

// withoutKey runs the request as if there were no keys, in its transaction if that is the mode.
func (x *exchange) withoutKey() {
	if !x.mode.alwaysReads() {
		x.leave()
		x.next.ServeHTTP(x.w, x.r)
		return
	}
	c, _, err := x.mode.claim(x.lasting(), nil)
	if err != nil {
		x.refuse(x.unavailable(err))
		return
	}
	x.run(c)
}

// withKey runs the request, or gives the answer that it was given, or waits for that.
func (x *exchange) withKey() {
	until := time.Now().Add(x.cfg.Wait)
	for {
		at, own := x.flights.join(x.entry.ID, x.entry.Fingerprint)
		switch {
		case own:
			x.flight = at
			defer func() { x.land(nil) }()
			x.lead(until)
			return
		case at.fingerprint != x.entry.Fingerprint:
			x.conflict()
			return
		case !awaited(x.r.Context(), at.landed, until):
			x.inProgress()
			return
		case at.answer != nil:
			x.replay(at.answer)
			return
		}
	}
}

// Pauses between two looks at a key that another process is working on.
const (
	firstPause = 20 * time.Millisecond
	longPause  = 320 * time.Millisecond
)

// lead serves the one request of its key in this process.
func (x *exchange) lead(until time.Time) {
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		c, found, err := x.mode.claim(x.lasting(), x.entry)
		switch {
		case err != nil:
			x.refuse(x.unavailable(err))
		case c != nil:
			x.tell(EventMiss)
			x.run(c)
		case found.State == Matching:
			x.replay(found.Answer)
		case found.State == Conflicting:
			x.conflict()
		case awaited(x.r.Context(), time.After(pause), until):
			continue
		default:
			x.inProgress()
		}
		return
	}
}

// run has the handler run under its claim, and answers when that has ended.
func (x *exchange) run(c claim) {
	rec := newRecorder(x.w.Header(), x.cfg.MaxAnswerBytes)
	x.handle(c, rec)
	rec.finish()
	ctx := x.lasting()
	switch {
	case rec.tooLarge:
		x.overflow(ctx, c)
		return
	case rec.status >= http.StatusInternalServerError || !x.cfg.Final(rec.status):
		c.drop(ctx)
		x.land(nil)
		rec.send(x.w)
		return
	}
	answer := Answer{Status: rec.status, Header: pick(rec.sent, x.kept), Body: rec.body}
	stored, err := c.keep(ctx, answer)
	switch {
	case err != nil:
		x.refuse(x.notKept(err))
	case stored != nil:
		x.giveAgain(stored)
	default:
		x.land(&answer)
		rec.send(x.w)
	}
}

// handle calls the handler. Where it does not return, but panics, nothing of what it did is kept.
func (x *exchange) handle(c claim, rec *recorder) {
	ctx, cancel := context.WithTimeout(x.lasting(), x.cfg.WorkTime)
	defer cancel()
	returned := false
	defer func() {
		if !returned {
			c.drop(x.lasting())
		}
	}()
	x.next.ServeHTTP(rec, x.r.WithContext(c.context(ctx)))
	returned = true
}

// overflow answers that the answer is too large.
func (x *exchange) overflow(ctx context.Context, c claim) {
	p := &request.Problem{Status: http.StatusInternalServerError, Code: CodeAnswerTooBig, Detail: c.overflowDetail()}
	told := Answer{Status: p.Status, Header: http.Header{"Content-Type": {"application/problem+json"}},
		Body: p.Body(x.cfg.ProblemType, x.requestID)}
	x.cfg.Logger.ErrorContext(ctx, "answer too large for idempotency",
		"request_id", x.requestID, "limit", x.cfg.MaxAnswerBytes)
	if err := c.overflow(ctx, told); err != nil {
		p = x.notKept(err)
	}
	x.refuse(p)
}

// lasting is the request's context without its end: the client may hang up.
func (x *exchange) lasting() context.Context { return context.WithoutCancel(x.r.Context()) }

// awaited waits until something has happened, and says whether it has: not if the time is over, or ctx.
func awaited[T any](ctx context.Context, happened <-chan T, until time.Time) bool {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-happened:
		return true
	case <-ctx.Done():
	case <-t.C:
	}
	select {
	case <-happened:
		return true
	default:
		return false
	}
}

// land lets the twins in this process go on, with the answer if there is one. It comes before what is sent to the
// client, who may be slow.
func (x *exchange) land(a *Answer) {
	if x.flight == nil {
		return
	}
	x.flight.answer = a
	x.flights.land(x.entry.ID, x.flight)
	x.flight = nil
}

// replayedHeader is on an answer that is given again.
const replayedHeader = "Idempotency-Replayed"

func (x *exchange) replay(a *Answer) {
	x.tell(EventHit)
	x.giveAgain(a)
}

func (x *exchange) giveAgain(a *Answer) {
	x.land(a)
	h := x.w.Header()
	for name, values := range a.Header {
		h[name] = values
	}
	h.Set(replayedHeader, "true")
	x.w.WriteHeader(a.Status)
	_, _ = x.w.Write(a.Body)
}

func (x *exchange) conflict() {
	x.tell(EventConflict)
	x.refuse(&request.Problem{Status: x.cfg.ConflictStatus, Code: CodeKeyConflict,
		Detail: "The idempotency key was sent before with another request. Another request needs another key."})
}

func (x *exchange) inProgress() {
	x.tell(EventInProgress)
	x.refuse(&request.Problem{Status: http.StatusConflict, Code: CodeInProgress, Retry: x.cfg.RetryAfter,
		Detail: "A request with this idempotency key is being worked on. Send this one again for its answer."})
}

// unavailable answers where it is not known whether the request was made before: the handler does not run.
func (x *exchange) unavailable(err error) *request.Problem {
	x.cfg.Logger.ErrorContext(x.r.Context(), "idempotency store failed", "request_id", x.requestID, "error", err)
	if x.entry != nil {
		x.events.count(x.r.Context(), x.counted, unavailable)
	}
	return &request.Problem{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Retry: x.cfg.RetryAfter,
		Detail: "Whether this request was made before can't be found out. " +
			"Nothing was done; send it again, with the same key."}
}

// notKept answers where the handler's answer was not stored.
func (x *exchange) notKept(err error) *request.Problem {
	x.cfg.Logger.ErrorContext(x.r.Context(), "answer not stored", "request_id", x.requestID, "error", err)
	switch {
	case errors.Is(err, errOutcomeUnknown):
		return &request.Problem{Status: http.StatusServiceUnavailable, Code: CodeOutcomeUnknown, Retry: x.cfg.RetryAfter,
			Detail: "It is not known whether this request took effect. Send it again with the same key to find out."}
	case failure.Passes(err):
		return &request.Problem{Status: http.StatusServiceUnavailable, Code: CodeNotCommitted, Retry: x.cfg.RetryAfter,
			Detail: "This request could not be committed. Nothing was done; send it again, with the same key."}
	}
	return &request.Problem{Status: http.StatusInternalServerError, Code: CodeNotCommitted,
		Detail: "This request could not be committed. Nothing was done."}
}

func (x *exchange) refuse(p *request.Problem) {
	x.land(nil)
	p.Write(x.w, x.cfg.ProblemType, x.requestID)
}

func (x *exchange) tell(name string) {
	x.event.Name = name
	x.events.tell(x.r.Context(), x.event, x.counted)
}
