package migrations_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
)

func TestConsumerRoleTakesMessagesInByHTTPAndChangesNothingOfWhatItNoted(t *testing.T) {
	db := withRoles(t, "")
	_, err := db.Pool.Exec(t.Context(), `create table effects (id uuid); grant insert on effects to `+db.login)
	require.NoError(t, err)
	store, err := dedup.Open(t.Context(), db.consumer, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	var registry handlers.Registry
	require.NoError(t, registry.Register("h", insertEffect(), "orders"))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	require.NoError(t, err)
	h, err := ingress.New(ingress.Config{Processor: processor, Topics: map[string]ingress.Topic{"orders": {}},
		Caller: func(*http.Request) (ingress.Caller, error) { return ingress.Caller{Name: "shop"}, nil }})
	require.NoError(t, err)
	for _, want := range []int{http.StatusCreated, http.StatusOK} {
		r := httptest.NewRequest(http.MethodPost, "/v1/topics/orders/messages",
			strings.NewReader(`{"content":1,"participants":[{"role":"to","address":"a@x"}]}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, w.Body)
	}
	for _, sql := range []string{
		`update firstseen.enqueued set idempotency_key = 'other'`, `delete from firstseen.enqueued`,
		`insert into firstseen.enqueued (inbox, tenant, topic, message_id, request_hash, enqueued_by)
			values ('test', '', 'orders', gen_random_uuid(), '', 'me')`,
		`update firstseen.participants set address = 'other'`, `delete from firstseen.participants`,
		`insert into firstseen.audit (actor, action, why, inbox, subject) values ('me', 'redrive', 'x', 'test', 'y')`,
	} {
		_, err := db.consumer.Exec(t.Context(), sql)
		require.Equal(t, denied, code(err), "%s: %v", sql, err)
	}
	operator := login(t, db.DB, "firstseen_operator")
	var address string
	require.NoError(t, operator.QueryRow(t.Context(), `select address from firstseen.participants join firstseen.enqueued
		using (enqueued_id)`).Scan(&address))
	_, err = operator.Exec(t.Context(), `select firstseen.enqueue('test', '', 'orders', 'me', '{}', '{}', '{}', '{}', '{}',
		'{}', '{}', '{}', '{}', '{}', '{}')`)
	require.Equal(t, denied, code(err))
}
