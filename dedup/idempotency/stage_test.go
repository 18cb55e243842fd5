package idempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

// stage is a service behind the middleware, over a database of its own with a table of effects.
type stage struct {
	t     testing.TB
	db    *deduptest.DB
	store *idempotency.Postgres
	cfg   idempotency.Config
	log   deduptest.Log

	mu     sync.Mutex
	events []idempotency.Event
	before func(http.Handler) http.Handler // what requests pass before; nil: nothing
}

func newStage(t testing.TB) *stage {
	t.Helper()
	db := deduptest.New(t)
	_, err := db.Pool.Exec(context.Background(),
		`create table effects (id bigint generated always as identity primary key, what text);
		create table checked (id int, constraint late unique (id) deferrable initially deferred)`)
	require.NoError(t, err)
	s := &stage{t: t, db: db, store: open(t, db.Pool)}
	s.cfg = idempotency.Config{Caller: byHeaders, OnEvent: s.hear,
		Logger: slog.New(slog.NewTextHandler(&s.log, nil))}
	return s
}

// byHeaders stands for authentication.
func byHeaders(r *http.Request) (idempotency.Caller, error) {
	if r.Header.Get("Authorization") == "Bearer wrong" {
		return idempotency.Caller{}, fmt.Errorf("no such token")
	}
	return idempotency.Caller{Tenant: r.Header.Get("X-Tenant"), Principal: r.Header.Get("X-User"),
		Scope: r.Header.Get("X-Conversation")}, nil
}

func (s *stage) hear(e idempotency.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// heard are the names of the events so far.
func (s *stage) heard() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		names = append(names, strings.TrimPrefix(e.Name, "idempotency_"))
	}
	return names
}

// inTransaction serves a handler behind [idempotency.InTransaction], and claimed one behind [idempotency.Claimed].
// Each is another process as far as the middleware knows.
func (s *stage) inTransaction(h http.HandlerFunc) *service {
	s.t.Helper()
	m, err := idempotency.InTransaction(s.store, s.cfg)
	require.NoError(s.t, err)
	return s.serve(m, h)
}

func (s *stage) claimed(h http.HandlerFunc) *service {
	s.t.Helper()
	m, err := idempotency.Claimed(s.store, s.cfg)
	require.NoError(s.t, err)
	return s.serve(m, h)
}

func (s *stage) serve(m *idempotency.Middleware, h http.HandlerFunc) *service {
	mux := http.NewServeMux()
	for _, route := range []string{"/orders", "/orders/{id}", "/refunds"} {
		mux.Handle(route, m.Handler(h))
	}
	var handler http.Handler = mux
	if s.before != nil {
		handler = s.before(mux)
	}
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of panics
	server.Start()
	s.t.Cleanup(server.Close)
	return &service{s.t, server}
}

func (s *stage) effects() int { return count(s.t, s.db.Pool, "effects") }

func (s *stage) records() int { return count(s.t, s.db.Pool, "firstseen.idempotency") }

func (s *stage) answers() int {
	return count(s.t, s.db.Pool, "firstseen.idempotency where status is not null")
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.db.Pool.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err)
}

// effect is the handler's work in its transaction, or beside any: it gives the new row's ID.
func (s *stage) effect(r *http.Request) (id int64, err error) {
	const sql = `insert into effects (what) values ('x') returning id`
	if tx := idempotency.Tx(r.Context()); tx != nil {
		return id, tx.QueryRow(r.Context(), sql).Scan(&id)
	}
	return id, s.db.Pool.QueryRow(r.Context(), sql).Scan(&id)
}

// create is a handler that takes effect and answers 201.
func (s *stage) create(w http.ResponseWriter, r *http.Request) { s.answer(w, r, http.StatusCreated) }

func (s *stage) answer(w http.ResponseWriter, r *http.Request, status int) {
	id, err := s.effect(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Location", fmt.Sprint("/orders/", id))
	h.Set("ETag", fmt.Sprintf(`"%d"`, id))
	h.Set("Set-Cookie", "session=secret")
	h.Set("X-Version", "7")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"id":%d}`, id)
}

// service is a server and what is asked of it.
type service struct {
	t      testing.TB
	server *httptest.Server
}

// answer is one, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// code is that of a problem.
func (a answer) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &p)
	return p.Code
}

func (a answer) replayed() bool { return a.header.Get("Idempotency-Replayed") == "true" }

const jsonType = "application/json"

// post sends an order with a key. Headers follow in pairs.
func (s *service) post(key, body string, headers ...string) answer {
	s.t.Helper()
	got, err := s.try(key, "/orders", body, headers...)
	require.NoError(s.t, err)
	return got
}

func (s *service) try(key, path, body string, headers ...string) (answer, error) {
	return send(s.server.URL+path, key, body, headers...)
}

func send(url, key, body string, headers ...string) (answer, error) {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", jsonType)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return do(r)
}

// client is impatient: a test fails rather than hangs.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func do(r *http.Request) (answer, error) {
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := io.Copy(&body, response.Body); err != nil {
		return answer{}, err
	}
	return answer{response.StatusCode, response.Header, body.String()}, nil
}

func (s *stage) poolOf(n int32) *pgxpool.Pool {
	pool := deduptest.OpenPool(s.t, s.db.DSN, func(c *pgxpool.Config) { c.MaxConns = n })
	return pool
}

// requestOf is an order whose client may hang up.
func requestOf(t testing.TB, at *service, key, body string) (r *http.Request, hangUp func()) {
	ctx, hangUp := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.server.URL+"/orders", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set("Idempotency-Key", key)
	return r, hangUp
}

// chunked is a body that does not say how long it is.
func chunked(text string) io.Reader { return io.MultiReader(strings.NewReader(text)) }
