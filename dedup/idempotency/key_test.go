package idempotency_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/idempotency"
)

// Rules of "HTTP enqueue with idempotency key" that are about the key.

func TestKeySpellingsThatAreOneKey(t *testing.T) {
	s := newStage(t)
	orders := s.inTransaction(s.create)
	first := orders.post("k 1", `{}`)
	require.Equal(t, http.StatusCreated, first.status, first.body)
	for _, spelled := range []string{"k 1", "  k 1\t", `"k 1"`, `" k 1 "`, `"k 1";v=1`, `"k 1" ; v=1`} {
		again := orders.post(spelled, `{}`)
		require.Equal(t, first.body, again.body, spelled)
		require.True(t, again.replayed(), spelled)
	}
	require.Equal(t, 1, s.effects())
	require.Equal(t, http.StatusCreated, orders.post(`k\ 1`, `{}`).status, "a backslash outside of quotes is itself")
	require.Equal(t, 2, s.effects())
}

func TestKeyInTheBodyIsTheSameKeyAsInTheHeader(t *testing.T) {
	s := newStage(t)
	orders := s.inTransaction(s.create)
	body := `{"n":1,"idempotencyKey":" b\u00e91 "}`
	first := orders.post("", body)
	require.Equal(t, http.StatusCreated, first.status)
	require.Equal(t, first.body, orders.post("", body).body)
	require.Equal(t, first.body, orders.post("bé1", body).body, "both, and the same")
	require.Equal(t, 1, s.effects())
}

func TestKeyInTheBodyIsSeenWhateverFollowsItsType(t *testing.T) {
	s := newStage(t)
	m, err := idempotency.InTransaction(s.store, s.cfg)
	require.NoError(t, err)
	h := m.Handler(http.HandlerFunc(s.create))
	for i, kind := range []string{"application/json; charset", "application/json;;", "APPLICATION/JSON ; a=\"",
		"application/vnd.api+json; =x"} {
		var w *httptest.ResponseRecorder
		for range 2 {
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(fmt.Sprintf(`{"idempotencyKey":"%d"}`, i)))
			r.Header.Set("Content-Type", kind)
			w = httptest.NewRecorder()
			h.ServeHTTP(w, r)
		}
		require.Equal(t, "true", w.Header().Get("Idempotency-Replayed"), kind)
	}
}

func TestKeyThatIsEmptyIsNone(t *testing.T) {
	s := newStage(t)
	orders := s.inTransaction(s.create)
	for i, try := range [][2]string{{"", `{}`}, {"  ", `{}`}, {`""`, `{}`}, {`" "`, `{}`},
		{"", `{"idempotencyKey":""}`}, {"", `{"idempotencyKey":null}`}, {"", `{"idempotencyKey":" \t"}`},
		{"", `[{"idempotencyKey":"k"}]`}, {"", `{"deep":{"idempotencyKey":"k"}}`}, {"", `{"idempotencyKey":"k"`}} {
		require.Equal(t, http.StatusCreated, orders.post(try[0], try[1]).status, try)
		require.Equal(t, i+1, s.effects(), "each takes effect")
	}
	require.Zero(t, s.records())
}

func TestKeysThatAreRefused(t *testing.T) {
	s := newStage(t)
	orders := s.inTransaction(s.create)
	long := strings.Repeat("é", idempotency.MaxKeyChars)
	for name, try := range map[string]struct {
		key, body, says string
		headers         []string
	}{
		"too long": {key: long + "x", body: `{}`,
			says: "the header Idempotency-Key: it is longer than 200 characters"},
		"too long in body": {body: `{"idempotencyKey":"` + long + `x"}`,
			says: "the body's field idempotencyKey: it is longer"},
		"different": {key: "secret-a", body: `{"idempotencyKey":"secret-b"}`,
			says: "the header Idempotency-Key and the body's field idempotencyKey"},
		"repeated": {key: "a", body: `{}`,
			headers: []string{"Idempotency-Key", "a"}, says: "more than one"},
		"repeated in body":    {body: `{"idempotencyKey":"a","idempotencyKey":"a"}`, says: "more than one"},
		"repeated by escapes": {body: `{"idempotencyKey":"a","idempotency\u004bey":"b"}`, says: "more than one"},
		"no string":           {body: `{"idempotencyKey":1}`, says: "no string"},
		"open quote":          {key: `"a`, body: `{}`, says: "not closed"},
		"two in one":          {key: `"a", "b"`, body: `{}`, says: "something follows"},
		"bad escape":          {key: `"a\b"`, body: `{}`, says: "backslash"},
		"control character":   {body: `{"idempotencyKey":"a\u0000b"}`, says: "control"},
		"half a surrogate":    {body: `{"idempotencyKey":"\ud800"}`, says: "not UTF-8"},
		"no UTF-8":            {body: "{\"idempotencyKey\":\"a\xff\"}", says: "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			got := orders.post(try.key, try.body, try.headers...)
			require.Equal(t, http.StatusBadRequest, got.status)
			require.Equal(t, idempotency.CodeKeyInvalid, got.code())
			require.Contains(t, got.body, try.says)
			require.NotContains(t, got.body, "secret", "no key is repeated")
			require.NotEmpty(t, got.header.Get("X-Request-Id"), "on errors too")
		})
	}
	require.Zero(t, s.effects())
	require.Equal(t, http.StatusCreated, orders.post("", `{"idempotencyKey":"`+long+`"}`).status)
}

