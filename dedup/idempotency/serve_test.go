package idempotency_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/idempotency"
)

func inBothModes(t *testing.T, test func(*testing.T, *stage, func(http.HandlerFunc) *service)) {
	t.Run("in transaction", func(t *testing.T) { s := newStage(t); test(t, s, s.inTransaction) })
	t.Run("claimed", func(t *testing.T) { s := newStage(t); test(t, s, s.claimed) })
}

// Case 35, and "same key, same body: the same answer, one row".
func TestSameRequestIsGivenTheSameAnswer(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.Headers = []string{"x-version"}
		orders := serve(s.create)
		first, again := orders.post("k", `{"a":1,"b":[]}`), orders.post("k", ` { "b" : [ ], "a" : 1.0 } `)
		require.Equal(t, http.StatusCreated, first.status)
		require.Equal(t, "session=secret", first.header.Get("Set-Cookie"), "the first has all that the handler sent")
		require.False(t, first.replayed())
		require.Equal(t, []any{first.status, first.body}, []any{again.status, again.body})
		require.True(t, again.replayed())
		for _, name := range []string{"Content-Type", "Location", "Etag", "X-Version"} {
			require.NotEmpty(t, first.header.Get(name))
			require.Equal(t, first.header.Get(name), again.header.Get(name), name)
		}
		require.Empty(t, again.header.Get("Set-Cookie"))
		require.NotEmpty(t, again.header.Get("X-Request-Id"))
		require.NotEqual(t, first.header.Get("X-Request-Id"), again.header.Get("X-Request-Id"))
		require.Equal(t, []int{1, 1}, []int{s.effects(), s.records()})
	})
}

func TestAnswerWithoutABodyIsGivenAgain(t *testing.T) {
	inBothModes(t, func(t *testing.T, _ *stage, serve func(http.HandlerFunc) *service) {
		orders := serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		first, again := orders.post("k", `{}`), orders.post("k", `{}`)
		require.Equal(t, http.StatusNoContent, first.status)
		require.Equal(t, http.StatusNoContent, again.status)
		require.True(t, again.replayed())
	})
}

// What net/http sends is given again, whether or not a client takes it: the effect stands.
func TestHeadersAreGivenAgainWhateverIsInThem(t *testing.T) {
	s := newStage(t)
	m, err := idempotency.InTransaction(s.store, s.cfg)
	require.NoError(t, err)
	for i, value := range []string{"a\x01b", "a\x7fb", "na\xefve", "a\tb", "a: b", ""} {
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Disposition", value)
			w.WriteHeader(http.StatusCreated)
		}))
		post := func() *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders", nil)
			r.Header.Set("Idempotency-Key", fmt.Sprint("k", i))
			h.ServeHTTP(w, r)
			return w
		}
		first, again := post(), post()
		require.Equal(t, http.StatusCreated, again.Code, "%q", value)
		require.Equal(t, first.Header()["Content-Disposition"], again.Header()["Content-Disposition"])
	}
}

// Route submission: first 202 with the request ID, and the same again.
func TestAcceptedIsGivenAgainWithTheSameRequestID(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		routes := serve(func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, http.StatusAccepted) })
		first, again := routes.post("k", `{"to":"B"}`), routes.post("k", `{"to":"B"}`)
		require.Equal(t, []any{http.StatusAccepted, first.body, true},
			[]any{again.status, again.body, again.replayed()})
		require.Equal(t, 1, s.effects(), "nothing is queued again")
	})
}

func TestSameKeyWithAnotherBodyIsAConflict(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		orders := serve(s.create)
		first := orders.post("k", `{"n":9007199254740993}`)
		for _, other := range []string{`{"n":9007199254740992}`, `{}`, ``, `no json`,
			`{"n":9007199254740993,"x":null}`} {
			got := orders.post("k", other)
			require.Equal(t, []any{http.StatusConflict, "idempotency_key_conflict"},
				[]any{got.status, got.code()}, other)
			require.NotContains(t, got.body, "id\":1", "nothing of the first is told")
		}
		require.Equal(t, first.body, orders.post("k", `{"n":9007199254740993}`).body, "the first stands")
		require.Equal(t, 1, s.effects())
		s.cfg.ConflictStatus = http.StatusUnprocessableEntity
		require.Equal(t, http.StatusUnprocessableEntity, serve(s.create).post("k", `{}`).status)
	})
}

func TestRequestsWithoutAKeyTakeEffectEachTime(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		orders := serve(s.create)
		require.NotEqual(t, orders.post("", `{}`).body, orders.post("", `{}`).body)
		require.Equal(t, []int{2, 0}, []int{s.effects(), s.records()})
		require.Empty(t, s.heard())
	})
}

