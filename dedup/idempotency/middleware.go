package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/dedup/request"
)

// Config says how a middleware knows requests, and what it does with them. Only Caller is required. A middleware for
// other routes, with other rules, is another one made of a copy, over the same store.
type Config struct {
	// Caller says who sends a request, by what authentication, which comes before this, has left in its context. An
	// error is answered 401, and neither key nor body is looked at. Required: [OneCaller] where there is one only.
	Caller func(*http.Request) (Caller, error)
	// Route names the route of a request, in words that stay the same from one deployment to the next: a key is
	// another one on another route. Default the pattern that http.ServeMux has matched, without the names of its
	// wildcards, or the path where there is none. Before a mux use [PatternOf]. What it gives is a label of the
	// counter, and so must be one of a few.
	Route func(*http.Request) string
	// BodyField is the field of a JSON body that may have the key. Default "idempotencyKey"; "-" is none.
	BodyField string
	// Required refuses requests without a key, 400.
	Required bool
	// UUIDOnly refuses keys that are no UUIDs, 400.
	UUIDOnly bool
	// ConflictStatus answers another request with the same key: 409, the default, or 422, as the IETF's draft has it.
	ConflictStatus int
	// Wait bounds a request's wait for the answer of a twin that is being worked on, before it is told to come again,
	// 409. It holds no connection meanwhile. Default 0: it is told at once.
	Wait time.Duration
	// RetryAfter is the time after which a client is told to come again. Default 1 second, which is also the least.
	RetryAfter time.Duration
	// WorkTime bounds the handler's context, which does not end when the client hangs up. Default 30 seconds.
	WorkTime time.Duration
	// Concurrency caps the requests that are read, wait or are worked on at once; others are told to come again, 503.
	// With [Claimed] requests without a key don't count. Default 256.
	Concurrency int
	// ReadTime bounds the arrival of a request's body. Default 10 seconds. How long a client may take to read its
	// answer is http.Server's to bound, by WriteTimeout.
	ReadTime time.Duration
	// MaxRequestBytes bounds the body, as it comes and without its Content-Encoding. It is read before a connection
	// is taken or the handler runs. Default 1 MiB.
	MaxRequestBytes int64
	// MaxAnswerBytes bounds the answer's body. Default 1 MiB.
	MaxAnswerBytes int
	// TTL is the time that an answer is given again, from the first try on; [TTLHours] reads one from the environment.
	// Default 24 hours.
	TTL time.Duration
	// Headers are given again beside those that say what the body is or where: "X-Resource-Version", say.
	Headers []string
	// Final says which answers below 500 are kept; what is not is as if the request had not been made. Default
	// [Final].
	Final func(status int) bool
	// Lease is the time that a claim outlives its process, with [Claimed]. Default 30 seconds.
	Lease time.Duration
	// ProblemType is the beginning of the problems' types (RFC 9457), to which the code is added: the address of a
	// page about them. Default none: about:blank.
	ProblemType string
	// OnEvent hears of each request with a key. Default nobody.
	OnEvent func(Event)
	// Logger gets events and failures. Default slog.Default().
	Logger *slog.Logger
	// MeterProvider counts. Default OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

// notFinal are the answers that are about who asks and when, and not about what.
var notFinal = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
	http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly,
	http.StatusTooManyRequests}

// Final is Config.Final's default.
func Final(status int) bool { return status < 500 && !slices.Contains(notFinal, status) }

func (c *Config) setDefaults() {
	c.BodyField = cmp.Or(c.BodyField, "idempotencyKey")
	c.ConflictStatus = cmp.Or(c.ConflictStatus, http.StatusConflict)
	c.RetryAfter = max(c.RetryAfter, time.Second)
	c.Concurrency = orDefault(c.Concurrency, 256)
	c.ReadTime = orDefault(c.ReadTime, 10*time.Second)
	c.WorkTime = orDefault(c.WorkTime, 30*time.Second)
	c.MaxRequestBytes = orDefault(c.MaxRequestBytes, 1<<20)
	c.MaxAnswerBytes = orDefault(c.MaxAnswerBytes, 1<<20)
	c.TTL = orDefault(c.TTL, 24*time.Hour)
	c.Lease = orDefault(c.Lease, 30*time.Second)
	if c.Final == nil {
		c.Final = Final
	}
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
}

// orDefault takes what is not positive for not given.
func orDefault[T int | int64 | time.Duration](given, otherwise T) T {
	if given > 0 {
		return given
	}
	return otherwise
}

func (c *Config) validate() error {
	var faults []error
	if c.Caller == nil {
		faults = append(faults,
			errors.New("Caller is required: without it clients share their keys; OneCaller says that they may"))
	}
	if c.ConflictStatus != http.StatusConflict && c.ConflictStatus != http.StatusUnprocessableEntity {
		faults = append(faults, fmt.Errorf("ConflictStatus %d: want 409 or 422", c.ConflictStatus))
	}
	if c.TTL < c.WorkTime {
		faults = append(faults, fmt.Errorf("TTL %s is shorter than WorkTime %s", c.TTL, c.WorkTime))
	}
	if _, err := keptHeaders(c.Headers); err != nil {
		faults = append(faults, fmt.Errorf("in Headers: %w", err))
	}
	return errors.Join(faults...)
}

// Middleware puts idempotency before handlers. It is safe for concurrent use.
type Middleware struct {
	cfg     Config
	mode    mode
	keys    request.KeyRule
	kept    []string // headers
	places  request.Places
	flights flights
	events  events
}

// InTransaction is the middleware for effects in the database of the store: each request but GET, HEAD, OPTIONS and
// TRACE is run in a transaction, its handler's [Tx]. It is committed with the answer, and only then is the client
// told. One without a key is too, and nothing is remembered of it.
func InTransaction(store *Postgres, cfg Config) (*Middleware, error) {
	return newMiddleware(cfg, func(c *Config) mode {
		return &txMode{store: store, work: c.WorkTime, ttl: c.TTL}
	})
}

// Claimed is the middleware for effects elsewhere: at least once. See [Key] and [Fence].
func Claimed(store Store, cfg Config) (*Middleware, error) {
	return newMiddleware(cfg, func(c *Config) mode {
		return &leaseMode{store: store, lease: c.Lease, ttl: c.TTL, log: c.Logger}
	})
}

func newMiddleware(cfg Config, in func(*Config) mode) (*Middleware, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("idempotency: %w", err)
	}
	kept, err := keptHeaders(cfg.Headers)
	if err != nil {
		return nil, fmt.Errorf("idempotency: %w", err)
	}
	keys := request.KeyRule{Field: cfg.BodyField, Required: cfg.Required, UUIDOnly: cfg.UUIDOnly}
	if keys.Field == "-" {
		keys.Field = ""
	}
	return &Middleware{cfg: cfg, mode: in(&cfg), keys: keys, kept: kept, places: request.NewPlaces(cfg.Concurrency),
		events: newEvents(cfg)}, nil
}

// Handler is next behind the middleware, which is there once, behind authentication and before whatever reads the
// body: what was read before it can neither have the key nor tell one request from another.
//
// next writes into memory: Flush does nothing, and http.ResponseController finds no Hijack and no deadlines. Its
// answer is sent when it has returned and all is stored. 1xx answers and trailers are not sent.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
			next.ServeHTTP(w, r)
		default:
			m.serve(w, r, next)
		}
	})
}
