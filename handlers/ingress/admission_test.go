package ingress_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
)

func TestRefusalsAreProblemsWithTheirRequestID(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	elsewhere := &service{t: t, url: strings.Replace(orders.url, "/orders/", "/others/", 1)}
	wrongPath := &service{t: t, url: strings.Replace(orders.url, "/messages", "/message", 1)}
	put, err := http.NewRequest(http.MethodPut, orders.url, strings.NewReader(mail))
	require.NoError(t, err)
	putAnswer, err := do(put)
	require.NoError(t, err)
	require.Equal(t, "POST", putAnswer.header.Get("Allow"))
	for name, c := range map[string]struct {
		got    answer
		status int
		code   string
	}{
		"nobody":       {orders.post("k", mail, "Authorization", "Bearer wrong"), 401, "unauthorized"},
		"other topic":  {elsewhere.post("k", mail), 404, "not_found"},
		"other path":   {wrongPath.post("k", mail), 404, "not_found"},
		"other method": {putAnswer, 405, "method_not_allowed"},
		"no JSON":      {orders.post("k", "x"), 400, "not_json"},
		"a tenant":     {orders.post("k", mail, "X-Tenant", "acme"), 403, "forbidden"},
	} {
		require.Equal(t, c.status, c.got.status, name)
		require.Equal(t, c.code, c.got.code(), name)
		require.Equal(t, "application/problem+json", c.got.header.Get("Content-Type"), name)
		require.NotEmpty(t, c.got.header.Get("X-Request-Id"), name)
		require.Equal(t, c.got.header.Get("X-Request-Id"), c.got.field("request_id"), name)
	}
	r, err := http.NewRequest(http.MethodPost, strings.Replace(orders.url, "/v1/", "//v1/", 1), strings.NewReader(mail))
	require.NoError(t, err)
	w := httptest.NewRecorder()
	orders.handler.ServeHTTP(w, r)
	require.Equal(t, http.StatusTemporaryRedirect, w.Code, "the mux cleans paths")
	require.NotEmpty(t, w.Header().Get("X-Request-Id"))
	named := orders.post("k", "x", "X-Request-Id", "mine")
	require.Equal(t, "mine", named.header.Get("X-Request-Id"))
	s.left(0, 0, 0, 0, 0)
}

func TestTenantsAreKeptApart(t *testing.T) {
	s := newStage(t)
	s.topic.TenantHeader = "tenant"
	orders := s.serve()
	acme := orders.post("k1", mail, "X-Tenant", "acme")
	require.Equal(t, http.StatusCreated, acme.status, acme.body)
	require.Equal(t, "acme", acme.field("tenant"))
	at := acme.header.Get("Location")
	require.Equal(t, http.StatusNotFound, orders.get(at, "X-Tenant", "other").status)
	other := orders.post("k1", `{"content":"other"}`, "X-Tenant", "other")
	require.Equal(t, http.StatusCreated, other.status, "the same key of another tenant is another key")
	require.Equal(t, "other", other.field("content"))
	require.Equal(t, acme.body, orders.post("k1", mail, "X-Tenant", "acme").body)
	require.Equal(t, handlers.Result{Duplicates: 1}, s.kafka(0, append(keyHeader("k1"),
		dedup.Header{Key: "tenant", Value: []byte("acme")}), "1"), "the tenant's own by Kafka")
	require.Equal(t, http.StatusForbidden, orders.post("k1", mail).status, "of no tenant")
	require.Equal(t, http.StatusBadRequest, orders.post("k2", `{"content":1,"headers":[{"name":"tenant","value":"other"}]}`,
		"X-Tenant", "acme").status)
	s.left(2, 2, 2, 3, 2)
}

func TestACallerWhoseNameOrTenantCanNotBeKeptIsNobody(t *testing.T) {
	s := newStage(t)
	s.topic.TenantHeader = "tenant"
	var caller ingress.Caller
	s.cfg.Caller = func(*http.Request) (ingress.Caller, error) { return caller, nil }
	orders := s.serve()
	for _, caller = range []ingress.Caller{{Tenant: "acme"}, {Name: " ", Tenant: "acme"}, {Name: "a\x00", Tenant: "acme"},
		{Name: "shop", Tenant: "\xff"}, {Name: "shop", Tenant: "a\x00"}, {Name: "shop", Tenant: strings.Repeat("t", 256)}} {
		require.Equal(t, http.StatusUnauthorized, orders.post("k", mail).status, caller)
	}
	caller = ingress.Caller{Name: "shop", Tenant: strings.Repeat("t", 255)}
	require.Equal(t, http.StatusCreated, orders.post("k", mail).status)
}

