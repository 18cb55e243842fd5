package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

func TestRunCallsAWebhookOnceForEachMessageOfItsTopics(t *testing.T) {
	s := newShop(t, booking)
	other := consumertest.Name(t)
	consumertest.CreateTopic(t, s.addr, other, 1)
	var mu sync.Mutex
	calls := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("Idempotency-Key")
		if calls[id]++; calls[id] == 1 {
			w.WriteHeader(http.StatusInternalServerError) // each is called again, once
		}
	}))
	defer server.Close()
	hook := fmt.Sprintf("{name: notify, webhook: {url: %q, allow_private: true, secret: '${SIGN}'}, retry: {base: 1ms, cap: 1ms}}", server.URL)
	config := strings.Replace(s.config(s.db.DSN), "billing.book_order}]", "billing.book_order}, "+hook+"]", 1)
	config = strings.Replace(config, "topics: [", fmt.Sprintf("topics: [{name: %s, handlers: [%s]}, ", other, hook), 1)
	t.Setenv("SIGN", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	s.produce(0, 5)
	s.produce(0, 5) // all of them again
	p := start(t, config, "run")
	eventually(t, func() bool {
		var n int
		require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select count(*) from firstseen.inbox`).Scan(&n))
		return n == 10
	})
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.Len(t, calls, 5)
	for id, n := range calls {
		require.Equal(t, 2, n, id)
	}
	require.Equal(t, 5, s.booked())
	require.Contains(t, p.log.String(), "the webhook's URL is http")
	require.NotContains(t, p.log.String(), "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	s.requireAllCommitted()
}
