// Package ingress takes messages in by HTTP: what a client posts becomes a message of a topic, and is handled by the
// topic's handlers as if it had come from Kafka, with the same lanes, retries and dead letters. A client that has heard
// nothing may post again, with the same Idempotency-Key, as often as it likes: there is one message, and one effect of
// it, also where the same message comes by Kafka as well.
//
// In comes a [handlers.Processor], out comes an [http.Handler] with two routes, and two beside them:
//
//	POST /v1/topics/{topic}/messages        makes a message, or an array of them in one transaction
//	GET  /v1/topics/{topic}/messages/{id}   is what became of it
//	GET  /v1/openapi.json                   is the OpenAPI 3.1 document of both, for callers only, as everything is
//	GET  /v1/try                            is a page to try them on, which is the same for everybody and so open to all
//
// # The way of one request
//
//	admit    who calls, and for what topic: 401, 403, 404
//	read     the body, within a bound: 408, 413. It becomes items, each with its key: 400
//	name     an item becomes a dedup.Message, by the topic's rule of identity: a template's result is not in it yet
//	wait     for a twin that is being worked on in this process, without a connection; then for nobody: of a few places
//	         one is free, or the answer is 503
//	find     what Postgres knows of these messages. Those that it knows are only read from here on: 200, 409, 410.
//	         New ones are refused while too many wait for their handlers: 503
//	resolve  a new one's template becomes its content
//	process  the new ones go through handlers.Processor in one transaction, without a position in Kafka. In the same
//	         transaction and once, what only they have is noted: key, template, participants, and one event in the audit
//	find     again, and that is the answer: 201, or 200 where a twin was faster
//
// # What is promised
//
//   - The ID is what the topic's rule finds in the message that is stored ([identity.Rule.FindNamed]), with the key put
//     where the rule looks for it. So what comes by HTTP and by Kafka, in either order, takes effect once. A message
//     whose own ID is another one than its key is refused, 400.
//   - A message that is known already is given as GET gives it, whatever was posted this time: 200. With
//     [Topic].RefuseOther another content is 409. A replay writes nothing.
//   - A key is for ever. Where retention has deleted the message, 410, and nothing takes effect a second time.
//   - Without a key the message has the ID that the rule finds in it, or else a new one: posted twice, it is two.
//   - A topic that keeps tenants apart does so here too: a client of one tenant learns nothing of another's messages.
//   - Where a topic is Queued, or a client prefers so (Prefer: respond-async), the message is parked and the answer is
//     202, with the same request ID at each try. Else its handlers run before the answer. One that fails on it parks
//     it, which is no fault of the client's: 201. Where they take longer than [Config].WorkTime it is queued, 202.
//   - Nothing is half done: an array is one transaction, and an answer other than 2xx, 409 and 410 means that nothing
//     of the request was kept, or says that it is not known.
//   - Messages that wait for each other by their handlers' ordering, those of one key say, are handled one at a time,
//     whichever process takes them, as those of a partition are; with messages in Kafka's partitions they share no order.
//   - What is paused is not handled, but parked: 201. Where requests may come before RunLanes has begun, call
//     [handlers.Processor.LookUpPauses] first.
//
// Somebody has to run [handlers.Processor.RunLanes], which a consumer does.
//
// Files in reading order: config.go, serve.go (admission, and the routes), flights.go (twins) and backlog.go (how many
// may wait), post.go (the way above), item.go (what a client may write), message.go (what it becomes), store.go
// (Postgres), answer.go (what a client is told), document.go, events.go.
package ingress

//go:generate env FIRSTSEEN_UPDATE_GOLDEN=1 go test -count=1 -run DocumentIsWritten .

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/request"
	"github.com/firstseen/firstseen/handlers"
)

