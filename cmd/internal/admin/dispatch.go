package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

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

// call is one request to the API, admitted.
type call struct {
	ctx      context.Context
	server   *Server
	request  *http.Request
	writer   http.ResponseWriter
	parts    *Parts
	attached *operate.Inbox
	actor    string
	holds    bool // one of the server's answers
	bytes    int  // taken of the memory
}

// handler is all that the server answers.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, probe := range map[string]http.HandlerFunc{"/livez": s.livez,
		"/readyz": s.readyz, "/healthz": s.healthz} {
		mux.Handle(path, httpjson.Methods{http.MethodGet: probe})
	}
	if s.cfg.Metrics != nil {
		mux.Handle("/metrics", httpjson.Methods{http.MethodGet: s.cfg.Metrics.ServeHTTP})
	}
	for path, m := range s.operations {
		calls := httpjson.Methods{}
		for method, serve := range m {
			calls[method] = s.serve(serve)
		}
		mux.Handle(path, s.admit(calls))
	}
	for _, path := range []string{prefix, prefix + "/"} {
		mux.Handle(path, s.admit(http.HandlerFunc(notFound)))
	}
	mux.HandleFunc("/", notFound)
	return s.survive(mux)
}

// byPath takes huma's operations in, by their paths.
type byPath map[string]httpjson.Methods

// HandleFunc is huma's, for a pattern METHOD PATH.
func (b byPath) HandleFunc(pattern string, serve func(http.ResponseWriter, *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	if b[path] == nil {
		b[path] = httpjson.Methods{}
	}
	b[path][method] = serve
}

// ServeHTTP is what huma asks for and never calls.
func (b byPath) ServeHTTP(w http.ResponseWriter, r *http.Request) { notFound(w, r) }

func notFound(w http.ResponseWriter, _ *http.Request) {
	httpjson.Errorf(http.StatusNotFound, "there is nothing at this path; /api/v1/openapi.json lists what the API "+
		"has, and /livez, /readyz, /healthz and /metrics are beside it").Write(w)
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
			httpjson.Errorf(http.StatusTooManyRequests, "more than %d requests a second, all clients together: "+
				"see http.rate in the config", cfg.Rate).Retry(wait).Write(w)
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

// serve prepares the requests of one operation.
func (s *Server) serve(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{server: s, writer: w, parts: s.parts.Load()}
		if c.parts != nil {
			c.attached = c.parts.Inbox
		}
		defer c.end()
		c.request = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
		next(w, c.request)
	}
}

// check comes before huma's own look at a request: it refuses what huma would take, and reads the body.
func check(ctx huma.Context, next func(huma.Context)) {
	c, op := callOf(ctx.Context()), ctx.Operation()
	if op.Method != http.MethodGet {
		if fault := c.sign(c.request); fault != nil {
			c.write(nil, fault)
			return
		}
	}
	err := checkQuery(c.request, op.Parameters)
	if err == nil && op.RequestBody != nil {
		err = readBody(c.writer, c.request)
	}
	if err != nil {
		c.write(nil, err)
		return
	}
	next(ctx)
}

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// atOnce is for what asks nobody.
func (c *call) atOnce(do func() (any, error)) (any, error) { return do() }

// change waits for the change before.
func (c *call) change(do func() (any, error)) (any, error) {
	_ = http.NewResponseController(c.writer).SetWriteDeadline(time.Now().Add(turnLimit + changeLimit + writeTimeout))
	return c.take(c.server.changes, changeLimit, do)
}

// look waits for memory, and for the look before.
func (c *call) look(do func() (any, error)) (any, error) {
	if err := await(c.request.Context(), c.server.answers); err != nil {
		return nil, err
	}
	c.holds = true
	if err := c.room(c.request.Context()); err != nil {
		return nil, err
	}
	return c.take(c.server.reads, readLimit, do)
}

// write answers, with a problem where there is an error.
func (c *call) write(answer any, err error) {
	if err == nil {
		err = httpjson.Write(c.writer, http.StatusOK, httpjson.Type, answer)
	}
	if err != nil {
		c.server.problemOf(c.request, err).Write(c.writer)
	}
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
		return httpjson.Errorf(http.StatusServiceUnavailable,
			"all memory for messages is in use; try again").Retry(turnLimit)
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
func (c *call) take(turn chan struct{}, limit time.Duration, do func() (any, error)) (any, error) {
	if err := await(c.request.Context(), turn); err != nil {
		return nil, err
	}
	defer func() { <-turn }()
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(c.request.Context(), limit)
	defer cancel()
	return do()
}

// await takes one of what turn has, and waits for it no longer than turnLimit.
func await(ctx context.Context, turn chan struct{}) error {
	wait := time.NewTimer(turnLimit)
	defer wait.Stop()
	select {
	case turn <- struct{}{}:
		return nil
	case <-wait.C:
		return httpjson.Errorf(http.StatusServiceUnavailable,
			"an earlier request still takes its time; try again").Retry(turnLimit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inbox is what the server tells about, or why there is none yet.
func (c *call) inbox() (*operate.Inbox, error) {
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
		return httpjson.Errorf(http.StatusForbidden, "Postgres does not let the program's login do that: "+
			"grant it the role firstseen_operator, see `firstseen migrate print --roles`")
	}
	return s.fail(r, err)
}

// fail logs an error and answers with where it is in the log.
func (s *Server) fail(r *http.Request, err error) *httpjson.Problem {
	id := s.failures.Log(r, "a request to the admin server failed", err)
	status, detail := http.StatusInternalServerError, "it failed; the log says why, beside this request's number"
	if failure.Unanswered(err) {
		status, detail = http.StatusServiceUnavailable,
			"Postgres does not answer; messages wait meanwhile, and none is lost"
	}
	p := httpjson.Errorf(status, "%s", detail)
	p.Request = id
	return p
}