func TestBodyIsBoundedBeforeItIsRead(t *testing.T) {
	s := newStage(t)
	s.cfg.MaxBytes = 1000
	orders := s.serve()
	large := `{"content":"` + strings.Repeat("x", 1000) + `"}`
	got := orders.post("k", large)
	require.Equal(t, []any{http.StatusRequestEntityTooLarge, "request_too_large"}, []any{got.status, got.code()})
	got, err := orders.try("k", io.MultiReader(strings.NewReader(large))) // without a length
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, got.status)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, large)
	require.NoError(t, z.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, orders.post("k", packed.String(), "Content-Encoding", "gzip").status)
	s.left(0, 0, 0, 0, 0)
}

func TestHeadersAreBounded(t *testing.T) {
	s := newStage(t)
	var headers []string
	for i := range 101 {
		headers = append(headers, fmt.Sprint("X-", i), "1")
	}
	orders := s.serve()
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, orders.post("k", mail, headers...).status)
	for i := range 101 {
		headers[2*i] = "X-Same"
	}
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, orders.post("k", mail, headers...).status)
}

func TestABodyThatDoesNotArriveIs408AndHoldsNoConnectionToPostgres(t *testing.T) {
	s := newStage(t)
	s.cfg.ReadTime = 200 * time.Millisecond
	orders := s.serve()
	at, err := url.Parse(orders.url)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", at.Host)
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", at.Path)
	require.NoError(t, err)
	require.Zero(t, s.pool.Stat().AcquiredConns())
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusRequestTimeout, response.StatusCode)
}

func TestMoreRequestsThanPlacesAreToldToComeAgain(t *testing.T) {
	s := newStage(t)
	s.cfg.Concurrency = 1
	entered, leave := s.holdFirst()
	orders := s.serve()
	first := make(chan answer, 1)
	go orders.postTo(first, "k1", mail)
	<-entered
	got := orders.post("k2", mail)
	require.Equal(t, []any{http.StatusServiceUnavailable, "busy", "1"},
		[]any{got.status, got.code(), got.header.Get("Retry-After")})
	close(leave)
	require.Equal(t, http.StatusCreated, (<-first).status)
	require.Equal(t, 1, s.count("firstseen.message_dedup"))
}

func TestATwinThatWaitsHoldsNoPlace(t *testing.T) {
	s := newStage(t)
	s.cfg.Concurrency = 2
	entered, leave := s.holdFirst()
	orders := s.serve()
	answers := make(chan answer, 3)
	go orders.postTo(answers, "k1", mail)
	<-entered
	go orders.postTo(answers, "k1", mail)
	go orders.postTo(answers, "k1", mail)
	require.Never(t, func() bool { return orders.post("other", mail).status == http.StatusServiceUnavailable },
		200*time.Millisecond, tick)
	close(leave)
	require.Equal(t, http.StatusCreated+2*http.StatusOK, (<-answers).status+(<-answers).status+(<-answers).status)
}

func TestNewMessagesAreRefusedWhileTooManyAreParked(t *testing.T) {
	s := newStage(t)
	s.topic.Queued = true
	s.cfg.MaxParked = 1
	orders := s.serve()
	for i := range 2 {
		require.Equal(t, http.StatusAccepted, orders.post(fmt.Sprint("k", i), mail).status)
	}
	refused := func() bool { return orders.post(uuid.NewString(), mail).code() == "backlog_full" }
	require.Eventually(t, refused, waitFor, 100*time.Millisecond)
	require.Equal(t, 1, strings.Count(s.log.String(), "new messages are refused"))
	kept := s.count("firstseen.message_dedup")
	require.True(t, refused())
	require.Equal(t, kept, s.count("firstseen.message_dedup"))
	require.Equal(t, http.StatusAccepted, orders.post("k0", mail).status, "what is there is told")
	s.work()
	require.Eventually(t, func() bool { return !refused() }, waitFor, 100*time.Millisecond)
	require.Contains(t, s.log.String(), "new messages are taken again")
}

