package service

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// waitFor is how long a test waits for what is to come.
const waitFor = 3 * time.Minute

// stage is a service over an inbox in a database of its own; the consumer's status is what the test says.
type stage struct {
	*Service
	t      *testing.T
	db     *deduptest.DB
	store  *dedup.Store
	log    *deduptest.Log
	end    context.CancelFunc // of the program
	status atomic.Pointer[consumer.Status]
	totals atomic.Pointer[handlers.Totals]
}

func newStage(t *testing.T) *stage { return newStageOn(t, deduptest.New(t)) }

func newStageOn(t *testing.T, db *deduptest.DB) *stage { return newStageThrough(t, db, db.Pool) }

// newStageThrough has the service reach the database by a pool of its own.
func newStageThrough(t *testing.T, db *deduptest.DB, pool *pgxpool.Pool) *stage {
	s := stageOn(t, pool)
	s.db = db
	var err error
	s.store, err = dedup.Open(t.Context(), db.Pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	s.Attach(s.parts())
	return s
}

func stageOn(t *testing.T, pool *pgxpool.Pool) *stage {
	s := &stage{t: t, log: &deduptest.Log{}}
	s.tell(consumer.Consuming)
	s.totals.Store(&handlers.Totals{Handled: 90, Failed: 1})
	var err error
	s.Service, err = New(Config{Group: "billing", Inbox: "orders-inbox", Pool: pool,
		Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	stop := s.Start(ctx)
	t.Cleanup(func() { end(); stop() })
	return s
}

func (s *stage) tell(state consumer.State) {
	s.status.Store(&consumer.Status{State: state, Since: time.Now()})
}

func (s *stage) parts() Parts {
	return Parts{Inbox: operate.Of(s.store), Status: func() consumer.Status { return *s.status.Load() },
		Totals: func() handlers.Totals { return *s.totals.Load() }}
}

// fail parks a message that its handler has failed on.
func (s *stage) fail() {
	s.t.Helper()
	scopes, err := s.store.Scopes(s.t.Context(), []dedup.ScopeKey{{Handler: "book"}})
	require.NoError(s.t, err)
	m := dedup.Message{ID: uuid.New(), Topic: "orders"}
	tx, err := s.store.Accept(s.t.Context(), &dedup.Batch{Entries: []dedup.Entry{{Scope: scopes.IDs[0], Message: &m,
		Lane: m.ID, State: dedup.Parked, Due: time.Hour, Attempts: 3, Reason: "handler_failed", Error: "no such account"}}})
	require.NoError(s.t, err)
	require.NoError(s.t, tx.Commit(s.t.Context()))
}

// anew has Postgres asked again by the next question for health.
func (s *stage) anew() { s.health.until = time.Time{} }

// reply is an answer, read whole.
type reply struct {
	status int
	body   []byte
}

func (s *stage) get(path string) (r reply) {
	w := httptest.NewRecorder()
	s.Probes().ServeHTTP(w, httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, path, nil))
	return reply{w.Code, w.Body.Bytes()}
}

// probe requires a status, and gives the reason for it.
func (s *stage) probe(status int, path string) string {
	s.t.Helper()
	answer := s.get(path)
	require.Equal(s.t, status, answer.status, "%s\n%s", answer.body, s.log.String())
	var p Probe
	require.NoError(s.t, json.Unmarshal(answer.body, &p))
	return p.Reason
}

// examine requires a status, and gives health with its checks by name.
func (s *stage) examine(status int) (Health, map[string]Check) {
	s.t.Helper()
	answer := s.get("/healthz")
	require.Equal(s.t, status, answer.status, "%s", answer.body)
	var h Health
	require.NoError(s.t, json.Unmarshal(answer.body, &h))
	checks := map[string]Check{}
	for _, c := range h.Checks {
		checks[c.Name] = c
	}
	return h, checks
}
