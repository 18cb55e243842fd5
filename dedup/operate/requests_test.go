package operate_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
)

// counter is a ward with requests.
type counter struct {
	*ward
	requests *idempotency.Postgres
}

func newCounter(t *testing.T) *counter {
	t.Helper()
	w := newWard(t)
	store, err := idempotency.Open(t.Context(), w.pool, idempotency.PostgresConfig{})
	require.NoError(t, err)
	return &counter{w, store}
}

// entry is a request of a tenant with a key.
func entry(tenant, key string) idempotency.Entry {
	return idempotency.Entry{ID: idempotency.ID(idempotency.HashKey(tenant + "/" + key)),
		KeyHash: idempotency.HashKey(key), Tenant: tenant, Scope: "c1", Route: "POST /orders"}
}

func (c *counter) claim(e idempotency.Entry, lease time.Duration) (fence int64) {
	c.t.Helper()
	fence, found, err := c.requests.Claim(c.t.Context(), e, lease, time.Hour)
	require.NoError(c.t, err)
	require.Equal(c.t, idempotency.NotFound, found.State)
	return fence
}

// requireOnly wants one request of the key, in a state, told so.
func (c *counter) requireOnly(key string, state operate.RequestState, told ...string) operate.Request {
	c.t.Helper()
	e, err := c.inbox.ExplainKey(c.t.Context(), key, operate.KeyFilter{})
	tells(c.t, e, err, told...)
	require.Len(c.t, e.Requests, 1)
	require.Equal(c.t, state, e.Requests[0].State)
	require.NotContains(c.t, strings.Join(e.Sentences, "\n"), "was never seen", "a message is not what was asked for")
	return e.Requests[0]
}

func TestExplainKeyTellsWhatBecameOfARequest(t *testing.T) {
	c := newCounter(t)
	e, err := c.inbox.ExplainKey(t.Context(), "k", operate.KeyFilter{})
	tells(t, e, err, "No HTTP request with this key is known", "was never seen, by any handler")
	require.Empty(t, e.Requests)

	k := entry("acme", "k")
	fence := c.claim(k, time.Hour)
	got := c.requireOnly("k", operate.RequestRunning,
		"POST /orders of tenant acme in scope c1 came first at", "is being worked on until", "told to come again")
	require.Equal(t, fence, got.Fence)
	require.NoError(t, c.requests.Release(t.Context(), k.ID, fence))
	c.requireOnly("k", operate.RequestOpen, "It has no answer", "The next try runs")
	fence = c.claim(k, time.Millisecond)
	require.Eventually(t, func() bool {
		return c.count(`select count(*) from firstseen.idempotency where lease_until < now()`) == 1
	}, 3*time.Minute, time.Millisecond)
	got = c.requireOnly("k", operate.RequestAbandoned, "It was claimed until", "neither answered nor claimed since",
		"may have happened")
	require.False(t, got.LeaseUntil.IsZero())
	require.NoError(t, c.requests.Complete(t.Context(), k.ID, fence, idempotency.Answer{Status: 201,
		Header: http.Header{"Location": {"/secret"}}, Body: []byte("secret")}))
	got = c.requireOnly("k", operate.RequestAnswered, "answered 201, which is given again until")
	require.Equal(t, 201, got.Status)
	require.WithinRange(t, got.ExpiresAt, time.Now(), time.Now().Add(time.Hour))
	text, err := json.Marshal(got)
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
	c.exec(`update firstseen.idempotency set expires_at = now()`)
	c.requireOnly("k", operate.RequestExpired, "That expired at", "the key is new")
}