// Config configures an ingress. The first three fields are required.
type Config struct {
	// Processor takes the messages. Its pool has to have a connection for each of Concurrency, and as many more as a
	// handler takes: see [handlers.Processor.Connections].
	Processor *handlers.Processor
	// Topics are those that messages may be posted to, by name. Each has to have a handler.
	Topics map[string]Topic
	// Caller says who sends a request. An error is answered 401.
	Caller func(*http.Request) (Caller, error)
	// MaxBytes bounds a request's body, as it comes and without its Content-Encoding. Default 1 MiB.
	MaxBytes int64
	// MaxMessages bounds the messages of an array. Default 100.
	MaxMessages int
	// Concurrency caps the requests that are worked on at once, while the bodies of four times as many may be
	// arriving. Others are told to come again: 503. Default 16.
	Concurrency int
	// MaxParked caps the messages of a topic that came by HTTP and are parked, for a later attempt or because they are
	// queued: beyond it new ones are refused, 503. It is looked at every two seconds. Default 100,000.
	MaxParked int
	// ReadTime bounds the arrival of a request's body. Default 10 seconds.
	ReadTime time.Duration
	// WorkTime bounds a request's wait for its handlers; after that the message is queued. Default 20 seconds.
	WorkTime time.Duration
	// RetryAfter is the time after which a client is told to come again. Default 1 second, which is also the least.
	RetryAfter time.Duration
	// ProblemType is the beginning of the problems' types (RFC 9457), to which the code is added. Default none:
	// about:blank.
	ProblemType string
	// Logger gets an event for each message with a key, and failures; never a key or a body. Default slog.Default().
	Logger *slog.Logger
	// MeterProvider counts messages with a key. Default OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

// Topic says how a topic's messages are known, as its consumer does, and what is done with them.
type Topic struct {
	// Identity finds the messages' IDs. Default that of [identity.NewRule] without sources.
	Identity *identity.Rule
	// TenantHeader names the header that holds a message's tenant. It is set to the caller's. Default none: callers of
	// a tenant may not post to the topic.
	TenantHeader string
	// Fingerprint says by what copies with another content are told apart. Default none.
	Fingerprint identity.FingerprintMode
	// Queued has all messages parked, for workers of lanes: 202.
	Queued bool
	// RefuseOther answers 409 to a key that was sent before with something else. Default: with the message that is
	// there.
	RefuseOther bool
	// Resolve makes the content of a message that is given by a template. It is asked for new messages only, though of
	// two that come at once maybe for both. An error refuses the request, 422, and its text is told to the client; one
	// that passes by itself (failure.Passes) is 503, and a panic 500. Nil: the topic takes no templates.
	Resolve func(context.Context, Template) (content []byte, err error)
}

// Caller is who sends a request.
type Caller struct {
	// Name is written down in the audit for each message. Required.
	Name string
	// Tenant is whose messages these are. Empty: the caller is of no tenant. One that Kafka's messages could not have
	// is refused, 401.
	Tenant string
}

// fault says why a caller can be nobody.
func (c Caller) fault() error {
	if err := dedup.CheckName(c.Name); err != nil {
		return err
	}
	if c.Tenant == "" {
		return nil
	}
	if len(c.Tenant) > dedup.MaxTenantBytes || !utf8.ValidString(c.Tenant) || strings.ContainsRune(c.Tenant, 0) {
		return fmt.Errorf("the tenant is no text of 1 to %d bytes", dedup.MaxTenantBytes)
	}
	return nil
}

// Template stands for a message's content.
type Template struct {
	Key     string `json:"key" minLength:"1" maxLength:"1000"`
	Version string `json:"version" maxLength:"1000"`
	// Variables is a JSON value, byte for byte as it came; nil: none was given.
	Variables json.RawMessage `json:"variables,omitempty" doc:"Any JSON value."`
}

// New makes the handler. It is safe for concurrent use. The error lists every fault.
func New(cfg Config) (http.Handler, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("new ingress: %w", err)
	}
	cfg = cfg.WithDefaults()
	in := &ingress{cfg: cfg, topics: map[string]*topic{}, bodies: request.NewPlaces(4 * cfg.Concurrency),
		places: request.NewPlaces(cfg.Concurrency), flights: flights{open: map[flight]chan struct{}{}}}
	for name, t := range cfg.Topics {
		if t.Identity == nil {
			t.Identity, _ = identity.NewRule() // without sources it can't fail
		}
		in.topics[name] = &topic{Topic: t, name: name, handlers: cfg.Processor.Handlers(name),
			backlog: backlog{store: cfg.Processor.Store(), topic: name, most: cfg.MaxParked,
				log: cfg.Logger}}
	}
	in.store = newStore(cfg.Processor.Store())
	in.events = newEvents(cfg)
	return in.routes(), nil
}

func (c *Config) validate() error {
	var faults []error
	if c.Processor == nil {
		faults = append(faults, errors.New("a Processor is required"))
	}
	if c.Caller == nil {
		faults = append(faults, errors.New("a Caller is required: without it anybody could post"))
	}
	if len(c.Topics) == 0 {
		faults = append(faults, errors.New("at least one topic is required"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Topics)) {
		if c.Processor != nil && len(c.Processor.Handlers(name)) == 0 {
			faults = append(faults, fmt.Errorf("topic %s has no handler", name))
		}
		if err := c.Topics[name].Fingerprint.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("topic %s: %w", name, err))
		}
	}
	return errors.Join(faults...)
}

// WithDefaults is the config with a default wherever it says nothing.
func (c Config) WithDefaults() Config {
	c.MaxBytes = cmp.Or(max(c.MaxBytes, 0), 1<<20)
	c.MaxMessages = cmp.Or(max(c.MaxMessages, 0), 100)
	c.Concurrency = cmp.Or(max(c.Concurrency, 0), 16)
	c.MaxParked = cmp.Or(max(c.MaxParked, 0), 100_000)
	c.ReadTime = cmp.Or(max(c.ReadTime, 0), 10*time.Second)
	c.WorkTime = cmp.Or(max(c.WorkTime, 0), 20*time.Second)
	c.RetryAfter = max(c.RetryAfter, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	return c
}
