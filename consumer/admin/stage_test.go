package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// stage is a server over an inbox in a database of its own; the consumer's status is what the test says.
type stage struct {
	t        *testing.T
	db       *deduptest.DB
	pool     *pgxpool.Pool
	store    *dedup.Store
	settings service.Settings
	cfg      Config
	doctor   func(context.Context) ([]view.Finding, error)
	service  *service.Service
	server   *Server
	log      *deduptest.Log
	status   atomic.Pointer[consumer.Status]
	totals   atomic.Pointer[handlers.Totals]
	scheme   string
	client   *http.Client
	next     int64
}

// tell changes the consumer's status; what the server knows of Postgres it asks anew.
func (s *stage) tell(status consumer.Status) { s.status.Store(&status) }

func newStage(t *testing.T, change func(*stage)) *stage {
	db := deduptest.New(t)
	s := stageOn(t, db.Pool, change)
	s.db = db
	s.open()
	s.start()
	s.service.Attach(s.parts())
	return s
}

func (s *stage) parts() service.Parts {
	return service.Parts{Inbox: operate.Of(s.store), Status: func() consumer.Status { return *s.status.Load() },
		Totals: func() handlers.Totals { return *s.totals.Load() }}
}

// unstarted is a stage without a database, whose server does not listen yet.
func unstarted(t *testing.T, change func(*stage)) *stage {
	return stageOn(t, deduptest.OpenPool(t, nowhere, nil), change)
}

const nowhere = "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"

func stageOn(t *testing.T, pool *pgxpool.Pool, change func(*stage)) *stage {
	s := &stage{t: t, pool: pool, log: &deduptest.Log{}, scheme: "http"}
	s.client = &http.Client{Transport: &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(s.client.CloseIdleConnections)
	s.tell(consumer.Status{State: consumer.Consuming, Since: time.Now(), Generation: 3, Rebalances: 1,
		Partitions: []consumer.PartitionStatus{
			{Topic: "orders", Next: 5, Committed: 4, End: 9, HighWatermark: 9, Lag: 4, LagTime: time.Second},
			{Topic: "orders", Partition: 1, Next: -1, Committed: -1, End: -1, HighWatermark: -1, Lag: -1}}})
	s.totals.Store(&handlers.Totals{Handled: 90, Failed: 1})
	s.settings.Access.Rate = 10_000
	metrics := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }
	s.cfg = Config{Listen: "127.0.0.1:0", Metrics: http.HandlerFunc(metrics)}
	if change != nil {
		change(s)
	}
	var err error
	s.service, err = service.New(service.Config{Group: "billing", Inbox: "orders-inbox", Version: "v1", Pool: pool,
		Settings: s.settings, Doctor: s.doctor, Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	require.NoError(t, err)
	s.cfg.Service = s.service
	s.server, err = New(s.cfg)
	require.NoError(t, err)
	return s
}

func (s *stage) open() {
	var err error
	s.store, err = dedup.Open(s.t.Context(), s.db.Pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(s.t, err)
}

func (s *stage) start() {
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(s.t, s.server.Start(ctx))
	stop := s.service.Start(ctx)
	s.t.Cleanup(func() { cancel(); s.server.Stop(); stop() })
}

// add takes a message of handler book in, in the status that it is given; its ID is that of the text.
func (s *stage) add(rawID string, status operate.Status, m dedup.Message) uuid.UUID {
	s.t.Helper()
	ids, err := identity.ParseIDs(rawID)
	require.NoError(s.t, err)
	m.ID, m.RawID, m.Topic, m.Offset = ids[0], rawID, "orders", s.next
	if m.RawTimestamp == 0 {
		m.Timestamp = time.Unix(1e9, 0)
	}
	m.Fingerprint = identity.FingerprintBytes.Of(m.Value)
	s.next++
	scopes, err := s.store.Scopes(s.t.Context(), []dedup.ScopeKey{{Handler: "book", Tenant: m.Tenant}})
	require.NoError(s.t, err)
	e := dedup.Entry{Scope: scopes.IDs[0], Message: &m, Lane: m.ID}
	switch status {
	case operate.StatusPending:
		e.State, e.Due = dedup.Parked, time.Hour
	case operate.StatusFailed:
		e.State, e.Due, e.Attempts, e.Reason, e.Error = dedup.Parked, time.Hour, 3, "handler_failed", "no such account"
	case operate.StatusDead:
		e.State, e.Attempts, e.Reason, e.Error = dedup.Dead, 10, "attempts_exhausted", "no such account"
	}
	tx, err := s.store.Accept(s.t.Context(), &dedup.Batch{Entries: []dedup.Entry{e}})
	require.NoError(s.t, err)
	require.NoError(s.t, tx.Commit(s.t.Context()))
	return ids[0]
}

// reply is an answer of the server, read whole.
type reply struct {
	*http.Response
	body []byte
}

func (r reply) into(v any) { _ = json.Unmarshal(r.body, v) }

// at reads one field of the answer, as in messages.0.id.
func (r reply) at(path string) any {
	var v any
	r.into(&v)
	for _, step := range strings.Split(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

func (s *stage) url(path string) string { return s.scheme + "://" + s.server.Addr().String() + path }

// ask sends a request, requires its status, and holds the answer against the OpenAPI document. headers are names and
// values.
func (s *stage) ask(status int, method, path, body string, headers ...string) reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url(path), strings.NewReader(body))
	require.NoError(s.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	response, err := s.client.Do(r)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, response.Body.Close()) }()
	content, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, status, response.StatusCode, "%s %s: %s\n%s", method, path, content, s.logged())
	out := reply{response, content}
	if strings.HasPrefix(path, prefix) {
		require.Equal(s.t, []string{"no-store", "nosniff"},
			[]string{out.Header.Get("Cache-Control"), out.Header.Get("X-Content-Type-Options")})
	}
	s.requireAsDocumented(method, r.URL, out)
	return out
}

func (s *stage) logged() string { return s.log.String() }

func (s *stage) get(path string, headers ...string) reply {
	s.t.Helper()
	return s.ask(http.StatusOK, http.MethodGet, path, "", headers...)
}

// unreached asks where no answer is expected, and gives the error.
func (s *stage) unreached(path string) error {
	s.t.Helper()
	response, err := s.client.Get(s.url(path))
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

// refused asks, and gives the problem.
func (s *stage) refused(status int, method, path, body string, headers ...string) httpjson.Problem {
	s.t.Helper()
	answer := s.ask(status, method, path, body, headers...)
	require.Equal(s.t, "application/problem+json", answer.Header.Get("Content-Type"))
	var p httpjson.Problem
	answer.into(&p)
	require.Equal(s.t, status, p.Status)
	require.NotEmpty(s.t, p.Detail)
	return p
}

func values(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return "?" + v.Encode()
}