// Case 33: a key is its tenant's, and no texts run together to another's.
func TestAnotherTenantsKeyIsAnotherKey(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		orders := serve(s.create)
		callers := [][]string{{"X-Tenant", "a"}, {"X-Tenant", "b"}, {"X-Tenant", "a", "X-User", "u"},
			{"X-Tenant", "au"}, {"X-Tenant", "a", "X-Conversation", "u"}, {"X-User", "a"},
			{"X-Tenant", "a", "X-User", "b:c"},
			{"X-Tenant", "a:b", "X-User", "c"}, {"X-Tenant", "a", "X-User", "u", "X-Conversation", "c"}}
		bodies := map[string]bool{}
		for _, caller := range callers {
			got := orders.post("1", fmt.Sprintf(`{"by":%q}`, caller), caller...)
			require.Equal(t, http.StatusCreated, got.status, "%v: no conflict tells that the key is there", caller)
			require.False(t, got.replayed(), caller)
			bodies[got.body] = true
		}
		for _, caller := range callers {
			require.True(t, orders.post("1", fmt.Sprintf(`{"by":%q}`, caller), caller...).replayed())
		}
		require.Len(t, bodies, len(callers))
		orders.post("b:c", `{}`, "X-Tenant", "t")
		require.False(t, orders.post("c", `{}`, "X-Tenant", "tb:").replayed())
	})
}

func TestAnotherRouteMakesAnotherKeyAndAnotherPathAConflict(t *testing.T) {
	s := newStage(t)
	orders := s.inTransaction(s.create)
	post := func(path string) answer {
		got, err := orders.try("k", path, `{}`)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, http.StatusCreated, post("/orders").status)
	require.Equal(t, http.StatusCreated, post("/refunds").status)
	require.Equal(t, http.StatusCreated, post("/orders/1").status)
	require.Equal(t, http.StatusConflict, post("/orders/2").status, "one route, another path value")
	require.Equal(t, http.StatusConflict, post("/orders?a=1").status, "another query")
	require.Equal(t, 3, s.effects())
}

// Routers that set no pattern leave the path, of which http.StripPrefix has taken a part away.
func TestPathsOfWhichAPrefixWasTakenAwayAreNotOne(t *testing.T) {
	s := newStage(t)
	m, err := idempotency.InTransaction(s.store, s.cfg)
	require.NoError(t, err)
	mount := func(prefix string) http.Handler {
		return http.StripPrefix(prefix, m.Handler(http.HandlerFunc(s.create)))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{shop}/", func(w http.ResponseWriter, r *http.Request) {
		mount("/"+r.PathValue("shop")).ServeHTTP(w, r)
	})
	for name, router := range map[string]http.Handler{"one pattern": mux,
		"no pattern": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mount(r.URL.Path[:2]).ServeHTTP(w, r) })} {
		first, other := httptest.NewRecorder(), httptest.NewRecorder()
		for w, path := range map[*httptest.ResponseRecorder]string{first: "/a/orders", other: "/b/orders"} {
			r := httptest.NewRequest(http.MethodPost, path, nil)
			r.Header.Set("Idempotency-Key", name)
			router.ServeHTTP(w, r)
		}
		require.Empty(t, first.Header().Get("Idempotency-Replayed")+other.Header().Get("Idempotency-Replayed"), name)
	}
}