func TestALiveTwinHoldsNoConnectionWhileItWaits(t *testing.T) {
	s := newStage(t)
	entered, leave := s.holdFirst()
	orders := s.serve()
	answers := make(chan answer, 2)
	go orders.postTo(answers, "k1", mail)
	<-entered
	go orders.postTo(answers, "k1", mail)
	require.Never(t, func() bool { return s.pool.Stat().AcquiredConns() > 1 }, 300*time.Millisecond, tick)
	close(leave)
	first, second := <-answers, <-answers
	require.Equal(t, http.StatusCreated+http.StatusOK, first.status+second.status)
	require.Equal(t, first.body, second.body)
}

func TestWithoutPostgresNothingIsDoneAndTheClientIsToldToComeAgain(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	s.exec(`do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$`)
	s.pool.Reset()
	got := orders.post("k1", mail)
	require.Equal(t, http.StatusServiceUnavailable, got.status, got.body)
	require.NotEmpty(t, got.header.Get("Retry-After"))
	require.Zero(t, s.count("firstseen.message_dedup"))
}

func TestACommitWhoseAnswerIsLostIsFoundOutAndNotDoubled(t *testing.T) {
	db := deduptest.New(t)
	proxy := deduptest.NewProxy(t, db.DSN)
	defer proxy.Close() // what fell silent ends before its pool does
	s := newStageOn(t, db, proxy.DSN, time.Second)
	s.register("book", handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if m.RawID == "k1" {
			proxy.SwallowAnswer("COMMIT") // of this transaction, the only one that is open
		}
		_, err := tx.Exec(ctx, `insert into effects (handler) values ('book')`)
		return err
	})))
	orders := s.serve()
	require.Equal(t, http.StatusCreated, orders.post("k0", mail).status)
	got := orders.post("k1", mail)
	require.Equal(t, http.StatusOK, got.status, got.body)
	require.Equal(t, got.body, orders.post("k1", mail).body)
	s.left(2, 2, 2, 6, 2)
}

func TestWhoHangsUpLosesNothing(t *testing.T) {
	s := newStage(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.register("book", handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ dedup.Message) error {
		close(entered)
		<-leave
		_, err := tx.Exec(ctx, `insert into effects (handler) values ('book')`)
		return err
	})))
	orders := s.serve()
	ctx, hangUp := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, orders.url, strings.NewReader(mail))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k1")
	done := make(chan error, 1)
	go func() { _, err := do(r); done <- err }()
	<-entered
	hangUp()
	require.Error(t, <-done)
	close(leave)
	require.Eventually(t, func() bool { return s.count("effects") == 1 }, waitFor, tick)
	require.Equal(t, http.StatusOK, orders.post("k1", mail).status)
}

func TestNoKeyBodyOrTokenIsInTheLog(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	const body = `{"content":"hush","participants":[{"role":"to","address":"hush@x"}]}`
	for range 2 {
		orders.post("hush-key", body, "Authorization", "Bearer hush")
	}
	require.Contains(t, s.log.String(), "idempotency_miss")
	require.Contains(t, s.log.String(), "idempotency_hit")
	require.Contains(t, s.log.String(), "scope=orders")
	require.NotContains(t, s.log.String(), "hush")
}

func TestNewNamesEveryFault(t *testing.T) {
	s := newStage(t)
	s.register("book", effect("book"))
	_, err := ingress.New(ingress.Config{})
	for _, fault := range []string{"a Processor is required", "a Caller is required", "at least one topic"} {
		require.ErrorContains(t, err, fault)
	}
	_, err = ingress.New(ingress.Config{Processor: s.newProcessor(&s.registry), Caller: byHeaders,
		Topics: map[string]ingress.Topic{"refunds": {}, "orders": {Fingerprint: "x"}}})
	require.ErrorContains(t, err, "topic refunds has no handler")
	require.ErrorContains(t, err, `fingerprint "x"`)
}
