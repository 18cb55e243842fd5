package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/operate"
)

// How long a request may take in Postgres, and wait for the one before it.
const (
	readLimit   = 20 * time.Second
	changeLimit = 5 * time.Minute
	turnLimit   = 10 * time.Second
)

// call is one request to the API, admitted and read.
type call struct {
	*query
	ctx      context.Context
	server   *Server
	parts    *Parts
	attached *operate.Inbox
	actor    string
	body     any
	holds    bool // one of the server's answers
	bytes    int  // taken of the memory
}

// handler is all that the server answers.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, probe := range map[string]http.HandlerFunc{"/livez": s.livez, "/readyz": s.readyz, "/healthz": s.healthz} {
		mux.Handle(path, httpjson.Methods{http.MethodGet: probe})
	}
	if s.cfg.Metrics != nil {
		mux.Handle("/metrics", httpjson.Methods{http.MethodGet: s.cfg.Metrics.ServeHTTP})
	}
	paths := map[string]httpjson.Methods{}
	for i := range routes {
		r := &routes[i]
		if paths[r.path] == nil {
			paths[r.path] = httpjson.Methods{}
		}
		paths[r.path][r.method] = s.serve(r)
	}
	for path, m := range paths {
		mux.Handle(prefix+path, s.admit(m))
	}
	for _, path := range []string{prefix, prefix + "/"} {
		mux.Handle(path, s.admit(http.HandlerFunc(notFound)))
	}
	mux.HandleFunc("/", notFound)
	return s.survive(mux)
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	httpjson.Errorf(http.StatusNotFound, "there is nothing at this path; /api/v1/openapi.json lists what the API has, and /livez, /readyz, /healthz and /metrics are beside it").Write(w)
}

// survive answers a request that panics, and logs it.
func (s *Server) survive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				s.fail(r, fmt.Errorf("panic: %v\n%s", p, debug.Stack())).Write(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

type clientKey struct{}

// admit lets known clients through, so many in a second. Those that are refused are counted apart.
func (s *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cfg := s.cfg.Live.Load().HTTP
		who, refused := identify(r, cfg)
		counter := &s.admitted
		if refused != nil {
			counter = &s.refused
		}
		if wait, ok := counter.Take(cfg.Rate, time.Now()); !ok {
			httpjson.Errorf(http.StatusTooManyRequests, "more than %d requests a second, all clients together: see http.rate in the config", cfg.Rate).Retry(wait).Write(w)
			return
		}
		if refused != nil {
			s.log.Warn("a request to the admin API is refused", "remote", r.RemoteAddr, "path", r.URL.Path, "status",
				refused.Status)
			refused.Write(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, who)))
	})
}

// serve answers the requests of one route.
func (s *Server) serve(route *route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{server: s}
		defer c.end()
		answer, err := c.answer(w, r, route)
		if err == nil {
			err = httpjson.Write(w, http.StatusOK, httpjson.Type, answer)
		}
		if err != nil {
			s.problemOf(r, err).Write(w)
		}
	}
}

func (c *call) answer(w http.ResponseWriter, r *http.Request, route *route) (any, error) {
	s := c.server
	if route.changes {
		if fault := c.sign(r); fault != nil {
			return nil, fault
		}
	}
	if c.query = newQuery(r, route.parameters); c.fault != nil {
		return nil, c.fault
	}
	if route.body != nil {
		c.body = reflect.New(reflect.TypeOf(route.body).Elem()).Interface()
		if fault := readBody(w, r, c.body); fault != nil {
			return nil, fault
		}
	}
	if c.parts = s.parts.Load(); c.parts != nil {
		c.attached = c.parts.Inbox
	}
	switch {
	case route.atOnce:
		return route.serve(c)
	case route.changes:
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(turnLimit + changeLimit + writeTimeout))
		return c.take(r.Context(), route, s.changes, changeLimit)
	}
	if err := await(r.Context(), s.answers); err != nil {
		return nil, err
	}
	c.holds = true
	if err := c.room(r.Context()); err != nil {
		return nil, err
	}
	return c.take(r.Context(), route, s.reads, readLimit)
}