func TestOrderOfQueryAndSpellingOfContentTypeDoNotMatter(t *testing.T) {
	s := newStage(t)
	orders := s.inTransaction(s.create)
	for i, path := range []string{"/orders?a=1&b=2&a=3", "/orders?b=2&a=1&a=3"} {
		got, err := orders.try("k", path, `{}`, "Authorization", fmt.Sprint("Bearer ", i))
		require.NoError(t, err)
		require.Equal(t, i == 1, got.replayed(), "tokens are no part of it")
	}
	got, err := orders.try("k", "/orders?a=3&b=2&a=1", `{}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, got.status, "values of one name have an order")
}

func TestBodiesThatAreNoJSONCountByTheirBytesWithoutTheirEncoding(t *testing.T) {
	s := newStage(t)
	var got []byte
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		got = b.Bytes()
		s.create(w, r)
	})
	text := strings.Repeat("a,b\n", 100)
	post := func(body, contentType, encoding string) answer {
		r, err := http.NewRequest(http.MethodPost, orders.server.URL+"/orders", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Content-Encoding", encoding)
		r.Header.Set("Idempotency-Key", "k")
		a, err := do(r)
		require.NoError(t, err)
		return a
	}
	require.Equal(t, http.StatusCreated, post(zipped(text), "text/csv; Charset=UTF-8", "gzip").status)
	require.Equal(t, zipped(text), string(got), "the handler has the body as it came")
	require.True(t, post(text, "Text/CSV;charset=utf-8", "").replayed())
	require.Equal(t, http.StatusConflict, post(text+" ", "text/csv; charset=utf-8", "").status)
	require.Equal(t, http.StatusConflict, post(text, "text/plain; charset=utf-8", "").status)
	require.Equal(t, http.StatusRequestEntityTooLarge, post(zipped(strings.Repeat("0", 2<<20)), "text/csv",
		"gzip").status, "its size is that without the encoding, too")
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// Case 34, first half: a twin is told to come again, another body that it conflicts, even while the first is running.
func TestTwinIsToldToComeAgainWhileTheFirstRuns(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.RetryAfter = 7 * time.Second
		started, finish := make(chan struct{}), make(chan struct{})
		orders := serve(func(w http.ResponseWriter, r *http.Request) {
			started <- struct{}{}
			<-finish
			s.create(w, r)
		})
		elsewhere := serve(s.create) // as another process
		first := make(chan answer)
		go func() {
			got, _ := orders.try("k", "/orders", `{}`)
			first <- got
		}()
		<-started
		for _, at := range []*service{orders, elsewhere} {
			got := at.post("k", `{}`)
			require.Equal(t, []any{http.StatusConflict, "idempotency_in_progress", "7"},
				[]any{got.status, got.code(), got.header.Get("Retry-After")})
		}
		require.Equal(t, "idempotency_key_conflict", orders.post("k", `{"n":2}`).code())
		close(finish)
		require.Equal(t, elsewhere.post("other", `{}`).status, (<-first).status)
		require.True(t, elsewhere.post("k", `{}`).replayed())
		require.Equal(t, 2, s.effects())
	})
}

func TestTwinMayWaitForTheFirstsAnswer(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.Wait = 20 * time.Second
		started, finish := make(chan struct{}, 1), make(chan struct{})
		slow := func(w http.ResponseWriter, r *http.Request) {
			started <- struct{}{}
			<-finish
			s.create(w, r)
		}
		here, there := serve(slow), serve(slow)
		var group sync.WaitGroup
		answers := make(chan answer, 7)
		ask := func(at *service) {
			got, _ := at.try("k", "/orders", `{}`)
			answers <- got
		}
		group.Go(func() { ask(here) })
		<-started
		for range 3 {
			group.Go(func() { ask(here) })
			group.Go(func() { ask(there) })
		}
		require.Eventually(t, func() bool { return s.db.Pool.Stat().AcquiredConns() <= 1 },
			3*time.Minute, time.Millisecond)
		close(finish)
		group.Wait()
		close(answers)
		replays := 0
		for got := range answers {
			require.Equal(t, []any{http.StatusCreated, `{"id":1}`}, []any{got.status, got.body})
			if got.replayed() {
				replays++
			}
		}
		require.Equal(t, []int{6, 1}, []int{replays, s.effects()})
	})
}

// HTTP enqueue: N parallel, one row, all the same ID.
func TestSixtyFourTwinsTakeEffectOnce(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.Wait = 20 * time.Second
		services := []*service{serve(s.create), serve(s.create)}
		for key := range 4 {
			var group sync.WaitGroup
			barrier := make(chan struct{})
			bodies := make(chan string, 64)
			for i := range cap(bodies) {
				group.Go(func() {
					<-barrier
					got, err := services[i%2].try(fmt.Sprint("k", key), "/orders", `{}`)
					bodies <- fmt.Sprint(got.status, got.body, err)
				})
			}
			close(barrier)
			group.Wait()
			close(bodies)
			for got := range bodies {
				require.Equal(t, fmt.Sprintf(`201{"id":%d}<nil>`, key+1), got)
			}
		}
		require.Equal(t, []int{4, 4}, []int{s.effects(), s.records()})
	})
}

func TestFailuresFreezeNothing(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		fails := map[string]http.HandlerFunc{
			"500": func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "no", http.StatusInternalServerError)
			},
			"503":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
			"401":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			"403":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
			"429":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
			"panic":   func(http.ResponseWriter, *http.Request) { panic("no") },
			"aborted": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		}
		for name, fail := range fails {
			t.Run(name, func(t *testing.T) {
				var mended atomic.Bool
				orders := serve(func(w http.ResponseWriter, r *http.Request) {
					if mended.Load() {
						s.create(w, r)
						return
					}
					if idempotency.Tx(r.Context()) != nil {
						_, err := s.effect(r) // which is undone
						require.NoError(t, err)
					}
					w.WriteHeader(http.StatusProcessing) // is no answer
					fail(w, r)
				})
				before := s.effects()
				got, err := orders.try(name, "/orders", `{"n":1}`)
				if err == nil {
					require.Equal(t, name, fmt.Sprint(got.status), "the handler's own answer")
				}
				require.Equal(t, before, s.effects())
				mended.Store(true)
				require.Equal(t, http.StatusCreated, orders.post(name, `{"n":2}`).status, "another body may try, too")
			})
		}
	})
}

func TestRefusalIsGivenAgain(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		var calls atomic.Int32
		orders := serve(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			http.Error(w, "no such customer", http.StatusUnprocessableEntity)
		})
		first, again := orders.post("k", `{}`), orders.post("k", `{}`)
		require.Equal(t, []any{http.StatusUnprocessableEntity, first.body, true},
			[]any{again.status, again.body, again.replayed()})
		require.EqualValues(t, 1, calls.Load())
		s.cfg.Final = func(status int) bool { return status < 400 }
		orders = serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
		orders.post("other", `{}`)
		require.False(t, orders.post("other", `{}`).replayed())
	})
}

func TestWhoCallsComesBeforeTheKey(t *testing.T) {
	s := newStage(t)
	orders := s.inTransaction(s.create)
	got := orders.post(`"broken`, `{}`, "Authorization", "Bearer wrong")
	require.Equal(t, http.StatusUnauthorized, got.status)
	require.NotEmpty(t, got.header.Get("X-Request-Id"))
}

// 429 comes before the key is looked at, and a replay passes the limit as the first one did.
func TestRateLimitComesBeforeTheKeyAndIsPassedByReplaysToo(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		var passed, limit atomic.Int32
		s.before = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if passed.Load() >= limit.Load() {
					http.Error(w, "too many", http.StatusTooManyRequests)
					return
				}
				passed.Add(1)
				next.ServeHTTP(w, r)
			})
		}
		orders := serve(s.create)
		require.Equal(t, http.StatusTooManyRequests, orders.post(`"broken`, `{}`).status, "whatever the key is")
		require.Equal(t, http.StatusTooManyRequests, orders.post("k", `{}`).status)
		limit.Store(2)
		require.Equal(t, http.StatusCreated, orders.post("k", `{}`).status, "429 was not kept")
		require.True(t, orders.post("k", `{}`).replayed())
		got := orders.post("k", `{}`)
		require.Equal(t, []any{http.StatusTooManyRequests, false}, []any{got.status, got.replayed()}, "a replay counts")
		require.Equal(t, []any{1, []string{"miss", "hit"}}, []any{s.effects(), s.heard()})
	})
}

