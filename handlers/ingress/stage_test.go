package ingress_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
)

var errNo = errors.New("no")

// waitFor is how long a test waits for what is to come, and tick how often it looks.
const (
	waitFor = 3 * time.Minute
	tick    = 5 * time.Millisecond
)

// stage is an ingress over a database of its own, with handlers that leave a row in effects for each message.
type stage struct {
	t         testing.TB
	db        *deduptest.DB
	pool      *pgxpool.Pool
	store     *dedup.Store
	registry  handlers.Registry
	processor *handlers.Processor // made by serve
	topic     ingress.Topic
	cfg       ingress.Config
	log       deduptest.Log
}

func newStage(t testing.TB) *stage {
	t.Helper()
	db := deduptest.New(t)
	return newStageOn(t, db, db.DSN, 0)
}

// newStageOn is a stage that reaches its database by a DSN, and waits so long for its answers.
func newStageOn(t testing.TB, db *deduptest.DB, dsn string, patience time.Duration) *stage {
	t.Helper()
	_, err := db.Pool.Exec(context.Background(), `create table effects (n bigint generated always as identity,
		handler text, message_id uuid, value bytea)`)
	require.NoError(t, err)
	pool := deduptest.OpenPool(t, dsn, nil)
	store, err := dedup.Open(context.Background(), pool, dedup.Config{Inbox: "test", AnswerTimeout: patience})
	require.NoError(t, err)
	s := &stage{t: t, db: db, pool: pool, store: store}
	s.cfg = ingress.Config{Caller: byHeaders, Logger: slog.New(slog.NewTextHandler(&s.log, nil))}
	return s
}

// byHeaders stands for authentication.
func byHeaders(r *http.Request) (ingress.Caller, error) {
	if r.Header.Get("Authorization") == "Bearer wrong" {
		return ingress.Caller{}, errors.New("no such token")
	}
	return ingress.Caller{Name: "shop", Tenant: r.Header.Get("X-Tenant")}, nil
}

// effect is a handler that leaves a row for each message.
func effect(name string) handlers.BatchHandler {
	return handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		_, err := tx.Exec(ctx, `insert into effects (handler, message_id, value) values ($1, $2::text::uuid, $3)`, name,
			m.ID.String(), m.Value)
		return err
	}))
}

// failing is an effect that fails for values that contain a text.
func failing(name, text string, with error) handlers.BatchHandler {
	return handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		_, err := tx.Exec(ctx, `insert into effects (handler, message_id, value) values ($1, $2::text::uuid, $3)`, name,
			m.ID.String(), m.Value)
		if strings.Contains(string(m.Value), text) {
			return with
		}
		return err
	}))
}

func (s *stage) register(name string, h handlers.BatchHandler) {
	s.t.Helper()
	require.NoError(s.t, s.registry.Add(handlers.Registration{Name: name, Handler: h, Topics: []string{"orders"},
		Retry: handlers.Retry{Base: time.Hour, Cap: time.Hour}}))
}

// holdFirst registers a handler that stays with the message of key k1, which it has when entered is closed, until leave is.
func (s *stage) holdFirst() (entered, leave chan struct{}) {
	entered, leave = make(chan struct{}), make(chan struct{})
	s.register("book", handlers.Each(handlers.HandlerFunc(func(_ context.Context, _ pgx.Tx, m dedup.Message) error {
		if m.RawID == "k1" {
			close(entered)
			<-leave
		}
		return nil
	})))
	return entered, leave
}

// serve opens the ingress, with a handler book where there is none.
func (s *stage) serve() *service {
	s.t.Helper()
	if len(s.registry.Topics()) == 0 {
		s.register("book", effect("book"))
	}
	s.processor = s.newProcessor(&s.registry)
	cfg := s.cfg
	cfg.Processor, cfg.Topics = s.processor, map[string]ingress.Topic{"orders": s.topic}
	h, err := ingress.New(cfg)
	require.NoError(s.t, err)
	server := httptest.NewServer(h)
	s.t.Cleanup(server.Close)
	return &service{s.t, server.URL + "/v1/topics/orders/messages", h}
}

func (s *stage) newProcessor(r *handlers.Registry) *handlers.Processor {
	p, err := handlers.NewProcessor(handlers.Config{Store: s.store, Handlers: r, LanePoll: 5 * time.Millisecond,
		AbandonAfter: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(s.t, err)
	return p
}

// work runs workers of lanes until the test ends or stop is called.
func (s *stage) work() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { s.processor.RunLanes(ctx) })
	stop = func() { cancel(); working.Wait() }
	s.t.Cleanup(stop)
	return stop
}