// end is called when the answer is written.
func (c *call) end() {
	if c.holds {
		<-c.server.answers
	}
	if c.bytes > 0 {
		c.parts.Memory.Give(c.bytes)
	}
}

// room takes memory for the answer. All answers together take no more than a quarter of it: who reads slowly must not
// stop the consumer.
func (c *call) room(ctx context.Context) error {
	if c.parts == nil || c.parts.Memory == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	n := min(answerBytes, c.parts.Memory.Limit()/(4*maxAnswers))
	if err := c.parts.Memory.Take(ctx, n, 0); err != nil {
		return httpjson.Errorf(http.StatusServiceUnavailable, "all memory for messages is in use; try again").Retry(turnLimit)
	}
	c.bytes = n
	return nil
}

// sign finds out who asks for a change, and refuses those who may not.
func (c *call) sign(r *http.Request) (fault *httpjson.Problem) {
	who, _ := r.Context().Value(clientKey{}).(client)
	if fault = who.mayWrite(r); fault == nil {
		c.actor, fault = who.actor(r)
	}
	return fault
}

// take waits for the request's turn: one reads and one changes at a time, so that the consumer keeps its connections.
func (c *call) take(ctx context.Context, route *route, turn chan struct{}, limit time.Duration) (any, error) {
	if err := await(ctx, turn); err != nil {
		return nil, err
	}
	defer func() { <-turn }()
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(ctx, limit)
	defer cancel()
	return route.serve(c)
}

// await takes one of what turn has, and waits for it no longer than turnLimit.
func await(ctx context.Context, turn chan struct{}) error {
	wait := time.NewTimer(turnLimit)
	defer wait.Stop()
	select {
	case turn <- struct{}{}:
		return nil
	case <-wait.C:
		return httpjson.Errorf(http.StatusServiceUnavailable, "an earlier request still takes its time; try again").Retry(turnLimit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inbox is what the server tells about, or why there is none yet.
func (c *call) inbox() (*operate.Inbox, error) {
	if c.fault != nil {
		return nil, c.fault
	}
	if c.attached == nil {
		return nil, httpjson.Errorf(http.StatusServiceUnavailable,
			"Postgres has not been reached since the start, or its schema is not there: see the log").Retry(turnLimit)
	}
	return c.attached, nil
}

// problemOf turns an error into what a client may know of it. The rest is in the log.
func (s *Server) problemOf(r *http.Request, err error) *httpjson.Problem {
	var known *httpjson.Problem
	var cursor *operate.CursorError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &cursor):
		return httpjson.Wrong("cursor", "is not one that this list gave; begin again without it")
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		return httpjson.Errorf(http.StatusServiceUnavailable, "the request was given up")
	case errors.Is(err, context.DeadlineExceeded), failure.Of(err) == failure.TooSlow:
		return httpjson.Errorf(http.StatusGatewayTimeout, "it took too long; narrow it, by since and until say")
	case failure.Denied(err):
		return httpjson.Errorf(http.StatusForbidden, "Postgres does not let the program's login do that: grant it the role firstseen_operator, see `firstseen migrate print --roles`")
	}
	return s.fail(r, err)
}

// fail logs an error and answers with where it is in the log.
func (s *Server) fail(r *http.Request, err error) *httpjson.Problem {
	id := s.failures.Log(r, "a request to the admin server failed", err)
	status, detail := http.StatusInternalServerError, "it failed; the log says why, beside this request's number"
	if failure.Unanswered(err) {
		status, detail = http.StatusServiceUnavailable, "Postgres does not answer; messages wait meanwhile, and none is lost"
	}
	p := httpjson.Errorf(status, "%s", detail)
	p.Request = id
	return p
}

func getOpenAPI(c *call) (any, error) { return json.RawMessage(c.server.openapi), nil }
