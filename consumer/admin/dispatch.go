package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// How long a request may take in Postgres, and wait for the one before it.
const (
	readLimit   = 20 * time.Second
	changeLimit = 5 * time.Minute
	turnLimit   = 10 * time.Second
)

// call is one request to the API, admitted.
type call struct {
	ctx       context.Context
	api       *API
	request   *http.Request
	writer    http.ResponseWriter
	memory    *memory.Account // nil: nobody counts
	attached  *operate.Inbox
	formats   handlers.Formats // of values, by topic
	rules     *mask.Rules      // of what is hidden
	actor     string
	holds     bool // one of the server's answers
	downloads bool // one of those that may be sent in pieces
	bytes     int  // taken of the memory
}

// survive answers a request that panics, and logs it.
func (a *API) survive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				a.fail(r, fmt.Errorf("panic: %v\n%s", p, debug.Stack())).Write(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

type clientKey struct{}

// admit lets known clients through, so many in a second. Those that are refused are counted apart, and so are visits of
// the operator's page, each of which is one, whatever it asks for.
func (a *API) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cfg := a.service.Settings().Access
		who, refused := identify(r, cfg)
		if wait, ok := a.count(r, cfg.Rate, refused != nil); !ok {
			httpjson.Errorf(http.StatusTooManyRequests, "more than %d requests a second, all clients together: "+
				"see http.rate in the config", cfg.Rate).Retry(wait).Write(w)
			return
		}
		if refused != nil {
			a.log.Log(r.Context(), refusalLevel(r, refused), "a request to the admin API is refused", "remote", r.RemoteAddr,
				"path", r.URL.Path, "status", refused.Status)
			refused.Write(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, who)))
	})
}

// count takes a request of what its kind has.
func (a *API) count(r *http.Request, rate int, refused bool) (wait time.Duration, ok bool) {
	counter, v := &a.admitted, visitOf(r)
	switch {
	case refused:
		counter = &a.refused
	case v != nil && v.counted:
		return 0, true
	case v != nil:
		counter, v.counted = &a.visits, true
	}
	return counter.Take(rate, time.Now())
}

// refusalLevel is that of who must act: nobody has to when a browser is led to the form to sign in.
func refusalLevel(r *http.Request, refused *httpjson.Problem) slog.Level {
	if visitOf(r) != nil && refused.Status == http.StatusUnauthorized && r.Header.Get("Authorization") == "" {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// visit is a request to the operator's page, which asks the API one thing after the other.
type visit struct{ counted bool }

type visitKey struct{}

// visited has all that the page asks for be of one visit.
func visited(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, &visit{})))
	})
}

// visitOf is the visit that a request is of; nil: it is a client's own.
func visitOf(r *http.Request) *visit {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	return v
}

// serve prepares the requests of one operation.
func (a *API) serve(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{api: a, writer: w, memory: a.service.Memory(), attached: a.service.Inbox(),
			formats: a.service.Formats(), rules: a.service.Mask()}
		defer c.end()
		c.request = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
		next(w, c.request)
	}
}

// checkBy comes before huma's own look at a request: it refuses what huma would take, and reads the body.
func checkBy(schemas huma.Registry) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c, op := callOf(ctx.Context()), ctx.Operation()
		if op.Method != http.MethodGet {
			if fault := c.sign(c.request); fault != nil {
				c.write(nil, fault)
				return
			}
		}
		err := checkQuery(c.request, op.Parameters)
		if err == nil && op.RequestBody != nil {
			err = readBody(c.writer, c.request, op.Metadata[bodyKey].(*huma.Schema), schemas)
		}
		if err != nil {
			c.write(nil, err)
			return
		}
		next(ctx)
	}
}

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// atOnce answers without a question to Postgres or Kafka.
func (c *call) atOnce(do func() (any, error)) (any, error) { return do() }

// change waits for the change before.
func (c *call) change(do func() (any, error)) (any, error) {
	_ = http.NewResponseController(c.writer).SetWriteDeadline(time.Now().Add(turnLimit + changeLimit + writeTimeout))
	return c.take(c.api.changes, changeLimit, do)
}

// look waits for memory, and for the look before.
func (c *call) look(do func() (any, error)) (any, error) {
	if err := c.reserve(); err != nil {
		return nil, err
	}
	return c.take(c.api.reads, readLimit, do)
}

// disclose is a change whose answer takes memory as a look's does.
func (c *call) disclose(do func() (any, error)) (any, error) {
	if err := c.reserve(); err != nil {
		return nil, err
	}
	return c.change(do)
}

// reserve takes one of the server's answers, and memory for it.
func (c *call) reserve() error {
	if err := await(c.request.Context(), c.api.answers); err != nil {
		return err
	}
	c.holds = true
	return c.room(c.request.Context())
}

// write answers, with a problem where there is an error.
func (c *call) write(answer any, err error) {
	if d, ok := answer.(*download); ok && err == nil {
		d.send(c)
		return
	}
	if err == nil {
		err = httpjson.Write(c.writer, http.StatusOK, httpjson.Type, answer)
	}
	if err != nil {
		c.api.problemOf(c.request, err).Write(c.writer)
	}
}

// end is called when the answer is written.
func (c *call) end() {
	if c.holds {
		<-c.api.answers
	}
	if c.downloads {
		<-c.api.downloads
	}
	if c.bytes > 0 {
		c.memory.Give(c.bytes)
	}
}

// room takes memory for the answer. All answers together take no more than a quarter of it: who reads slowly must not
// stop the consumer.
func (c *call) room(ctx context.Context) error {
	if c.memory == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	n := min(answerBytes, c.memory.Limit()/(4*maxAnswers))
	if err := c.memory.Take(ctx, n, 0); err != nil {
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

// inbox is the server's inbox, or the problem that there is none yet.
func (c *call) inbox() (*operate.Inbox, error) {
	if c.attached == nil {
		return nil, httpjson.Errorf(http.StatusServiceUnavailable,
			"Postgres has not been reached since the start, or its schema is not there: see the log").Retry(turnLimit)
	}
	return c.attached, nil
}

// problemOf turns an error into what a client may know of it. The rest is in the log.
func (a *API) problemOf(r *http.Request, err error) *httpjson.Problem {
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
			"grant it the role firstseen_operator, see `firstseen migrate roles --help`")
	}
	return a.fail(r, err)
}

// fail logs an error and answers with where it is in the log.
func (a *API) fail(r *http.Request, err error) *httpjson.Problem {
	id := a.failures.Log(r, "a request to the admin server failed", err)
	status, detail := http.StatusInternalServerError, "it failed; the log says why, beside this request's number"
	if failure.Unanswered(err) {
		status, detail = http.StatusServiceUnavailable,
			"Postgres does not answer; messages wait meanwhile, and none is lost"
	}
	p := httpjson.Errorf(status, "%s", detail)
	p.Request = id
	return p
}