func TestExplainKeySeesARequestThatATransactionWorksOn(t *testing.T) {
	c, elsewhere := newCounter(t), newCounter(t) // databases of one server
	var during operate.Request
	m, err := idempotency.InTransaction(c.requests, idempotency.Config{Caller: idempotency.OneCaller})
	require.NoError(t, err)
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		during = c.requireOnly("k", operate.RequestRunning, "being worked on", "twins are told to come again")
		if during.Route == "" {
			e, err := c.inbox.ExplainKey(t.Context(), "k", operate.KeyFilter{Tenant: "acme"})
			tells(t, e, err, "No HTTP request with this key is known") // it may be another tenant's
			e, err = elsewhere.inbox.ExplainKey(t.Context(), "k", operate.KeyFilter{})
			tells(t, e, err, "No HTTP request with this key is known") // locks are of the whole cluster
		}
		w.WriteHeader(http.StatusCreated)
	}))
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.Header.Set(idempotency.Header, "k")
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, operate.RequestRunning, during.State)
	require.Empty(t, during.Route)
	c.requireOnly("k", operate.RequestAnswered, "answered 201")

	c.exec(`update firstseen.idempotency set expires_at = now()`) // its row is taken over
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "POST /orders", during.Route)
}

func TestExplainKeyTellsOfTheLastRequestFirst(t *testing.T) {
	c := newCounter(t)
	for i, tenant := range []string{"second", "last", "first"} {
		c.claim(entry(tenant, "k"), time.Hour)
		c.exec(`update firstseen.idempotency set created_at = now() - make_interval(mins => $2) where tenant = $1`, tenant,
			[]int{2, 1, 3}[i])
	}
	e, err := c.inbox.ExplainKey(t.Context(), "k", operate.KeyFilter{})
	require.NoError(t, err)
	var tenants []string
	for _, r := range e.Requests {
		tenants = append(tenants, r.Tenant)
	}
	require.Equal(t, []string{"last", "second", "first"}, tenants)
}

func TestExplainKeyKeepsToATenantAndATopicAndTellsNoKey(t *testing.T) {
	c := newCounter(t)
	const key = "a key of a client"
	c.claim(entry("acme", key), time.Hour)
	c.claim(entry("other", key), time.Hour)
	ids, err := identity.ParseIDs(key)
	require.NoError(t, err)
	m := message(0, "lane")
	m.ID, m.Tenant = ids[0], "acme"
	require.Equal(t, 1, c.process(m).New)
	explain := func(f operate.KeyFilter) (requests, messages int) {
		e, err := c.inbox.ExplainKey(t.Context(), key, f)
		require.NoError(t, err)
		require.Equal(t, ids[0].String(), e.Asked)
		require.NotContains(t, strings.Join(e.Sentences, "\n"), key)
		return len(e.Requests), len(e.Seen)
	}
	for f, want := range map[operate.KeyFilter][2]int{
		{}: {2, 1}, {Tenant: "acme"}: {1, 1}, {Tenant: "other"}: {1, 0}, {Tenant: "none"}: {0, 0},
		{Topic: "orders"}: {2, 1}, {Topic: "payments"}: {2, 0}, {Tenant: "acme", Topic: "orders"}: {1, 1},
	} {
		requests, messages := explain(f)
		require.Equal(t, want, [2]int{requests, messages}, "%+v", f)
	}
	e, err := c.inbox.ExplainKey(t.Context(), key, operate.KeyFilter{})
	tells(t, e, err, "of tenant acme", "Handler book of inbox orders-inbox, for tenant acme, saw it first at")
	e, err = c.inbox.ExplainKey(t.Context(), uuid.Nil.String(), operate.KeyFilter{})
	tells(t, e, err, "No HTTP request with this key")
	require.Len(t, e.Sentences, 1, "no message has such an ID")
}

func TestKeysAreLookedUpByAnIndex(t *testing.T) {
	c := newCounter(t)
	c.exec(`insert into firstseen.idempotency (id, key_hash, tenant, scope, route, fingerprint, expires_at)
		select sha256(i::text::bytea), sha256(i::text::bytea), '', '', '', '', now() + interval '1 hour'
		from generate_series(1, 10000) i`)
	c.exec(`analyze firstseen.idempotency`)
	var plans strings.Builder
	_, err := c.inbox.On(deduptest.Explained(t, c.dsn, &plans)).ExplainKey(t.Context(), "k", operate.KeyFilter{})
	require.NoError(t, err)
	require.Contains(t, plans.String(), "idempotency_by_key")
	require.NotContains(t, plans.String(), "Seq Scan on idempotency")
}
