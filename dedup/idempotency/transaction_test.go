package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

// left holds what requests have left in Postgres: effects, and stored answers.
func (s *stage) left(effects, answers int) {
	s.t.Helper()
	require.Equal(s.t, []int{effects, answers}, []int{s.effects(), s.answers()}, "effects, answers")
}

func TestCommitThatFailsAfter201IsAnsweredAsTheFailure(t *testing.T) {
	s := newStage(t)
	s.exec(`insert into checked values (1)`)
	var mended atomic.Bool
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		if !mended.Load() {
			// found out by COMMIT
			_, err := idempotency.Tx(r.Context()).Exec(r.Context(), `insert into checked values (1)`)
			require.NoError(t, err)
		}
		s.create(w, r)
	})
	got := orders.post("k", `{}`)
	require.Equal(t, []any{http.StatusInternalServerError, idempotency.CodeNotCommitted},
		[]any{got.status, got.code()})
	require.Empty(t, got.header.Get("Location"))
	require.Empty(t, got.header.Get("Set-Cookie"))
	s.left(0, 0)
	mended.Store(true)
	require.Equal(t, http.StatusCreated, orders.post("k", `{}`).status)
	s.left(1, 1)
}

// watched is a client's side that looks, whenever something reaches it, whether that has been committed.
type watched struct {
	*httptest.ResponseRecorder
	s       *stage
	reached int
}

func (w *watched) look() {
	w.reached++
	w.s.left(1, 1)
}

func (w *watched) WriteHeader(status int) { w.look(); w.ResponseRecorder.WriteHeader(status) }

func (w *watched) Write(p []byte) (int, error) { w.look(); return w.ResponseRecorder.Write(p) }

func (w *watched) Flush() { w.look() }