func TestClientThatHangsUpLosesNoAnswer(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		started, gone := make(chan struct{}), make(chan struct{})
		s.cfg.Wait = 20 * time.Second
		orders := serve(func(w http.ResponseWriter, r *http.Request) {
			started <- struct{}{}
			<-gone
			require.NoError(t, r.Context().Err(), "the work goes on")
			s.create(w, r)
		})
		impatient, hangUp := requestOf(t, orders, "k", `{}`)
		go func() { _, _ = do(impatient) }()
		<-started
		hangUp()
		close(gone)
		got := orders.post("k", `{}`)
		require.Equal(t, []any{http.StatusCreated, true, 1}, []any{got.status, got.replayed(), s.effects()})
	})
}

func TestWorkHasItsOwnTimeLimit(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.WorkTime = 50 * time.Millisecond
		orders := serve(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			http.Error(w, "too slow", http.StatusGatewayTimeout)
		})
		require.Equal(t, http.StatusGatewayTimeout, orders.post("k", `{}`).status)
		require.Zero(t, s.answers())
	})
}

func TestBodyIsBoundedBeforeTheHandlerRuns(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.MaxRequestBytes = 10
		orders := serve(s.create)
		require.Equal(t, http.StatusCreated, orders.post("k", `{"n":"567"}`[:10]).status)
		require.Equal(t, http.StatusRequestEntityTooLarge, orders.post("l", `{"n":"5678"}`).status)
		r, err := http.NewRequest(http.MethodPost, orders.server.URL+"/orders", chunked(`{"n":"5678"}`))
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "m")
		got, err := do(r)
		require.NoError(t, err)
		require.Equal(t, []any{http.StatusRequestEntityTooLarge, "request_too_large"}, []any{got.status, got.code()})
		require.Equal(t, 1, s.effects())
	})
}