func TestKeyRequiredWhereTheRouteSaysSo(t *testing.T) {
	s := newStage(t)
	s.cfg.Required = true
	orders := s.inTransaction(s.create)
	got := orders.post("", `{}`)
	require.Equal(t, http.StatusBadRequest, got.status)
	require.Contains(t, got.body, "Idempotency-Key")
	require.Equal(t, http.StatusCreated, orders.post("k", `{}`).status)
}

// Rule of "Route submission with stored response": the key must be a UUID.
func TestKeyMustBeAUUIDWhereTheRouteSaysSo(t *testing.T) {
	s := newStage(t)
	s.cfg.UUIDOnly = true
	orders := s.inTransaction(s.create)
	for _, key := range []string{"k", "0190b5e27c1a7def8123456789abcdef", "{0190b5e2-7c1a-7def-8123-456789abcdef}",
		"0190b5e2-7c1a-7def-8123-456789abcdeg"} {
		got := orders.post(key, `{}`)
		require.Equal(t, http.StatusBadRequest, got.status, key)
		require.Contains(t, got.body, "UUID")
	}
	first := orders.post("0190b5e2-7c1a-7def-8123-456789abcdef", `{}`)
	require.Equal(t, http.StatusCreated, first.status)
	require.Equal(t, first.body, orders.post(`"0190B5E2-7C1A-7DEF-8123-456789ABCDEF"`, `{}`).body)
	require.Equal(t, http.StatusCreated, orders.post("", `{}`).status, "none is allowed")
}

func TestBodyFieldMayHaveAnotherNameOrNone(t *testing.T) {
	s := newStage(t)
	s.cfg.BodyField = "requestKey"
	orders := s.inTransaction(s.create)
	orders.post("", `{"requestKey":"k"}`)
	require.True(t, orders.post("", `{"requestKey":"k"}`).replayed())
	s.cfg.BodyField = "-"
	orders = s.inTransaction(s.create)
	require.False(t, orders.post("", `{"requestKey":"k"}`).replayed())
	require.False(t, orders.post("", `{"idempotencyKey":"k"}`).replayed())
}

func TestReadingMethodsPassAsTheyAre(t *testing.T) {
	s := newStage(t)
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		require.Nil(t, idempotency.Tx(r.Context()))
		_, flushes := w.(http.Flusher)
		_, unwraps := w.(interface{ Unwrap() http.ResponseWriter })
		require.True(t, flushes && !unwraps, "it is the server's own")
		_, _ = w.Write([]byte("x"))
	})
	r, err := http.NewRequest(http.MethodGet, orders.server.URL+"/orders", nil)
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k")
	got, err := do(r)
	require.NoError(t, err)
	require.Equal(t, "x", got.body)
	require.Zero(t, s.records())
}

func TestRoutesAreNamedByPatternBeforeTheMuxHasMatched(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(http.ResponseWriter, *http.Request) {})
	route := idempotency.PatternOf(mux)
	require.Equal(t, "POST /orders/{id}", route(httptest.NewRequest(http.MethodPost, "/orders/7", nil)))
	require.Equal(t, "POST /orders/{id}", route(httptest.NewRequest(http.MethodPost, "/orders/8", nil)))
	require.Empty(t, route(httptest.NewRequest(http.MethodPost, "/elsewhere", nil)))
}