func TestNothingReachesTheClientBeforeTheCommit(t *testing.T) {
	s := newStage(t)
	m, err := idempotency.InTransaction(s.store, s.cfg)
	require.NoError(t, err)
	handler := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		s.create(w, r)
		w.(http.Flusher).Flush()
		control := http.NewResponseController(w)
		require.NoError(t, control.Flush())
		_, _, err := control.Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
		_, unwraps := w.(interface{ Unwrap() http.ResponseWriter })
		require.False(t, unwraps)
		_, err = w.Write(make([]byte, 100_000))
		require.NoError(t, err)
	}))
	w := &watched{ResponseRecorder: httptest.NewRecorder(), s: s}
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{}`))
	r.Header.Set("Idempotency-Key", "k")
	handler.ServeHTTP(w, r)
	require.Equal(t, http.StatusCreated, w.Code)
	require.Positive(t, w.reached)
}

func TestHandlerCanNotEndItsTransaction(t *testing.T) {
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"commit":           func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"rollback":         func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"commit in SQL":    execute(`commit`),
		"commit and chain": execute(`commit and chain`),
		"rollback in SQL":  execute(`rollback`),
		"another one":      execute(`rollback; begin; insert into effects (what) values ('beside')`),
		"all constraints":  execute(`set constraints all immediate; commit`),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			var ended error
			orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
				id, err := s.effect(r)
				require.NoError(t, err)
				ended = end(r.Context(), idempotency.Tx(r.Context()))
				w.WriteHeader(http.StatusCreated)
				fmt.Fprint(w, id)
			})
			got := orders.post("k", `{}`)
			if errors.Is(ended, dedup.ErrNotYours) {
				require.Equal(t, http.StatusCreated, got.status)
				s.left(1, 1)
				return
			}
			require.Equal(t, []any{http.StatusInternalServerError, idempotency.CodeNotCommitted},
				[]any{got.status, got.code()})
			s.left(0, 0)
		})
	}
}

func execute(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	}
}

func TestErrorThatAHandlerDropsIsNoSuccess(t *testing.T) {
	s := newStage(t)
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		_, _ = s.effect(r)
		_, _ = idempotency.Tx(r.Context()).Exec(r.Context(), `select 1/0`)
		w.WriteHeader(http.StatusCreated)
	})
	require.Equal(t, http.StatusInternalServerError, orders.post("k", `{}`).status)
	s.left(0, 0)
}

// The rule on 4xx: the answer is kept, and nothing that the handler did, also where a statement has failed.
func TestRefusalIsKeptAndItsEffectsAreNot(t *testing.T) {
	for name, fail := range map[string]string{"decided": `select 1`, "by a constraint": `select 1/0`} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
				_, err := s.effect(r)
				require.NoError(t, err)
				_, _ = idempotency.Tx(r.Context()).Exec(r.Context(), fail)
				http.Error(w, "taken", http.StatusConflict)
			})
			first, again := orders.post("k", `{}`), orders.post("k", `{}`)
			require.Equal(t, []any{http.StatusConflict, "taken\n"}, []any{first.status, first.body})
			require.Equal(t, []any{first.status, first.body, true}, []any{again.status, again.body, again.replayed()})
			s.left(0, 1)
			require.Equal(t, http.StatusConflict, orders.post("", `{}`).status, "and without a key")
			s.left(0, 1)
		})
	}
}

func TestAnswerThatIsTooLargeTakesEverythingBack(t *testing.T) {
	s := newStage(t)
	s.cfg.MaxAnswerBytes = 10
	var wrote error
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		_, err := s.effect(r)
		require.NoError(t, err)
		_, err = w.Write([]byte("12345"))
		require.NoError(t, err)
		_, wrote = w.Write([]byte("678901"))
	})
	got := orders.post("k", `{}`)
	require.ErrorIs(t, wrote, idempotency.ErrAnswerTooLarge)
	require.Equal(t, []any{http.StatusInternalServerError, idempotency.CodeAnswerTooBig},
		[]any{got.status, got.code()})
	require.NotContains(t, got.body, "12345")
	s.left(0, 0)
}

func TestRequestWithoutAKeyHasATransactionToo(t *testing.T) {
	s := newStage(t)
	var status atomic.Int32
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, int(status.Load())) })
	for _, code := range []int32{500, 404, 201} {
		status.Store(code)
		require.EqualValues(t, code, orders.post("", `{}`).status)
	}
	s.left(1, 0)
}

// The first has the only connection of a pool: its twin is answered all the same.
func TestTwinHoldsNoConnectionWhileItWaits(t *testing.T) {
	s := newStage(t)
	s.store, s.cfg.Wait = open(t, s.poolOf(1)), 20*time.Second
	started, finish := make(chan struct{}), make(chan struct{})
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-finish
		s.create(w, r)
	})
	answers := make(chan answer, 2)
	ask := func() {
		got, _ := orders.try("k", "/orders", `{}`)
		answers <- got
	}
	go ask()
	<-started
	go ask()
	elsewhere := s.poolOf(1)
	s.store, s.cfg.Wait = open(t, elsewhere), 0
	require.Equal(t, idempotency.CodeInProgress, s.inTransaction(s.create).post("k", `{}`).code())
	require.Zero(t, elsewhere.Stat().AcquiredConns(), "between processes, too")
	close(finish)
	require.Equal(t, (<-answers).body, (<-answers).body)
	s.left(1, 1)
}

// If it waited for the row that the first one holds it would have no answer before that ends.
func TestTwinInAnotherProcessWaitsForNoLock(t *testing.T) {
	s := newStage(t)
	started, finish := make(chan struct{}), make(chan struct{})
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-finish
		s.create(w, r)
	})
	first := make(chan answer, 1)
	go func() {
		got, _ := orders.try("k", "/orders", `{}`)
		first <- got
	}()
	<-started
	elsewhere := s.inTransaction(s.create)
	require.Equal(t, idempotency.CodeInProgress, elsewhere.post("k", `{}`).code())
	close(finish)
	require.Equal(t, http.StatusCreated, (<-first).status)
	require.True(t, elsewhere.post("k", `{}`).replayed())
}

func TestTransactionIsOutOfReachWhenTheRequestIsOver(t *testing.T) {
	s := newStage(t)
	var kept pgx.Tx
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		kept = idempotency.Tx(r.Context())
		s.create(w, r)
	})
	orders.post("k", `{}`)
	_, err := kept.Exec(t.Context(), `delete from effects`)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	s.left(1, 1)
}

// A process that is lost without a word leaves a session, which must not hold the key for as long as the kernel does.
func TestPostgresEndsTheTransactionOfAProcessThatIsLost(t *testing.T) {
	s := newStage(t)
	s.cfg.WorkTime = 41 * time.Second
	var limit, commit string
	orders := s.inTransaction(func(_ http.ResponseWriter, r *http.Request) {
		require.NoError(t, idempotency.Tx(r.Context()).QueryRow(r.Context(), `select
			current_setting('idle_in_transaction_session_timeout'), current_setting('synchronous_commit')`).
			Scan(&limit, &commit))
	})
	orders.post("k", `{}`)
	require.Equal(t, []string{"42s", "on"}, []string{limit, commit})
}

func TestSessionThatIsEndedMeanwhileFreezesNothing(t *testing.T) {
	s := newStage(t)
	var mended atomic.Bool
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		if !mended.Load() {
			s.exec(`select pg_terminate_backend($1)`, idempotency.Tx(r.Context()).Conn().PgConn().PID())
			w.WriteHeader(http.StatusCreated)
			return
		}
		s.create(w, r)
	})
	got := orders.post("k", `{}`)
	require.Equal(t, []any{http.StatusServiceUnavailable, idempotency.CodeNotCommitted, "1"},
		[]any{got.status, got.code(), got.header.Get("Retry-After")})
	mended.Store(true)
	require.Equal(t, http.StatusCreated, orders.post("k", `{}`).status)
}

func TestHandlerDoesNotRunWhereThePastCanNotBeFoundOut(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		orders := serve(func(http.ResponseWriter, *http.Request) { t.Error("it ran") })
		s.exec(`alter table firstseen.idempotency rename to gone`)
		got := orders.post("k", `{}`)
		require.Equal(t, []any{http.StatusServiceUnavailable, idempotency.CodeUnavailable},
			[]any{got.status, got.code()})
	})
}

// What was asked for is done, and the answer to COMMIT never comes: the record tells.
func TestCommitWhoseAnswerIsLostIsFoundOut(t *testing.T) {
	s := newStage(t)
	proxy := deduptest.NewProxy(t, s.db.DSN)
	var err error
	s.store, err = idempotency.Open(t.Context(), deduptest.OpenPool(t, proxy.DSN, nil),
		idempotency.PostgresConfig{AnswerTimeout: 2 * time.Second})
	require.NoError(t, err)
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		s.create(w, r)
		proxy.SwallowAnswer("COMMIT")
	})
	got := orders.post("k", `{}`)
	require.Equal(t, []any{http.StatusCreated, `{"id":1}`, "/orders/1"},
		[]any{got.status, got.body, got.header.Get("Location")})
	s.left(1, 1)
	got = orders.post("", `{}`)
	require.Equal(t, []any{http.StatusServiceUnavailable, idempotency.CodeOutcomeUnknown},
		[]any{got.status, got.code()}, "without a key nobody can find out")
	proxy.Close() // or the pool waits for what it closes
}

// At the start, and then hourly; what is being worked on is passed over.
func TestSweepRunsAtTheStartAndTakesNothingThatIsWorkedOn(t *testing.T) {
	s := newStage(t)
	s.exec(`insert into firstseen.idempotency (id, key_hash, tenant, scope, route, fingerprint, status, expires_at)
		select sha256(i::text::bytea), '', '', '', '', '', 200, now() - interval '1 second' from generate_series(1, 1200) i`)
	started, finish := make(chan struct{}), make(chan struct{})
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 2 {
			started <- struct{}{}
			<-finish
		}
		s.create(w, r)
	})
	orders.post("young", `{}`)
	slow := make(chan answer, 1)
	go func() {
		got, _ := orders.try("slow", "/orders", `{"slow":1}`)
		slow <- got
	}()
	<-started
	ctx, stop := context.WithCancel(t.Context())
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		idempotency.RunSweep(ctx, s.store, 0, s.cfg.Logger)
	}()
	require.Eventually(t, func() bool { return strings.Contains(s.log.String(), "swept=1200") },
		3*time.Minute, 5*time.Millisecond)
	stop()
	<-swept
	close(finish)
	require.Equal(t, http.StatusCreated, (<-slow).status)
	require.True(t, orders.post("young", `{}`).replayed())
	s.left(2, 2)
}