func TestBodyThatDoesNotArriveRunsNothing(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.ReadTime = 100 * time.Millisecond
		orders := serve(s.create)
		slow, never := io.Pipe()
		defer never.Close()
		r, err := http.NewRequest(http.MethodPost, orders.server.URL+"/orders", slow)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		got, err := do(r)
		require.NoError(t, err)
		require.Equal(t, []any{http.StatusRequestTimeout, "request_body_unreadable"}, []any{got.status, got.code()})
		require.Zero(t, s.effects())
	})
}

func TestMoreRequestsThanMayRunAtOnceAreToldToComeAgain(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.Concurrency = 1
		entered, leave := make(chan struct{}, 2), make(chan struct{})
		orders := serve(func(w http.ResponseWriter, r *http.Request) {
			entered <- struct{}{}
			<-leave
			s.create(w, r)
		})
		first := make(chan answer, 1)
		go func() { first <- orders.post("k", `{}`) }()
		<-entered
		got := orders.post("l", `{}`)
		require.Equal(t, []any{http.StatusServiceUnavailable, "busy", "1"},
			[]any{got.status, got.code(), got.header.Get("Retry-After")})
		close(leave)
		require.Equal(t, http.StatusCreated, (<-first).status)
		require.Eventually(t, func() bool { return orders.post("l", `{}`).status == http.StatusCreated },
			3*time.Minute, 10*time.Millisecond,
			"the place is not free again")
	})
}

// Logs: idempotency_miss, _hit, _conflict with request_id, tenant and conversation, and no bodies, keys or tokens.
func TestEventsTellWhoButNeitherKeyNorBody(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		orders := serve(s.create)
		who := []string{"X-Tenant", "acme", "X-Conversation", "c1", "X-Request-Id", "r-1",
			"Authorization", "Bearer tok3n"}
		got := orders.post("s3cret", `{"card":"4111"}`, who...)
		require.Equal(t, "r-1", got.header.Get("X-Request-Id"))
		orders.post("s3cret", `{"card":"4111"}`, who...)
		orders.post("s3cret", `{"card":"4222"}`, who...)
		require.Equal(t, []string{"miss", "hit", "conflict"}, s.heard())
		for _, e := range s.events {
			require.Equal(t, []string{"r-1", "acme", "c1", "POST /orders"},
				[]string{e.RequestID, e.Tenant, e.Scope, e.Route})
		}
		for _, name := range []string{"idempotency_miss", "idempotency_hit", "idempotency_conflict"} {
			require.Regexp(t, `msg=`+name+` request_id=r-1 tenant=acme scope=c1 route="POST /orders"`, s.log.String())
		}
		for _, secret := range []string{"s3cret", "4111", "4222", "tok3n"} {
			require.NotContains(t, s.log.String(), secret)
		}
	})
}

func TestRouteThatIsNamedWithItsMethodIsToldWithOne(t *testing.T) {
	s := newStage(t)
	s.cfg.Route = func(*http.Request) string { return "POST /orders/{id}" } // as http.ServeMux has patterns
	s.inTransaction(s.create).post("k", `{}`)
	require.Equal(t, "POST /orders/{}", s.events[0].Route)
	require.Equal(t, 1, count(t, s.db.Pool, "firstseen.idempotency where route = 'POST /orders/{}'"))
}

// Records survive a restart: another process finds them.
func TestAnswerIsThereAfterARestart(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		first := serve(s.create).post("k", `{}`)
		s.store = open(t, s.poolOf(2))
		again := serve(s.create).post("k", `{}`)
		require.Equal(t, []any{first.body, true}, []any{again.body, again.replayed()})
	})
}

func TestExpiredAnswerIsNeverGiven(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.TTL = 2 * time.Hour
		orders := serve(s.create)
		orders.post("k", `{}`)
		s.exec(`update firstseen.idempotency set expires_at = expires_at - interval '119 minutes'`)
		require.True(t, orders.post("k", `{}`).replayed())
		s.exec(`update firstseen.idempotency set expires_at = expires_at - interval '2 minutes'`)
		got := orders.post("k", `{"n":2}`)
		require.Equal(t, []any{http.StatusCreated, false, 2}, []any{got.status, got.replayed(), s.effects()})
		require.True(t, orders.post("k", `{"n":2}`).replayed())
		require.Zero(t,
			count(t, s.db.Pool, `firstseen.idempotency where expires_at < now() + interval '1 hour 58 minutes'`))
	})
}