// kafka brings messages as a consumer does: from a partition, known by their headers.
func (s *stage) kafka(offset int64, headers []dedup.Header, value string) handlers.Result {
	s.t.Helper()
	ctx := context.Background()
	p, err := s.store.Acquire(ctx, "consumer", "orders", 0, "owner")
	require.NoError(s.t, err)
	if !p.Known {
		require.NoError(s.t, s.store.Reposition(ctx, p, 0, uuid.Nil, nil))
	}
	m := dedup.Message{Topic: "orders", Offset: offset, Value: []byte(value), Headers: headers,
		Fingerprint: s.topic.Fingerprint.Of([]byte(value))}
	rule := s.topic.Identity
	if rule == nil {
		rule, err = identity.NewRule()
		require.NoError(s.t, err)
	}
	m.Identify(rule, uuid.New())
	for _, h := range headers {
		if h.Key == s.topic.TenantHeader {
			m.Tenant = string(h.Value)
		}
	}
	result, err := s.processor.Process(ctx, handlers.Batch{Position: p, Next: offset + 1, Messages: []dedup.Message{m}})
	require.NoError(s.t, err)
	return result
}

func keyHeader(key string) []dedup.Header {
	return []dedup.Header{{Key: "message-id", Value: []byte(key)}}
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.db.Pool.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err)
}

func (s *stage) count(from string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.Pool.QueryRow(context.Background(), `select count(*) from `+from).Scan(&n))
	return n
}

func (s *stage) text(sql string) (text string) {
	s.t.Helper()
	require.NoError(s.t, s.db.Pool.QueryRow(context.Background(), sql).Scan(&text))
	return text
}

// left holds what is left of requests: effects, messages, what was noted of them, participants, events.
func (s *stage) left(effects, messages, enqueued, participants, events int) {
	s.t.Helper()
	require.Equal(s.t, []int{effects, messages, enqueued, participants, events},
		[]int{s.count("effects"), s.count("firstseen.message_dedup"), s.count("firstseen.enqueued"),
			s.count("firstseen.participants"), s.count("firstseen.audit where action = 'MessageEnqueued'")},
		"effects, messages, enqueued, participants, events")
}

// rows are those of all tables, with where they lie and the transactions that have written or locked them.
func (s *stage) rows() string {
	s.t.Helper()
	ctx := context.Background()
	found, err := s.db.Pool.Query(ctx, `select format('%I.%I', n.nspname, c.relname) from pg_class c
		join pg_namespace n on n.oid = c.relnamespace
		where c.relkind = 'r' and n.nspname in ('firstseen', 'public') order by 1`)
	require.NoError(s.t, err)
	tables, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(s.t, err)
	var all strings.Builder
	for _, table := range tables {
		fmt.Fprintln(&all, table, s.text(`select coalesce(string_agg(concat_ws(' ', ctid, xmin, xmax, r), E'\n' order by ctid), '')
			from `+table+` r`))
	}
	return all.String()
}

// service is the ingress as a client sees it.
type service struct {
	t       testing.TB
	url     string
	handler http.Handler
}

// answer is one, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// field is one of the body's.
func (a answer) field(name string) any {
	var fields map[string]any
	_ = json.Unmarshal([]byte(a.body), &fields)
	return fields[name]
}

func (a answer) code() any { return a.field("code") }

func (a answer) replayed() bool { return a.header.Get("Idempotency-Replayed") == "true" }

// post sends messages with a key. Headers follow in pairs.
func (s *service) post(key, body string, headers ...string) answer {
	s.t.Helper()
	got, err := s.try(key, strings.NewReader(body), headers...)
	require.NoError(s.t, err)
	return got
}

// postTo is post for a goroutine beside the test's own: it hands the answer on, a zero one where there was none.
func (s *service) postTo(answers chan<- answer, key, body string) {
	got, _ := s.try(key, strings.NewReader(body))
	answers <- got
}

func (s *service) try(key string, body io.Reader, headers ...string) (answer, error) {
	r, err := http.NewRequest(http.MethodPost, s.url, body)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return do(r, headers...)
}

// get asks for what an answer's Location says.
func (s *service) get(path string, headers ...string) answer {
	s.t.Helper()
	at, _, _ := strings.Cut(s.url, "/v1/")
	r, err := http.NewRequest(http.MethodGet, at+path, nil)
	require.NoError(s.t, err)
	got, err := do(r, headers...)
	require.NoError(s.t, err)
	return got
}

// client is impatient: a test fails rather than hangs.
var client = &http.Client{Timeout: 30 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}}

func do(r *http.Request, headers ...string) (answer, error) {
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Content-Type" {
			r.Header.Del(headers[i])
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := io.Copy(&body, response.Body); err != nil {
		return answer{}, err
	}
	got := answer{response.StatusCode, response.Header, body.String()}
	return got, asDocumented(r, got)
}
